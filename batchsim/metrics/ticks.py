"""The decode clock of a run: when each tick ended, and the longest gap between ticks of a stretch, exactly.

A fleet tick counts on across replicas: replica 0's ticks first, then replica 1's, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchsim.compact import narrow, part
from batchsim.records import FS_PER_NS, Iterations, Records, Spans, step_ends_ns

Int64 = NDArray[np.int64]
_CLOCK = ("start_ns", "start_frac_fs", "first_fs", "growth_fs")
_KEPT = "_ticks"
FEW = 1 << 17
"""Rows of a run whose clock is kept: several figures are read off it."""
CHUNK = 1 << 20
"""Steps expanded at a time, so that memory does not grow with the length of a run."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """The rows of `Iterations`, replica after replica, with the ticks that they hold; a row is called by its place.

    count: ticks of the row, 0 where nobody decodes.  before: fleet ticks before it.
    base: fleet ticks before each replica's first.  first_end_ns: end of the row's first step.
    gap_ns: first_end_ns less the end of the replica's tick before it; 0 for a replica's first tick (nobody's gap) and
    for rows without ticks.
    """

    rows: Iterations
    count: Int64
    before: Int64
    base: Int64
    first_end_ns: Int64
    gap_ns: Int64

    def __len__(self) -> int:
        return len(self.count)


def ticks_of(iterations: Iterations, replicas: int) -> Ticks:
    """The decode clock of every replica; kept with the rows where they are not many."""
    kept: Ticks | None = iterations.__dict__.get(_KEPT)
    if kept is None or len(kept.base) != replicas:
        kept = _ticks_of(iterations, replicas)
        if len(kept) <= FEW:
            iterations.__dict__[_KEPT] = kept
    return kept


def _ticks_of(iterations: Iterations, replicas: int) -> Ticks:
    replica = iterations.replica
    if np.any(replica[1:] < replica[:-1]):
        order = np.argsort(replica, kind="stable")
        iterations = Iterations(*(narrow(iterations, name)[order] for name in Iterations.__dataclass_fields__))
        replica = iterations.replica
    count = np.where(iterations.decode_seqs > 0, iterations.repeats, 0)
    before = np.cumsum(count)
    total = int(before[-1]) if len(before) else 0
    before -= count
    base = np.append(before, total)[np.searchsorted(replica, np.arange(replicas))]
    first_end, gap = np.zeros_like(count), np.zeros_like(count)
    last_end, last_replica = 0, -1
    for block in blocks(len(count)):
        start, frac, first_fs, _ = (part(iterations, name, block) for name in _CLOCK)
        first_end[block] = step_ends_ns(start, frac, first_fs, np.zeros_like(start), np.ones_like(start))
        ticking = np.flatnonzero(count[block] > 0)
        if len(ticking) == 0:
            continue
        owner = np.concatenate([[last_replica], replica[block][ticking]])
        ends = np.concatenate([[last_end], part(iterations, "end_ns", block)[ticking]])
        gap[block][ticking] = np.where(owner[1:] == owner[:-1], first_end[block][ticking] - ends[:-1], 0)
        last_end, last_replica = int(ends[-1]), int(owner[-1])
    return Ticks(iterations, count, before, base, first_end, gap)


def locate(ticks: Ticks, tick: Int64) -> tuple[Int64, Int64]:
    """(place, step of that row from 1) of fleet ticks."""
    place = np.searchsorted(ticks.before, tick, side="left") - 1
    return place, tick - ticks.before[place]


def ends_at(ticks: Ticks, place: Int64, step: Int64) -> Int64:
    """When the given steps (from 1) of the given places ended, ns."""
    start, frac, first, growth = (part(ticks.rows, name, place) for name in _CLOCK)
    return step_ends_ns(start, frac, first, growth, step)


def tick_ends_ns(ticks: Ticks, tick: Int64) -> Int64:
    """When fleet ticks ended, ns."""
    place, step = locate(ticks, tick)
    return ends_at(ticks, place, step)


def blocks(rows: int, size: int = 1 << 16) -> Iterator[slice]:
    """Slices of so many rows that their temporaries stay in the processor's cache."""
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def ragged(counts: Int64) -> tuple[Int64, Int64]:
    """(owner, position) of every element of rows that hold `counts` elements: [2, 1] -> [0, 0, 1], [0, 1, 0]."""
    owner = np.repeat(np.arange(len(counts)), counts)
    position = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, position


def chunks(counts: Int64, limit: int = CHUNK) -> Iterator[slice]:
    """Slices of rows whose elements together are about `limit` (one row at least)."""
    reached = np.cumsum(counts)
    start = 0
    while start < len(counts):
        done = int(reached[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(reached, done + limit, side="right")))
        yield slice(start, stop)
        start = stop


def slots_of(ticks: Ticks, spans: Spans) -> tuple[Int64, Int64]:
    """Each span as a range of slots: slot 2p is the first tick of place p, slot 2p + 1 all its further ticks.

    A run of repeats is one batch throughout, so a span begins with its first or its second tick and ends with its
    first or its last; ValueError where the records say otherwise.
    """
    base = ticks.base[spans.replica]
    start_place, start_step = locate(ticks, base + spans.from_tick + 1)
    end_place, end_step = locate(ticks, base + spans.to_tick)
    whole = end_step == ticks.count[end_place]
    empty = spans.from_tick >= spans.to_tick
    if np.any(~empty & ((start_step > 2) | ((end_step > 1) & ~whole))):
        raise ValueError("spans: a span begins or ends inside a run of equal steps")
    start = 2 * start_place + start_step - 1
    return start, np.where(empty, start, 2 * end_place + 1 + whole)


def slot_gaps_ns(ticks: Ticks) -> Int64:
    """The gap of every slot, ns: of the first tick, then the longest of the further ticks (0 without any)."""
    gaps = np.zeros(2 * len(ticks), dtype=np.int64)
    gaps[0::2] = ticks.gap_ns
    longest = gaps[1::2]
    for block in blocks(len(ticks)):
        two = ticks.count[block] == 2
        longest[block] = np.where(two, part(ticks.rows, "end_ns", block) - ticks.first_end_ns[block], 0)
        long = np.flatnonzero(ticks.count[block] > 2) + block.start
        if len(long):
            longest[long] = _longest_further(ticks, long)
    return gaps


def _longest_further(ticks: Ticks, place: Int64) -> Int64:
    """The longest rounded step of each place from the second on.

    A rounded duration is less than 1 ns off, so only steps within 2 ns of the longest can be the longest.
    """
    growth, first_fs = part(ticks.rows, "growth_fs", place), part(ticks.rows, "first_fs", place)
    steps = ticks.count[place] - 1
    equal = np.where(first_fs % FS_PER_NS == 0, 1, steps)
    near = np.where(growth == 0, equal, 2 * FS_PER_NS // np.maximum(np.abs(growth), 1) + 1)
    near = np.minimum(near, steps)
    longest = np.empty_like(place)
    for some in chunks(near):
        owner, back = ragged(near[some])
        at = place[some][owner]
        step = np.where(growth[some][owner] >= 0, ticks.count[at] - back, 2 + back)
        gap = ends_at(ticks, at, step) - ends_at(ticks, at, step - 1)
        longest[some] = np.maximum.reduceat(gap, np.cumsum(near[some]) - near[some])
    return longest


def range_max(values: Int64, start: Int64, end: Int64, block: int = 32) -> Int64:
    """max(values[start:end]) of every pair, 0 for an empty range (values are at least 0).

    Ranges inside one block are reduced directly; longer ones meet the maxima of the tail of their first block, the
    head of their last, and the whole blocks between from a sparse table: memory is about the values' own.
    """
    best = np.zeros(len(start), dtype=np.int64)
    short = (start < end) & (start // block == (end - 1) // block)
    few = np.flatnonzero(short)
    for begin in range(0, len(few), CHUNK // block):
        part = few[begin : begin + CHUNK // block]
        counts = end[part] - start[part]
        owner, position = ragged(counts)
        best[part] = np.maximum.reduceat(values[start[part][owner] + position], np.cumsum(counts) - counts)
    wide = np.flatnonzero((start < end) & ~short)
    if len(wide) == 0:
        return best
    first, last = start[wide], end[wide] - 1
    short_by = -len(values) % block
    table = (np.append(values, np.zeros(short_by, dtype=np.int64)) if short_by else values).reshape(-1, block)
    found = np.maximum.accumulate(table[:, ::-1], axis=1)[:, ::-1].ravel()[first]
    heads = np.maximum.accumulate(table, axis=1)
    found = np.maximum(found, heads.ravel()[last])
    inner = last // block - first // block - 1
    some = np.flatnonzero(inner > 0)
    level = np.floor(np.log2(inner[some])).astype(np.int64)
    whole = heads[:, -1]
    low = first[some] // block + 1
    high = last[some] // block
    for power in range(int(level.max()) + 1 if len(some) else 0):
        at = level == power
        which = some[at]
        found[which] = np.maximum(found[which], np.maximum(whole[low[at]], whole[high[at] - (1 << power)]))
        whole = np.maximum(whole[: -(1 << power)], whole[1 << power :])
    best[wide] = found
    return best


def max_itl_ns(records: Records) -> Int64:
    """The longest gap between two tokens of each request, ns; NEVER (-1) for requests with fewer than two tokens."""
    requests, spans = records.requests, records.spans
    longest = requests.odd_gap_ns.copy()
    if len(spans.index):
        ticks = ticks_of(records.iterations, records.replicas)
        start, end = slots_of(ticks, spans)
        np.maximum.at(longest, spans.index, range_max(slot_gaps_ns(ticks), start, end))
    longest[requests.emitted_tokens < 2] = -1
    return longest
