"""Tenants take turns: one request of each, whatever it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import Until, Verdict
from batchsim.schedulers._continuous import (
    Budget,
    Caching,
    Chunked,
    MaxOvertakes,
    Reserve,
    Seats,
    SkipBlocked,
    Stepper,
    newest,
)
from batchsim.schedulers._door import MaxQueue, QueueTimeoutMs
from batchsim.schedulers._tenants import Lines, fill


@dataclass
class RoundRobin:
    """Continuous batching in which tenants take turns, one request each, whatever it costs."""

    max_num_seqs: Seats = 256
    max_num_batched_tokens: Budget = 8192
    enable_chunked_prefill: Chunked = True
    enable_prefix_caching: Caching = False
    reserve: Reserve = "none"
    skip_blocked: SkipBlocked = False
    max_overtakes: MaxOvertakes = 16
    max_queue: MaxQueue = None
    queue_timeout_ms: QueueTimeoutMs = None

    sized: ClassVar[tuple[str, str]] = ("max_num_seqs", "max_num_batched_tokens")

    def __post_init__(self) -> None:
        self._stepper = Stepper.of(self)
        self._lines = Lines()
        self._last = -1  # whose turn it was

    @property
    def caching(self) -> bool:
        """Whether the blocks remember their contents."""
        return self.enable_prefix_caching

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reason to reject an arrival."""
        return self._stepper.refuse(request, b)

    def plan(self, b: Batch) -> Verdict | Until:
        """Running requests, then the first of each tenant's line in turn."""
        stepper, lines = self._stepper, self._lines
        stepper.door.expire(b)
        lines.look(b)
        budget = stepper.go_on(b, newest)
        if b.step.preempted:
            lines.put_back(b)
        elif b.queue:
            fill(stepper, lines, b, budget, self._next, self._took)
        return stepper.verdict(b)

    def _next(self, tenants: list[int]) -> int:
        """The tenant after the last one, in the order in which the workload names them."""
        return min(tenants, key=lambda tenant: (tenant <= self._last, tenant))

    def _took(self, request: Request) -> None:
        self._last = request.tenant
