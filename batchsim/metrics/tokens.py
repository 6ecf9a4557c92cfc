"""When tokens came: of one request, and of a whole run, read off the decode clock."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchsim.metrics.ticks import Ticks, tick_ends_ns, ticks_of
from batchsim.records import NEVER, Records

Int64 = NDArray[np.int64]


def token_times_ns(records: Records, index: int) -> Int64:
    """The time of every token of one request, ns: the first at first_token_ns, so TTFT + gaps = E2E."""
    requests, spans = records.requests, records.spans
    first = int(requests.first_token_ns[index])
    known = [np.array([] if first == NEVER else [first], dtype=np.int64), spans.odd_end_ns[spans.odd_index == index]]
    ticks = ticks_of(records.iterations, records.replicas)
    for place in np.flatnonzero(spans.index == index).tolist():
        base = int(ticks.base[spans.replica[place]])
        numbers = np.arange(spans.from_tick[place] + 1, spans.to_tick[place] + 1) + base
        known.append(tick_ends_ns(ticks, numbers))
    return np.sort(np.concatenate(known))


def tokens_between(records: Records, start_ns: int, end_ns: int) -> int:
    """Output tokens that came after start_ns and not after end_ns (a step's tokens come at its end)."""
    requests = records.requests

    def inside(times: Int64) -> int:
        return int(np.count_nonzero((times > start_ns) & (times <= end_ns)))

    total = inside(requests.first_token_ns[requests.first_token_ns != NEVER])
    total += inside(records.spans.odd_end_ns)
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
