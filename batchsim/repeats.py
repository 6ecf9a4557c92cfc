"""A run of equal decode steps: each lasts `growth` femtoseconds longer than the one before, for the contexts grow."""

from __future__ import annotations

from math import sqrt

from batchsim.records import FS_PER_NS

HALF_NS = FS_PER_NS // 2
"""Added before an instant is cut to whole nanoseconds."""
LONGEST_FS = 4 * 10**18
"""Of a run: sums of its row stay inside 64 bits."""


def duration_fs(ticks: int, first: int, growth: int) -> int:
    """How long `ticks` steps last, the first of which lasts `first`."""
    return ticks * first + growth * (ticks * (ticks - 1) // 2)


def ticks_reaching(target: int, first: int, growth: int) -> int:
    """The first step that ends `target` or later after the start of the run."""
    if target <= first:
        return 1
    ticks = -(-target // first)  # not too few, as growth is not below 0
    if growth == 0:
        return ticks
    if ticks > 50:
        slope = 2 * first - growth
        ticks = 2 + int((sqrt(slope * slope + 8.0 * growth * target) - slope) / (2 * growth))
    while ticks > 1 and (ticks - 1) * first + growth * ((ticks - 1) * (ticks - 2) // 2) >= target:
        ticks -= 1
    while ticks * first + growth * (ticks * (ticks - 1) // 2) < target:
        ticks += 1
    return ticks


def blocks_opened(residues: list[int], members: int, tick: int, ticks: int) -> int:
    """KV blocks that the members of a decode group open in `ticks` ticks, the first of which follows tick `tick`.

    residues: how many of their contexts, less the clock, have each residue modulo the block size.
    """
    full, rest = divmod(ticks, len(residues))
    blocks = full * members
    if rest:
        high = -tick % len(residues) + 1  # residues high - 1, high - 2, …, modulo the block
        low = high - rest
        blocks += sum(residues[low:high]) if low >= 0 else sum(residues[:high]) + sum(residues[low:])
    return blocks
