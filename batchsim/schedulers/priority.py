"""Priority with ageing: the most urgent request first, and, if wanted, a seat taken from one that is less urgent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import Express, Until, Verdict
from batchsim.schedulers._continuous import (
    Budget,
    Caching,
    Chunked,
    MaxOvertakes,
    Reserve,
    Seats,
    SkipBlocked,
    Stepper,
)
from batchsim.schedulers._door import MaxQueue, QueueTimeoutMs


@dataclass
class Priority:
    """Continuous batching by priority (lower is more urgent), with ageing and eviction of less urgent requests."""

    preemptive: Annotated[
        bool, Field(description="a waiting request takes seat and KV from running ones that are less urgent")
    ] = False
    aging_s: Annotated[
        float | None,
        Field(
            gt=0, allow_inf_nan=False, description="waiting that makes up for one step of priority; absent: no ageing"
        ),
    ] = None
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
        self._lowest = -(1 << 62)  # the least urgent priority seen: nobody of it evicts
        self._aging_ns = None if self.aging_s is None else round(self.aging_s * 1e9)

    @property
    def caching(self) -> bool:
        """Whether the blocks remember their contents."""
        return self.enable_prefix_caching

    def express(self, blocks: int) -> Express | None:
        """Only the order of the queue is its own, where nobody running can be made to go."""
        return None if self.preemptive else self._stepper.express()

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reason to reject an arrival."""
        self._lowest = max(self._lowest, request.priority)
        return self._stepper.refuse(request, b)

    def order(self, request: Request) -> int:
        """Most urgent first. Ageing at a constant rate is an order that time does not change."""
        return request.priority if self._aging_ns is None else request.priority * self._aging_ns + request.arrival_ns

    def plan(self, b: Batch) -> Verdict | Until:
        """Running requests, then the queue from the most urgent; preemptive: at the cost of the least urgent."""
        stepper = self._stepper
        stepper.door.expire(b)
        budget = stepper.go_on(b, self._least_urgent)
        if b.queue and not b.step.preempted:
            if self.preemptive:
                budget = self._make_way(b, budget)
            stepper.fill(b, budget)
        return stepper.verdict(b, listens=self.preemptive)

    def _make_way(self, b: Batch, budget: int) -> int:
        """Admit from the head while somebody less urgent runs, evicting them if need be; returns the budget."""
        stepper = self._stepper
        while budget > 0:
            head = b.head()
            if head is None or head.priority >= self._lowest or not stepper.tokens_for(b, head, budget):
                return budget
            victims = self._victims(b, head)
            if victims is None:
                return budget
            for victim in victims:
                budget += b.preempt(victim)
            taken = stepper.admit(b, head, budget)
            if not taken:
                return budget
            stepper.passing.admitted(head)
            budget -= taken
        return budget

    def _victims(self, b: Batch, head: Request) -> list[Request] | None:
        """The fewest, least urgent first, who must go for `head` to be admitted; None where that is not enough."""
        seats = len(b.seats) + 1 - self._stepper.seats
        blocks = self._stepper.room_for(b, head) - b.free
        victims: list[Request] = []
        if seats <= 0 and blocks <= 0:
            return victims
        for request in sorted(b.seats.values(), key=self._rank, reverse=True):
            if not self._outranks(head, request):
                break
            victims.append(request)
            seats -= 1
            blocks -= b.blocks_of(request)
            if seats <= 0 and blocks <= 0:
                return self._spare(b, victims, seats, blocks)
        return None

    def _spare(self, b: Batch, victims: list[Request], seats: int, blocks: int) -> list[Request]:
        """Those of the victims that are really needed: a small one before a large one may not be."""
        needed: list[Request] = []
        for request in reversed(victims):
            held = b.blocks_of(request)
            if seats + 1 <= 0 and blocks + held <= 0:
                seats, blocks = seats + 1, blocks + held
            else:
                needed.append(request)
        return needed[::-1]

    def _outranks(self, waiting: Request, running: Request) -> bool:
        """More urgent as declared, and still so with ageing: equals never swap."""
        return waiting.priority < running.priority and self.order(waiting) < self.order(running)

    def _rank(self, request: Request) -> tuple[int, int]:
        return self.order(request), request.seat

    def _least_urgent(self, b: Batch) -> Request:
        return max(b.seats.values(), key=self._rank)
