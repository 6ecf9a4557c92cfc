"""Collects what happens in a run, a row at a time, and hands it over as columns (`records`)."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from batchsim.records import NEVER, Evictions, Int64, Iterations, Requests, Spans, Status
from batchsim.request import Request
from batchsim.workload.columns import Workload

_REQUEST_COLUMNS = (
    "index", "status", "replica", "arrival_ns", "scheduled_ns", "admitted_ns", "first_token_ns", "finished_ns",
    "emitted_tokens", "preemptions", "recomputed_tokens", "prefix_hit_tokens", "resume_hit_tokens", "waited_ns", "ran_ns",
    "odd_gap_ns",
)  # fmt: skip
_ITERATION_COLUMNS = tuple(Iterations.__dataclass_fields__)


class Recorder:
    """One a run; rows are flat in an array of integers until the run is over."""

    def __init__(self, *, log: bool = False) -> None:
        self.reasons: dict[int, str] = {}
        self.steps: list[dict[str, Any]] | None = [] if log else None
        self.evictions = array("q")  # index, evicted_ns, resumed_ns, …
        self._requests = array("q")
        self._iterations = array("q")
        self.iteration = self._iterations.extend  # one row, in the order of Iterations' fields

    def close(self, request: Request, status: Status, replica: int, finished_ns: int = NEVER) -> None:
        """The request's last word."""
        self._requests.extend(
            (
                request.index, status, replica, request.arrival_ns, request.scheduled_ns, request.admitted_ns,
                request.first_token_ns, finished_ns, request.emitted_tokens, request.preemptions, request.recomputed_tokens,
                request.prefix_hit_tokens, request.resume_hit_tokens, request.waited_ns, request.ran_ns, request.odd_gap_ns,
            )
        )  # fmt: skip

    def requests(self, workload: Workload) -> Requests:
        """The requests' rows in file order; those never closed were not sent."""
        rows = np.frombuffer(self._requests, dtype=np.int64).reshape(-1, len(_REQUEST_COLUMNS))
        count = len(workload)
        columns: dict[str, Any] = {}
        for place, name in enumerate(_REQUEST_COLUMNS):
            if name == "index":
                continue
            start = Status.UNSENT if name == "status" else NEVER if name.endswith("_ns") else 0
            column = np.full(count, start, dtype=np.int8 if name == "status" else np.int64)
            column[rows[:, 0]] = rows[:, place]
            columns[name] = column
        unsent = columns["status"] == Status.UNSENT
        for name in ("waited_ns", "ran_ns", "odd_gap_ns"):
            columns[name][unsent] = 0
        columns["scheduled_ns"][unsent] = workload.arrival_ns[unsent]
        return Requests(
            prompt_tokens=workload.prompt_tokens, output_tokens=workload.output_tokens, reasons=self.reasons, **columns
        )

    def iterations(self) -> Iterations:
        """The iterations' rows, by replica and time."""
        rows = np.frombuffer(self._iterations, dtype=np.int64).reshape(-1, len(_ITERATION_COLUMNS))
        if len(rows) and rows[:, 0].any():
            rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return Iterations(*(np.ascontiguousarray(rows[:, place]) for place in range(len(_ITERATION_COLUMNS))))


def spans(parts: list[tuple[int, array[int], array[int]]]) -> Spans:
    """The spans and odd gaps of each replica's group: (replica, spans, odd gaps)."""
    rows = [_table(flat) for _, flat, _ in parts]
    gaps = _stack([_table(flat) for _, _, flat in parts])
    table = _stack(rows)
    return Spans(
        index=np.ascontiguousarray(table[:, 0]),
        replica=np.repeat(np.array([number for number, _, _ in parts], dtype=np.int64), [len(part) for part in rows]),
        from_tick=np.ascontiguousarray(table[:, 1]),
        to_tick=np.ascontiguousarray(table[:, 2]),
        odd_gaps_ns=np.ascontiguousarray(gaps[:, 0]),
        odd_index=np.ascontiguousarray(gaps[:, 1]),
        odd_end_ns=np.ascontiguousarray(gaps[:, 2]),
    )


def evictions(flat: array[int]) -> Evictions:
    """The preemptions of a run."""
    return Evictions(*(np.ascontiguousarray(column) for column in _table(flat).T))


def _table(flat: array[int]) -> Int64:
    return np.frombuffer(flat, dtype=np.int64).reshape(-1, 3)


def _stack(tables: list[Int64]) -> Int64:
    return np.concatenate(tables) if tables else np.empty((0, 3), dtype=np.int64)
