"""When tokens came: of one request, and of a whole run, read off the decode clock."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchsim.metrics.ticks import Ticks, tick_ends_ns, ticks_of
from batchsim.records import NEVER, Records, Status

Int64 = NDArray[np.int64]


def token_times_ns(records: Records, index: int) -> Int64:
    """The time of every token of one request, ns: the first at first_token_ns, so TTFT + gaps = E2E.

    ValueError where the records do not tell: a request that was preempted, or that rested, and whose first token after
    that came at a step in which nobody decoded.
    """
    requests, spans = records.requests, records.spans
    emitted = int(requests.emitted_tokens[index])
    if emitted == 0:
        return np.empty(0, dtype=np.int64)
    known = [requests.first_token_ns[index : index + 1]]
    if requests.status[index] == Status.COMPLETED:
        known.append(requests.finished_ns[index : index + 1])
    ticks = ticks_of(records.iterations, records.replicas)
    for place in np.flatnonzero(spans.index == index).tolist():
        base = int(ticks.base[spans.replica[place]])
        numbers = np.arange(spans.from_tick[place], spans.to_tick[place] + 1) + base
        known.append(tick_ends_ns(ticks, numbers))
    times = np.unique(np.concatenate(known))
    if len(times) != emitted:
        raise ValueError(f"request {records.workload.id_of(index)}: the records tell {len(times)} of {emitted} tokens")
    return times


def tokens_between(records: Records, start_ns: int, end_ns: int) -> int:
    """Output tokens that came after start_ns and not after end_ns (a step's tokens come at its end)."""
    requests = records.requests

    def inside(times: Int64) -> int:
        return int(np.count_nonzero((times > start_ns) & (times <= end_ns)))

    total = inside(requests.first_token_ns[requests.first_token_ns != NEVER])
    total += inside(odd_token_ends_ns(records))
    ticks = ticks_of(records.iterations, records.replicas)
    first_inside = (ticks.count > 0) & (ticks.first_end_ns > start_ns) & (ticks.first_end_ns <= end_ns)
    total += int(ticks.rows.steady_seqs[first_inside].sum())
    further = steps_ended(ticks, end_ns) - steps_ended(ticks, start_ns)
    return total + int((further * ticks.rows.streaming_seqs).sum())


def steps_ended(ticks: Ticks, at_ns: int) -> Int64:
    """How many further ticks (the second to the last) of each row had ended at at_ns, that instant included."""
    count = np.where(ticks.rows.end_ns <= at_ns, np.maximum(ticks.count - 1, 0), 0)
    cut = (ticks.first_end_ns <= at_ns) & (ticks.rows.end_ns > at_ns)  # at most one row a replica runs at any instant
    for place in np.flatnonzero(cut & (ticks.count > 1)).tolist():
        steps = np.arange(2, int(ticks.count[place]) + 1) + int(ticks.before[place])
        count[place] = np.count_nonzero(tick_ends_ns(ticks, steps) <= at_ns)
    return count


def odd_token_ends_ns(records: Records) -> Int64:
    """Ends of the steps that gave a request a token after an odd gap, as far as the records tell.

    A span's sequence had a token at the end of the tick before the span; where that is neither its first token nor the
    last of an earlier span, it came after an odd gap. A completed request may also end with one.
    """
    requests, spans = records.requests, records.spans
    ticks = ticks_of(records.iterations, records.replicas)
    base = ticks.base[spans.replica]
    opened = tick_ends_ns(ticks, base + spans.from_tick)
    closed = tick_ends_ns(ticks, base + spans.to_tick)
    last = requests.first_token_ns.copy()
    np.maximum.at(last, spans.index, closed)
    ended = (requests.status == Status.COMPLETED) & (requests.finished_ns > last)
    order = np.lexsort((opened, spans.index))
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (spans.index[order][1:] == spans.index[order][:-1]) & (opened[order][1:] == closed[order][:-1])
    odd = ~same & (opened[order] != requests.first_token_ns[spans.index[order]])
    return np.concatenate([opened[order][odd], requests.finished_ns[ended]])
