"""Collects what happens in a run, a row at a time, and hands it over as columns (`records`)."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from struct import Struct
from typing import Any

import numpy as np

from batchsim.compact import Int64, Ints, Table, narrowed
from batchsim.records import NEVER, Evictions, Handoffs, Iterations, Requests, Spans, Status
from batchsim.request import Request
from batchsim.workload.columns import Workload

_REQUEST_COLUMNS = (
    "index", "status", "replica", "arrival_ns", "scheduled_ns", "admitted_ns", "first_token_ns", "finished_ns",
    "emitted_tokens", "preemptions", "recomputed_tokens", "prefix_hit_tokens", "resume_hit_tokens", "waited_ns", "ran_ns",
    "odd_gap_ns",
)  # fmt: skip
_ITERATION_COLUMNS = tuple(Iterations.__dataclass_fields__)
_BUFFER = 1 << 23
"""Bytes of rows after which they are put away in narrow columns."""
_pack_request = Struct(f"{len(_REQUEST_COLUMNS)}q").pack
pack_iteration = Struct(f"{len(_ITERATION_COLUMNS)}q").pack
"""A step or a run of equal steps as bytes: a value for each of Iterations' fields, in their order."""


class Recorder:
    """One a run; rows are flat in an array of integers until the run is over."""

    def __init__(self, *, log: bool = False) -> None:
        self.reasons: dict[int, str] = {}
        self.steps: list[dict[str, Any]] | None = [] if log else None
        self._done = Table(len(_REQUEST_COLUMNS))
        self._past = Table(len(_ITERATION_COLUMNS))
        self._requests = bytearray()  # packing a row at once takes a quarter of the time of array.extend
        self._iterations = bytearray()
        self.put_iteration = self._iterations.extend  # of `pack_iteration`'s bytes

    def close(self, request: Request, status: Status, replica: int, finished_ns: int = NEVER) -> None:
        """The request's last word."""
        self._requests += _pack_request(
            request.index, status, replica, request.arrival_ns, request.scheduled_ns, request.admitted_ns,
            request.first_token_ns, finished_ns, request._emitted, request.preemptions, request.recomputed_tokens,
            request.prefix_hit_tokens, request.resume_hit_tokens, request.waited_ns, request.ran_ns, request.odd_gap_ns,
        )  # fmt: skip
        if not request.index & 4095 and len(self._requests) + len(self._iterations) >= _BUFFER:
            self._put_away()

    def complete(self, replica: int, columns: Mapping[str, Int64]) -> None:
        """Requests of one replica that have all their tokens; columns that are left out are 0."""
        rows = np.zeros((len(columns["index"]), len(_REQUEST_COLUMNS)), dtype=np.int64)
        rows[:, _REQUEST_COLUMNS.index("replica")] = replica
        for name, values in columns.items():
            rows[:, _REQUEST_COLUMNS.index(name)] = values
        self._requests += rows.tobytes()
        if len(self._requests) + len(self._iterations) >= _BUFFER:
            self._put_away()

    def _put_away(self) -> None:
        """Move the rows into narrow columns."""
        self._done.put(self._requests)
        self._requests.clear()
        self._past.put(self._iterations)
        self._iterations.clear()

    def requests(self, workload: Workload) -> Requests:
        """The requests' rows in file order; those never closed were not sent."""
        self._put_away()
        index = self._done.take(0)
        columns: dict[str, Any] = {}
        for place, name in enumerate(_REQUEST_COLUMNS[1:], start=1):
            start = Status.UNSENT if name == "status" else NEVER if name.endswith("_ns") else 0
            values = self._done.take(place)
            sent = name in ("arrival_ns", "scheduled_ns")  # others' times will be filled in
            column = np.full(len(workload), start, dtype=np.int64 if sent else values.dtype)
            column[index] = values
            columns[name] = column
        columns["status"] = columns["status"].astype(np.int8)
        unsent = columns["status"] == Status.UNSENT
        for name in ("waited_ns", "ran_ns", "odd_gap_ns"):
            columns[name][unsent] = 0
        columns["scheduled_ns"][unsent] = workload.arrival_ns[unsent]
        for name in ("arrival_ns", "scheduled_ns"):
            if np.array_equal(columns[name], workload.arrival_ns):
                columns[name] = workload.arrival_ns
        return Requests(
            prompt_tokens=workload.prompt_tokens, output_tokens=workload.output_tokens, reasons=self.reasons, **columns
        )

    def iterations(self) -> Iterations:
        """The iterations' rows, by replica and time."""
        self._put_away()
        replica = self._past.take(0)
        order: Any = np.argsort(replica, kind="stable") if replica.any() else slice(None)
        columns = [replica[order], *(self._past.take(place)[order] for place in range(1, len(_ITERATION_COLUMNS)))]
        return Iterations(*columns)


def spans(parts: list[tuple[int, bytearray, bytearray]]) -> Spans:
    """The spans and odd gaps of each replica's group: (replica, spans, odd gaps)."""
    rows = [_columns(flat) for _, flat, _ in parts]
    gaps = [_columns(flat) for _, _, flat in parts]
    replica = np.repeat(np.array([number for number, _, _ in parts]), [len(columns[0]) for columns in rows])
    index, from_tick, to_tick = (_joined([columns[place] for columns in rows]) for place in range(3))
    return Spans(
        index, narrowed(replica), from_tick, to_tick, *(_joined([c[place] for c in gaps]) for place in range(3))
    )


def evictions(parts: list[array[int]]) -> Evictions:
    """The preemptions of each replica."""
    columns = [_columns(flat) for flat in parts]
    return Evictions(*(_joined([each[place] for each in columns]).astype(np.int64) for place in range(3)))


def handoffs(flat: array[int], count: int) -> Handoffs:
    """The hand-offs of `count` requests, from rows of (index, prefill replica, four times)."""
    rows: Int64 = np.frombuffer(flat, dtype=np.int64).reshape(-1, 6)
    columns = [np.full(count, NEVER, dtype=np.int64) for _ in range(5)]
    for place, column in enumerate(columns, start=1):
        column[rows[:, 0]] = rows[:, place]
    return Handoffs(*columns)


def _columns(flat: array[int] | bytearray) -> list[Ints]:
    """The three columns of a flat array of rows, narrow."""
    table: Int64 = np.frombuffer(flat, dtype=np.int64).reshape(-1, 3)
    return [narrowed(table[:, place]) for place in range(3)]


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
