"""Who is turned away: arrivals at a full queue, and those that nobody admitted in time."""

from __future__ import annotations

from collections import deque
from typing import Annotated

from pydantic import Field

from batchsim.batch import Batch
from batchsim.records import NEVER
from batchsim.request import Request
from batchsim.scheduler import ONCE, STEADY, Until, Verdict

MaxQueue = Annotated[
    int | None, Field(ge=1, description="most requests that wait; an arrival beyond them is rejected; absent: no limit")
]
QueueTimeoutMs = Annotated[
    float | None,
    Field(gt=0, allow_inf_nan=False, description="longest wait for a first seat, then rejected; absent: for ever"),
]

NS_PER_MS = 1_000_000


class Door:
    """Keeps `max_queue` and the timeout. `key`: what the scenario calls the limit of the queue."""

    def __init__(self, max_queue: int | None, timeout_ms: float | None, *, key: str = "max_queue") -> None:
        self.max_queue = max_queue
        self.timeout_ms = timeout_ms
        self._timeout_ns = None if timeout_ms is None else max(1, round(timeout_ms * NS_PER_MS))
        self._key = key
        self._due: deque[tuple[int, Request]] = deque()  # by time, which is by arrival

    @property
    def limited(self) -> bool:
        """Whether anybody is ever turned away."""
        return self.max_queue is not None or self.timeout_ms is not None

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reason to turn an arrival away; one that may stay is watched from now on."""
        if self.max_queue is not None and len(b.waiting) >= self.max_queue:
            return f"queue is full: {len(b.waiting)} waiting, {self._key} {self.max_queue}"
        if self._timeout_ns is not None:
            self._due.append((b.now_ns + self._timeout_ns, request))
        return None

    def overdue(self, b: Batch) -> list[Request]:
        """Those whose time is up now, by arrival; each is named once."""
        found: list[Request] = []
        while self._due and self._due[0][0] <= b.now_ns:
            request = self._due.popleft()[1]
            if _never_admitted(request, b):
                found.append(request)
        return found

    def expire(self, b: Batch) -> None:
        """Reject those whose time is up."""
        for request in self.overdue(b):
            b.reject(request, f"not admitted within queue_timeout_ms {self.timeout_ms:g}")

    def next_ns(self, b: Batch) -> int | None:
        """When the next one's time is up."""
        while self._due and not _never_admitted(self._due[0][1], b):
            self._due.popleft()
        return self._due[0][0] if self._due else None

    def watch(self, verdict: Verdict | Until, b: Batch) -> Verdict | Until:
        """The verdict, cut at the next timeout."""
        if self._timeout_ns is None or verdict is ONCE:
            return verdict
        next_ns = self.next_ns(b)
        if next_ns is None:  # an arrival brings the next timeout with it
            return verdict._replace(verdict=STEADY) if isinstance(verdict, Until) else STEADY
        if isinstance(verdict, Until):
            return verdict._replace(ns=next_ns if verdict.ns is None else min(next_ns, verdict.ns))
        return Until(verdict, ns=next_ns)


def _never_admitted(request: Request, b: Batch) -> bool:
    return request.admitted_ns == NEVER and request.index in b.waiting
