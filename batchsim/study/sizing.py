"""The search: the smallest size that passes, the largest rate that it holds, the largest value of a key.

Every step of it is a simulation on the same requests; a size is minimal because the one below was run and failed.
"""

from __future__ import annotations

from collections.abc import Callable

from batchsim.study.trial import Fleet

TOLERANCE = 0.01
"""Largest rates are found to one per cent."""
MOST = 1024.0
"""Rates beyond so many times the one asked for are not looked for."""


def smallest(fleet: Fleet, start: int, largest: int) -> int | None:
    """The smallest size from 1 to `largest` that passes, looked for from `start` on; None where `largest` fails.

    Steps grow from `start` until a size passes; then the gap below is halved. Sizes are taken to be ordered: what
    passes with n passes with more.
    """
    if start > largest:  # by work alone this cannot do, unless the run is too short to show it
        return _down(fleet, largest)
    failed, step, size = start - 1, 1, start
    while not fleet.passes(size):
        if size == largest:
            return None
        failed, size = size, min(size + step, largest)
        step *= 2
    if failed < start:  # the bound itself passed: a short run can outlive it
        return _down(fleet, size)
    while size - failed > 1:
        middle = (failed + size) // 2
        if fleet.passes(middle):
            size = middle
        else:
            failed = middle
    return size


def smallest_settled(fleet: Fleet, start: int, largest: int) -> int | None:
    """`smallest`, and one fewer shown to fail on the same requests: a verdict that took more of them is checked with
    all that were drawn by the end."""
    size = smallest(fleet, start, largest)
    while size is not None and (not fleet.passes(size) or (size > 1 and fleet.passes(size - 1))):
        size = smallest(fleet, size, largest)
    return size


def _down(fleet: Fleet, size: int) -> int | None:
    """From a size at or above the smallest: down while they pass; None if `size` itself fails."""
    if not fleet.passes(size):
        return None
    passed, step = size, 1
    failed = 0
    while passed > 1:
        lower = max(1, passed - step)
        if not fleet.passes(lower):
            failed = lower
            break
        passed, step = lower, step * 2
    while passed - failed > 1:
        middle = (failed + passed) // 2
        if fleet.passes(middle):
            passed = middle
        else:
            failed = middle
    return passed


def largest_factor(
    holds: Callable[[float], bool], tolerance: float = TOLERANCE, start: float = 1.0
) -> tuple[float, float | None]:
    """(largest factor found to hold, smallest found not to), within `tolerance` of each other, from `start` in steps
    that grow.

    (0, factor) where nothing down to a thousandth holds; (factor, None) where everything up to `MOST` does.
    """
    held, failed = 0.0, None
    factor, step = start, 1.1
    if holds(start):
        held = start
        while failed is None and held < MOST:
            factor = held * step
            if holds(factor):
                held, step = factor, min(step * step, 4.0)
            else:
                failed = factor
    else:
        failed = start
        while held == 0.0 and failed > start / 1000:
            factor = failed / step
            if holds(factor):
                held = factor
            else:
                failed, step = factor, min(step * step, 4.0)
    if held == 0.0 or failed is None:
        return held, failed
    while failed / held > 1 + tolerance:
        middle = (held * failed) ** 0.5
        if holds(middle):
            held = middle
        else:
            failed = middle
    return held, failed


def largest_whole(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest whole number from `low` to `high` that holds, all below a holding one holding; None if low fails."""
    if not holds(low):
        return None
    passed, step, failed = low, 1, high + 1
    while passed < high:
        trial = min(passed + step, high)
        if not holds(trial):
            failed = trial
            break
        passed, step = trial, step * 2
    while failed - passed > 1:
        middle = (passed + failed) // 2
        if holds(middle):
            passed = middle
        else:
            failed = middle
    return passed
