"""Inter-token latency: the exact distribution of all gaps between tokens, without a list of tokens.

The gaps of a run are ticks of its decode clocks, each shared by many sequences, and the odd gaps that no tick shows.
So the sample is a weighted one: gap, and how many sequences had it. Runs of equal steps that are long stay folded (a
start, a duration, a growth) and only the steps near a wanted percentile are ever written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.compact import Ints, narrow, part
from batchsim.metrics.percentiles import PERCENTS, Stats, between
from batchsim.metrics.ticks import Ticks, blocks, chunks, ends_at, ragged, slots_of, ticks_of
from batchsim.records import FS_PER_NS, Records

Int64 = NDArray[np.int64]
EXPAND = 1 << 18
"""Up to so many steps of long runs are written out; more stay folded where runs are long enough to gain by it."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Further steps (2 to the last) of the rows at `place`, each a gap of `weight` sequences."""

    ticks: Ticks
    place: Int64
    weight: Int64

    @property
    def steps(self) -> Int64:
        """Gaps of each run, not counting the weight."""
        return self.ticks.count[self.place] - 1

    def low_fs(self) -> Int64:
        """The shortest step of each run, before rounding."""
        first, growth = (part(self.ticks.rows, name, self.place) for name in ("first_fs", "growth_fs"))
        return first + np.where(growth >= 0, growth, growth * self.steps)

    def step_fs(self) -> Int64:
        """How much longer each next step is, taken from the shortest."""
        return np.abs(part(self.ticks.rows, "growth_fs", self.place))

    def taken(self, some: NDArray[Any] | slice) -> Runs:
        """Some of the runs."""
        return Runs(self.ticks, self.place[some], self.weight[some])

    def below(self, edge_fs: Int64 | int) -> Int64:
        """How many steps of each run last less than edge_fs, before rounding."""
        room = edge_fs - self.low_fs()
        step = self.step_fs()
        count = np.where(step > 0, -(-room // np.maximum(step, 1)), self.steps)
        return np.where(room > 0, np.minimum(count, self.steps), 0)

    def expand(self, skip: Int64, count: Int64) -> tuple[Int64, Int64]:
        """(gap in ns, weight) of `count` steps of each run, after its `skip` shortest."""
        place, growth = self.place, part(self.ticks.rows, "growth_fs", self.place)
        first = np.where(growth >= 0, 2 + skip, self.ticks.count[place] - skip - count + 1)
        owner, position = ragged(count + 1)  # the ends of the steps, and of the one before them
        ends = ends_at(self.ticks, place[owner], first[owner] - 1 + position)
        inner = position[1:] > 0
        return (ends[1:] - ends[:-1])[inner], self.weight[owner[1:][inner]]


@dataclass(frozen=True, slots=True)
class Gaps:
    """A weighted sample of gaps, and runs that stay folded (None: none do).

    packed: gap << bits | weight, in order. One integer for both sorts several times faster and takes half the memory.
    """

    packed: Int64
    bits: int
    runs: Runs | None

    def blocks(self) -> Iterator[tuple[Int64, Int64]]:
        """(gaps in ns, weights), some at a time, in order."""
        mask = (1 << self.bits) - 1
        for block in blocks(len(self.packed)):
            yield self.packed[block] >> self.bits, self.packed[block] & mask

    def longest_ns(self) -> int:
        """The longest gap, folded ones apart."""
        return int(self.packed[-1]) >> self.bits if len(self.packed) else 0


def itl_stats_ns(records: Records) -> Stats:
    """Statistics of every gap between consecutive tokens, pooled over requests, in ns."""
    return stats_ns(pooled_gaps(records))


def pooled_gaps(records: Records, *, fold: bool | None = None) -> Gaps:
    """Every gap of a run. fold: whether long runs stay folded, by their size if None; the statistics are the same."""
    ticks = ticks_of(records.iterations, records.replicas)
    steady, streaming = narrow(ticks.rows, "steady_seqs"), narrow(ticks.rows, "streaming_seqs")
    return _gather(ticks, steady, streaming, records.spans.odd_gaps_ns, fold)


def gaps_of(records: Records, members: NDArray[np.bool_], *, fold: bool | None = None) -> Gaps:
    """The gaps of some requests."""
    ticks = ticks_of(records.iterations, records.replicas)
    spans = records.spans
    start, end = slots_of(ticks, spans)
    mine = members[spans.index]
    size = 2 * len(ticks) + 1
    weight = np.cumsum(np.bincount(start[mine], minlength=size) - np.bincount(end[mine], minlength=size))[:-1]
    return _gather(ticks, weight[0::2], weight[1::2], spans.odd_gaps_ns[members[spans.odd_index]], fold)


def stats_ns(gaps: Gaps) -> Stats:
    """Statistics of weighted gaps: what numpy says of the sample written out, in ns.

    The spread of folded runs is taken before rounding to nanoseconds; everything else is exact.
    """
    longest = gaps.longest_ns()
    count = total = 0
    near = int(gaps.packed[len(gaps.packed) // 2]) >> gaps.bits if len(gaps.packed) else 0
    spread = 0.0  # about `near`
    for values, weights in gaps.blocks():
        count += int(weights.sum())
        total += int((values * weights).sum())
        spread += float((weights * (values - near).astype(np.float64) ** 2).sum())
    if gaps.runs is not None:
        runs = gaps.runs
        count += int((runs.steps * runs.weight).sum())
        whole = part(runs.ticks.rows, "end_ns", runs.place) - runs.ticks.first_end_ns[runs.place]
        total += int((whole * runs.weight).sum())
        longest = max(longest, _longest(runs))
        spread += _spread_of_runs(runs, near)
    if count == 0:
        return Stats(0)
    variance = max(spread / count - (total / count - near) ** 2, 0.0)
    return Stats(count, total / count, variance**0.5, quantiles_ns(gaps, PERCENTS, count), float(longest))


def quantiles_ns(gaps: Gaps, percents: tuple[float, ...], count: int) -> tuple[float, ...]:
    """Percentiles of `count` gaps, ns: linear interpolation between order statistics of the sample written out."""
    places = [(count - 1) * (percent / 100) for percent in percents]
    ranks = sorted({rank for place in places for rank in (int(place), min(int(place) + 1, count - 1))})
    found = dict(zip(ranks, order_statistics(gaps, np.array(ranks)).tolist(), strict=True))
    return tuple(
        between(found[int(place)], found[min(int(place) + 1, count - 1)], place - int(place)) for place in places
    )


def order_statistics(gaps: Gaps, ranks: Int64) -> Int64:
    """The ranks-th smallest gaps (from 0), ns."""
    result = np.zeros(len(ranks), dtype=np.int64)
    if gaps.runs is None:
        below = 0
        for values, weights in gaps.blocks():
            reached = below + np.cumsum(weights)
            here = (ranks >= below) & (ranks < reached[-1])
            result[here] = values[np.searchsorted(reached, ranks[here], side="right")]
            below = int(reached[-1])
        return result
    edges, counts = histogram(gaps, gaps.runs)
    bins = np.searchsorted(np.cumsum(counts), ranks, side="right")
    for number in sorted(set(bins.tolist())):
        # Rounding moves a gap by less than 1 ns: the answer lies within 1 ns of the bin; 2 ns below it all is below.
        low = int(edges[number]) - 2 * FS_PER_NS
        high = int(edges[number + 1]) + 2 * FS_PER_NS
        values, weights, below = _window(gaps, gaps.runs, low, high)
        order = np.argsort(values)
        reached = below + np.cumsum(weights[order])
        here = bins == number
        result[here] = values[order][np.searchsorted(reached, ranks[here], side="right")]
    return result


def _gather(ticks: Ticks, steady: Ints, streaming: Ints, odd: Int64, fold: bool | None) -> Gaps:
    """The weighted sample: first ticks, odd gaps, equal steps as one value, and the rest, written out if few."""
    folded = np.zeros(len(ticks), dtype=bool)
    longest = max(int(odd.max(initial=0)), int(ticks.gap_ns.max(initial=0)))
    for block in blocks(len(ticks)):
        first_fs, growth = (part(ticks.rows, name, block) for name in ("first_fs", "growth_fs"))
        further = (ticks.count[block] > 1) & (streaming[block] > 0)
        equal = (ticks.count[block] == 2) | ((growth == 0) & (first_fs % FS_PER_NS == 0))
        folded[block] = further & ~equal
        steps_fs = (first_fs + np.maximum(growth, 0) * ticks.count[block])[further]
        longest = max(longest, int(steps_fs.max(initial=0)) // FS_PER_NS + 2)
    place = np.flatnonzero(folded)
    if fold is None:
        fold = int(ticks.count[place].sum()) - len(place) > max(EXPAND, 8 * len(place))
    bits = 62 - longest.bit_length()
    packed = [_packed(odd, np.ones_like(odd), bits)]
    for block in blocks(len(ticks)):
        packed += (_packed(*sample, bits) for sample in _samples(ticks, block, steady, streaming, folded, fold))
    whole = np.concatenate(packed)
    packed.clear()
    whole.sort()
    return Gaps(whole, bits, Runs(ticks, place, streaming[place].astype(np.int64)) if fold and len(place) else None)


def _samples(
    ticks: Ticks, block: slice, steady: Ints, streaming: Ints, folded: NDArray[np.bool_], fold: bool
) -> Iterator[tuple[Int64, Int64]]:
    """(gaps in ns, weights) of some rows: their first ticks, their equal steps, and, unless folded, the others."""
    count, weight = ticks.count[block], streaming[block].astype(np.int64)
    first = (steady[block] > 0) & (count > 0)
    yield ticks.gap_ns[block][first], steady[block][first].astype(np.int64)
    same = (count > 1) & (weight > 0) & ~folded[block]
    steps = count[same] - 1
    whole = part(ticks.rows, "end_ns", block)[same] - ticks.first_end_ns[block][same]
    yield whole // steps, steps * weight[same]
    place = np.flatnonzero(folded[block])
    if len(place) and not fold:
        runs = Runs(ticks, place + block.start, weight[place])
        yield runs.expand(np.zeros_like(place), runs.steps)


def _packed(values: Int64, weights: Int64, bits: int) -> Int64:
    """A value with its weight in one integer; a weight too large for its bits is split over several."""
    most = (1 << bits) - 1
    if int(weights.max(initial=0)) > most:
        owner, position = ragged(-(-weights // most))
        values, weights = values[owner], np.minimum(weights[owner] - position * most, most)
    return (values << bits) | weights


def _longest(runs: Runs) -> int:
    """The longest rounded gap of folded runs: among the steps within 2 ns of the longest unrounded one."""
    top_fs = runs.low_fs() + runs.step_fs() * (runs.steps - 1)
    skip = runs.below(int(top_fs.max()) - 2 * FS_PER_NS)
    longest = 0
    for chunk in chunks(runs.steps - skip):
        some = runs.taken(chunk)
        gap, _ = some.expand(skip[chunk], some.steps - skip[chunk])
        longest = max(longest, int(gap.max(initial=0)))
    return longest


def _spread_of_runs(runs: Runs, near: int) -> float:
    """Sum of weight * (gap - near)^2 over folded runs, ns^2."""
    steps = runs.steps.astype(np.float64)
    growth = runs.step_fs() / FS_PER_NS
    middle = runs.low_fs() / FS_PER_NS + growth * (steps - 1) / 2
    within = growth**2 * steps * (steps**2 - 1) / 12
    return float((runs.weight * (steps * (middle - near) ** 2 + within)).sum())


def _bin(duration_fs: Int64) -> Int64:
    """A bin about 0.1 % wide: exponent and ten bits of a float64's mantissa."""
    return duration_fs.astype(np.float64).view(np.int64) >> 42


def histogram(gaps: Gaps, runs: Runs) -> tuple[Int64, Int64]:
    """(edges in fs, weight in each bin) of the whole sample, folded runs by their unrounded durations."""
    low = _bin(runs.low_fs())
    high = _bin(runs.low_fs() + runs.step_fs() * (runs.steps - 1)) + 1
    first, last = int(low.min()), int(high.max()) + 1
    if len(gaps.packed):
        ends = _bin(np.array([int(gaps.packed[0]) >> gaps.bits, gaps.longest_ns()]) * FS_PER_NS)
        first, last = min(first, int(ends[0])), max(last, int(ends[1]) + 1)
    edges = np.ceil((np.arange(first, last + 2, dtype=np.int64) << 42).view(np.float64)).astype(np.int64)
    size = last - first + 1
    counts = np.zeros(size, dtype=np.int64)
    for values, weights in gaps.blocks():
        counts += np.bincount(_bin(values * FS_PER_NS) - first, weights, minlength=size).astype(np.int64)
    bins = high - low + 1
    for chunk in chunks(bins):
        some = runs.taken(chunk)
        owner, position = ragged(bins[chunk])
        at = low[chunk][owner] + position - first
        each = some.taken(owner)
        upto = np.where(position == bins[chunk][owner] - 1, each.steps, each.below(edges[at + 1]))
        since = np.where(position == 0, 0, each.below(edges[at]))
        counts += np.bincount(at, (upto - since) * each.weight, minlength=size).astype(np.int64)
    return edges, counts


def _window(gaps: Gaps, runs: Runs, low_fs: int, high_fs: int) -> tuple[Int64, Int64, int]:
    """(values, weights, weight below) of the gaps that last from low_fs to high_fs, the folded ones written out."""
    edge_ns = np.array([-(-low_fs // FS_PER_NS), high_fs // FS_PER_NS])
    begin, end = np.searchsorted(gaps.packed, np.maximum(edge_ns, 0) << gaps.bits)
    mask = (1 << gaps.bits) - 1
    values, shares = [gaps.packed[begin:end] >> gaps.bits], [gaps.packed[begin:end] & mask]
    skip, stop = runs.below(low_fs), runs.below(high_fs)
    below = int((gaps.packed[:begin] & mask).sum()) + int((skip * runs.weight).sum())
    hit = np.flatnonzero(stop > skip)
    for chunk in chunks((stop - skip)[hit]):
        which = hit[chunk]
        gap, weight = runs.taken(which).expand(skip[which], stop[which] - skip[which])
        distinct, shared = _merged(gap, weight)  # in a bin there are not many
        values.append(distinct)
        shares.append(shared)
    return np.concatenate(values), np.concatenate(shares), below


def _merged(values: Int64, weights: Int64) -> tuple[Int64, Int64]:
    """Equal values as one, in order, their weights added. (numpy's `unique` loads numpy.ma: 30 ms.)"""
    order = np.argsort(values)
    ordered = values[order]
    heads = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return ordered[heads], np.add.reduceat(weights[order], heads)
