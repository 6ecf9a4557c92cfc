"""trace.json: a run as Chrome trace events, for ui.perfetto.dev. A process a replica: its steps, requests and counters.

A run of equal steps is one slice. Requests are nested asynchronous slices, a request around the states it went through.
Times are microseconds with three decimals: whole nanoseconds, exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from batchsim.compact import Int64, part
from batchsim.errors import InvalidInput, Problem
from batchsim.metrics.latency import submitted
from batchsim.metrics.ticks import blocks
from batchsim.records import NEVER, Evictions, Records, Status
from batchsim.report.files import write_atomically

MAX_EVENTS = 1_000_000
"""A trace holds at most about so many events: some 150 MB, as much as a browser's memory takes easily."""
_STEP_EVENTS, _REQUEST_EVENTS = 4, 8  # a slice and three counters; a request and three states, begun and ended
_SHAPE = (
    "repeats", "prefill_tokens", "decode_seqs", "context_tokens", "padded_tokens", "running", "waiting",
    "kv_blocks_used", "preempted",
)  # fmt: skip
_COUNTERS = ("running", "waiting", "KV blocks")
Queue = tuple[Int64, Int64]
"""(times, requests waiting from each on)."""
NOBODY: Queue = (np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a run to write, seconds of the simulation's clock."""

    start_s: float
    end_s: float

    @classmethod
    def parse(cls, text: str) -> Window:
        """`10:20`; an end left out is the run's. InvalidInput for anything else."""
        start, colon, end = text.partition(":")
        try:
            window = cls(float(start or 0), float(end) if end.strip() else math.inf)
        except ValueError:
            colon = ""
        if not colon or not 0 <= window.start_s < window.end_s:
            raise InvalidInput([Problem("--trace-window", "must be START:END in seconds, such as 10:20", text)])
        return window


def write_trace(path: Path, records: Records, window: Window | None = None) -> tuple[Path, str | None]:
    """Writes trace.json; the second value says, where not all that was asked for fits, what was written."""
    asked = window or Window(0.0, math.inf)
    run_s = records.end_ns / 1e9
    if asked.start_s > run_s:
        rule = f"begins after the run's end at {run_s:.3f} s"
        raise InvalidInput([Problem("--trace-window", rule, f"{asked.start_s:g}:{asked.end_s:g}")])
    start_ns = round(asked.start_s * 1e9)
    asked_ns = min(records.end_ns + 1, round(min(asked.end_s, 1e9) * 1e9))
    end_ns = _end_that_fits(records, start_ns, asked_ns)
    note = None
    if end_ns < asked_ns:
        wanted_s = min(asked_ns, records.end_ns) / 1e9
        note = (
            f"trace.json stops at {end_ns / 1e9:.6g} s, short of {wanted_s:.6g} s: it may have about "
            f"{MAX_EVENTS:,} events; --trace-window START:END (seconds) picks another part"
        )

    def fill(stream: IO[Any]) -> None:
        stream.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        first = True
        for event in events(records, start_ns, end_ns):
            stream.write(event if first else ",\n" + event)
            first = False
        stream.write("\n]}\n")

    return write_atomically(path, fill), note


def events(records: Records, start_ns: int, end_ns: int) -> Iterator[str]:
    """Every event that overlaps [start_ns, end_ns), as JSON objects."""
    for replica in range(records.replicas):
        yield _event("M", "process_name", replica, args={"name": f"replica {replica}"})
        yield _event("M", "process_sort_index", replica, args={"sort_index": replica})
        yield _event("M", "thread_name", replica, args={"name": "steps"})
    yield from _steps(records, start_ns, end_ns)
    yield from _requests(records, start_ns, end_ns)


def _end_that_fits(records: Records, start_ns: int, end_ns: int) -> int:
    """The end of the longest part from start_ns on that has at most MAX_EVENTS events, by their usual number."""
    rows, requests = records.iterations, records.requests
    begun = np.sort(np.concatenate([
        np.repeat(_from(rows.start_ns, start_ns), _STEP_EVENTS),
        np.repeat(_from(requests.arrival_ns[submitted(requests)], start_ns), _REQUEST_EVENTS),
    ])) if _many(records) else np.empty(0, dtype=np.int64)  # fmt: skip
    return min(end_ns, int(begun[MAX_EVENTS])) if len(begun) > MAX_EVENTS else end_ns


def _many(records: Records) -> bool:
    return len(records.iterations) * _STEP_EVENTS + len(records.requests) * _REQUEST_EVENTS > MAX_EVENTS


def _from(times_ns: Int64, start_ns: int) -> Int64:
    later = times_ns[times_ns >= start_ns]
    return np.sort(later)[:MAX_EVENTS]


def _steps(records: Records, start_ns: int, end_ns: int) -> Iterator[str]:
    """A slice for each row of the iterations, and the counters where they change."""
    rows = records.iterations
    names = ("replica", "start_ns", "end_ns", "kv_blocks_first", *_SHAPE)
    last: dict[int, tuple[int, ...]] = {}
    idle_from: dict[int, int] = {}
    queues = _queues(records)
    for block in blocks(len(rows)):
        begins, ends = part(rows, "start_ns", block), part(rows, "end_ns", block)
        inside = np.flatnonzero((ends > start_ns) & (begins < end_ns))
        columns = [part(rows, name, block)[inside].tolist() for name in names]
        for replica, begin, end, blocks_first, *shape in zip(*columns, strict=True):
            fields = dict(zip(_SHAPE, shape, strict=True))
            if (idle_ns := idle_from.get(replica, start_ns)) < begin:
                yield from _idle(replica, idle_ns, begin, queues, last)
            yield _event("X", _label(fields), replica, begin, dur=_us(end - begin), args=fields)
            standing = (fields["running"], fields["waiting"])
            yield from _counters(replica, begin, (*standing, blocks_first), last)
            if fields["repeats"] > 1:
                yield from _counters(replica, end, (*standing, fields["kv_blocks_used"]), last)
            idle_from[replica] = end
    for replica in range(records.replicas):
        yield from _idle(replica, idle_from.get(replica, start_ns), min(end_ns, records.end_ns + 1), queues, last)


def _label(fields: dict[str, int]) -> str:
    """What a step does, in a few words: `prefill 512 + decode 12`, `decode 12 × 40 steps`."""
    parts = [f"prefill {fields['prefill_tokens']}"] if fields["prefill_tokens"] else []
    parts += [f"decode {fields['decode_seqs']}"] if fields["decode_seqs"] else []
    repeats = f" × {fields['repeats']} steps" if fields["repeats"] > 1 else ""
    return (" + ".join(parts) or "evict") + repeats


def _idle(
    replica: int, from_ns: int, to_ns: int, queues: dict[int, Queue], last: dict[int, tuple[int, ...]]
) -> Iterator[str]:
    """The counters while a replica is in no step: nobody runs, and whoever waits is counted as they come and go."""
    times_ns, waiting = queues.get(replica, NOBODY)
    first, end = np.searchsorted(times_ns, [from_ns, to_ns], side="right").tolist()
    now = int(waiting[first - 1]) if first else 0
    yield from _counters(replica, from_ns, (0, now, 0), last)
    end -= bool(end > first and times_ns[end - 1] == to_ns)  # the step that begins then has its own count
    for at_ns, many in zip(times_ns[first:end].tolist(), waiting[first:end].tolist(), strict=True):
        yield from _counters(replica, at_ns, (0, many, 0), last)


def _queues(records: Records) -> dict[int, Queue]:
    """By replica when the number of requests that wait there changes, and to what; none with prefill and decode apart,
    where a request waits at two."""
    requests, evictions = records.requests, records.evictions
    if records.handoffs is not None:
        return {}
    left = np.where(requests.finished_ns == NEVER, records.end_ns, requests.finished_ns)
    gone = np.isin(requests.status, (Status.REJECTED, Status.CANCELLED))
    left = np.where(gone, requests.arrival_ns + requests.waited_ns + requests.ran_ns, left)
    sent = np.flatnonzero(submitted(requests))
    until = np.where(requests.admitted_ns == NEVER, left, requests.admitted_ns)
    back = np.where(evictions.resumed_ns == NEVER, left[evictions.index], evictions.resumed_ns)
    begin = np.concatenate([requests.arrival_ns[sent], evictions.evicted_ns])
    end = np.concatenate([until[sent], back])
    place = requests.replica[np.concatenate([sent, evictions.index])]
    return {number: _steps_of(begin[place == number], end[place == number]) for number in range(records.replicas)}


def _steps_of(begin: Int64, end: Int64) -> Queue:
    times, place = np.unique(np.concatenate([begin, end]), return_inverse=True)
    change = np.bincount(place, np.repeat([1, -1], len(begin)), minlength=len(times))
    return times, np.cumsum(change).astype(np.int64)


def _counters(replica: int, at_ns: int, values: tuple[int, ...], last: dict[int, tuple[int, ...]]) -> Iterator[str]:
    before = last.get(replica, (-1,) * len(values))
    for name, value, old in zip(_COUNTERS, values, before, strict=True):
        if value != old:
            yield _event("C", name, replica, at_ns, args={name: value})
    last[replica] = values


def _requests(records: Records, start_ns: int, end_ns: int) -> Iterator[str]:
    """Each request as a slice around its states."""
    requests, workload = records.requests, records.workload
    last = np.where(requests.finished_ns == NEVER, records.end_ns, requests.finished_ns)
    pick = np.flatnonzero(submitted(requests) & (last >= start_ns) & (requests.arrival_ns < end_ns))
    evictions = _by_request(records.evictions, pick)
    names = (
        "replica", "arrival_ns", "admitted_ns", "first_token_ns", "prompt_tokens", "emitted_tokens", "preemptions",
        "waited_ns", "ran_ns",
    )  # fmt: skip
    columns = [part(requests, name, pick).tolist() for name in names]
    rows = zip(pick.tolist(), last[pick].tolist(), requests.status[pick].tolist(), *columns, strict=True)
    for index, left, code, replica, arrival, admitted, first, prompt, emitted, preempted, waited, ran in rows:
        status = Status(code)
        if status in (Status.REJECTED, Status.CANCELLED):  # at the door, or after it had waited and run
            left = arrival + waited + ran
        args: dict[str, Any] = {
            "status": status.name.lower(), "tenant": workload.tenants[int(workload.tenant[index])],
            "class": workload.classes[int(workload.traffic_class[index])], "prompt_tokens": prompt,
            "output_tokens": emitted, "preemptions": preempted,
        }  # fmt: skip
        if index in requests.reasons:
            args["reason"] = requests.reasons[index]
        name = workload.id_of(index)
        mark = {"cat": "request", "id2": {"local": str(index)}}
        yield _event("b", name, replica, arrival, **mark, args=args)
        for state, begin, end in states(arrival, admitted, first, left, evictions.get(index, [])):
            yield _event("b", state, replica, begin, **mark)
            yield _event("e", state, replica, end, **mark)
        yield _event("e", name, replica, left, **mark)


def states(
    arrival: int, admitted: int, first: int, left: int, evictions: list[tuple[int, int]]
) -> Iterator[tuple[str, int, int]]:
    """(queued, prefill, decode or evicted; from; to), ns, in order and without gaps, of a request that left at `left`.

    evictions: (lost its seat, had one again or NEVER), in order. What comes after the return is called as before it.
    """
    bounds = [arrival, left if admitted == NEVER else admitted, left if first == NEVER else first, left]
    for state, (begin, end) in zip(("queued", "prefill", "decode"), pairwise(bounds), strict=True):
        at = begin
        for lost, back in evictions:
            until = left if back == NEVER else back
            if state == "queued" or until <= begin or lost >= end:
                continue
            if at < lost:
                yield state, at, lost
            yield "evicted", max(lost, at), min(until, end)
            at = min(until, end)
        if at < end:
            yield state, at, end


def _by_request(evictions: Evictions, wanted: Int64) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    mine = np.flatnonzero(np.isin(evictions.index, wanted))
    order = mine[np.argsort(evictions.evicted_ns[mine], kind="stable")]
    rows = (evictions.index[order], evictions.evicted_ns[order], evictions.resumed_ns[order])
    for index, lost, back in zip(*(column.tolist() for column in rows), strict=True):
        found.setdefault(index, []).append((lost, back))
    return found


def _us(ns: int) -> float:
    """Microseconds; below a century a float still holds the nanosecond."""
    return ns / 1000


def _event(phase: str, name: str, replica: int, at_ns: int = 0, **more: Any) -> str:
    event = {"ph": phase, "name": name, "pid": replica + 1, "tid": replica + 1, "ts": _us(at_ns)} | more
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)
