"""Multi-level feedback with skip-join, preemptive, as FastServe (Wu et al., 2023): the least served go first."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil
from typing import Annotated, ClassVar

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import ONCE, STEADY, Until, Verdict
from batchsim.schedulers._continuous import Budget, Caching, Chunked, Seats, Stepper
from batchsim.schedulers._door import MaxQueue, QueueTimeoutMs


@dataclass
class Mlfq:
    """Continuous batching in which a request sinks a level with each quantum of service; lower levels rest, KV kept."""

    quanta: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(min_length=1, description="service on each level, output tokens; the level below has no end"),
    ] = field(default_factory=lambda: [16, 64, 256])
    prompt_weight: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="output tokens that a prompt token counts for; a prompt joins the first level that holds it",
        ),
    ] = 1 / 128
    promote_after_ms: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="so long a wait or rest lifts to the first level; absent: never"),
    ] = None
    max_num_seqs: Seats = 256
    max_num_batched_tokens: Budget = 8192
    enable_chunked_prefill: Chunked = True
    enable_prefix_caching: Caching = False
    max_queue: MaxQueue = None
    queue_timeout_ms: QueueTimeoutMs = None

    sized: ClassVar[tuple[str, str]] = ("max_num_seqs", "max_num_batched_tokens")

    def __post_init__(self) -> None:
        self._stepper = Stepper(self)
        self._ends = [list(accumulate(self.quanta[start:])) for start in range(len(self.quanta))]  # by level joined
        self._promote_ns = None if self.promote_after_ms is None else max(1, round(self.promote_after_ms * 1e6))
        self._promoted: dict[int, int] = {}  # output tokens at the promotion
        self._rests: dict[int, int] = {}  # since when it has not been chosen

    @property
    def caching(self) -> bool:
        """Whether the blocks remember their contents."""
        return self.enable_prefix_caching

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reason to reject an arrival."""
        return self._stepper.refuse(request, b)

    def order(self, request: Request) -> int:
        """The queue is kept by level."""
        return self.level(request)

    # -- levels ------------------------------------------------------------

    def level(self, request: Request) -> int:
        """0 is served first; it depends on the service that the request has had, and on nothing else."""
        start, service = self._service(request)
        return start + bisect_right(self._ends[start], service) if start < len(self._ends) else start

    def _service(self, request: Request) -> tuple[int, int]:
        """(level joined, service had since): the prompt counts from the start, so that a long one skips levels."""
        since = self._promoted.get(request.index)
        if since is not None:
            return 0, request.emitted_tokens - since
        prompt = ceil(request.prompt_tokens * self.prompt_weight)
        start = next((level for level, quantum in enumerate(self.quanta) if quantum > prompt), len(self.quanta))
        return start, prompt + request.emitted_tokens

    def _tokens_to_next_level(self, request: Request) -> int | None:
        start, service = self._service(request)
        ends = self._ends[start] if start < len(self._ends) else []
        place = bisect_right(ends, service)
        return ends[place] - service if place < len(ends) else None

    def _key(self, request: Request) -> tuple[int, int, int]:
        return self.level(request), request.arrival_ns, request.index

    def _lowest(self, b: Batch) -> Request:
        return max(b.seats.values(), key=self._key)

    # -- a step ------------------------------------------------------------

    def plan(self, b: Batch) -> Verdict | Until:
        """The best `max_num_seqs` of those who run and wait; the rest of the running keep their KV and rest."""
        stepper = self._stepper
        stepper.door.expire(b)
        if self._promote_ns is not None:
            self._promote(b, self._promote_ns)
        if len(b.seats) + len(b.queue) > stepper.seats:
            return self._choose(b)
        self._rests.clear()
        budget = stepper.go_on(b, self._lowest)
        if b.queue and not b.step.preempted:
            self._admit(b, len(b.queue), budget)
        return self._holds(b) if b.queue else stepper.verdict(b, listens=True)

    def _choose(self, b: Batch) -> Verdict | Until:
        """More are here than may compute: the best run, whether they held a seat before or not."""
        stepper = self._stepper
        running = sorted(b.seats.values(), key=self._key)
        chosen, waiting = self._best(b, running)
        decoders = [request for request in running[:chosen] if request.index not in b.prefilling]
        while not self._decode(b, decoders):
            loser = self._lowest(b)
            b.preempt(loser)
            decoders = [request for request in decoders if request is not loser]
        budget = stepper.budget - len(decoders)
        for request in running[:chosen]:
            if request.index in b.prefilling:
                budget = stepper.chunk(b, request, budget, self._lowest)
        if not b.step.preempted:
            admitted, budget = self._admit(b, waiting, budget)
            self._lend_seats(b, running[chosen:], waiting - admitted, budget)
        self._note_who_rests(b)
        return self._holds(b)

    def _best(self, b: Batch, running: list[Request]) -> tuple[int, int]:
        """How many of the running, best first, and of the queue, from its head, are among the best."""
        chosen = waiting = 0
        queue = iter(b.waiting.values())
        head = next(queue, None)
        while chosen + waiting < self._stepper.seats:
            if head is not None and (chosen == len(running) or self._key(head) < self._key(running[chosen])):
                waiting += 1
                head = next(queue, None)
            elif chosen < len(running):
                chosen += 1
            else:
                break
        return chosen, waiting

    def _decode(self, b: Batch, decoders: list[Request]) -> bool:
        return b.decode() if len(decoders) == b.decoding else b.decode(decoders)

    def _admit(self, b: Batch, count: int, budget: int) -> tuple[int, int]:
        """Admit up to `count` from the head, evicting requests of lower levels for their blocks; (how many, budget)."""
        stepper = self._stepper
        for admitted in range(count):
            head = b.head()
            if head is None or budget <= 0 or not stepper.tokens_for(b, head, budget):
                return admitted, budget
            for victim in self._victims(b, head):
                budget += b.preempt(victim)
            taken = stepper.admit(b, head, budget)
            if not taken:
                return admitted, budget
            budget -= taken
        return count, budget

    def _victims(self, b: Batch, head: Request) -> list[Request]:
        """Requests of lower levels, the lowest first, whose blocks `head` needs; none where even all are too few."""
        short = self._stepper.room_for(b, head) - b.free
        if short <= 0:
            return []
        level, victims = self.level(head), []
        for request in sorted(b.seats.values(), key=self._key, reverse=True):
            if self.level(request) <= level:
                return []
            victims.append(request)
            short -= b.blocks_of(request)
            if short <= 0:
                return victims
        return []

    def _lend_seats(self, b: Batch, others: list[Request], seats: int, budget: int) -> None:
        """Where the queue could not take its seats, the next of the running do; evicting only if nobody computes."""
        for request in others:
            if seats <= 0 or budget <= 0:
                return
            if request.index not in b.seats:
                continue
            tokens = min(request.remaining_tokens, budget)
            if b.extend(request, tokens):
                seats, budget = seats - 1, budget - tokens
            elif b.step.empty:
                seats, budget = seats - 1, self._stepper.chunk(b, request, budget, self._lowest)

    # -- resting, and how long a choice holds ------------------------------------------------------------

    def _note_who_rests(self, b: Batch) -> None:
        step = b.step
        computing = step.chunks.keys() | step.named.keys()
        if step.tick:
            computing |= b.seats.keys() - b.prefilling.keys()
        self._rests = {index: self._rests.get(index, b.now_ns) for index in b.seats if index not in computing}

    def _promote(self, b: Batch, after_ns: int) -> None:
        """Lift those who waited or rested too long."""
        for request in [r for r in b.waiting.values() if r.queued_ns + after_ns <= b.now_ns and self.level(r)]:
            self._promoted[request.index] = request.emitted_tokens
            b.reorder(request)
        for index, since_ns in self._rests.items():
            if since_ns + after_ns <= b.now_ns and index in b.seats and self.level(b.seats[index]):
                self._promoted[index] = b.seats[index].emitted_tokens

    def _next_promotion_ns(self, b: Batch) -> int | None:
        if self._promote_ns is None:
            return None
        times = [r.queued_ns for r in b.waiting.values() if self.level(r)]
        times += [
            since_ns for index, since_ns in self._rests.items() if index in b.seats and self.level(b.seats[index])
        ]
        return min(times) + self._promote_ns if times else None

    def _holds(self, b: Batch) -> Verdict | Until:
        """Until one of those who decode sinks a level, or one of the others is lifted."""
        step = b.step
        if step.chunks or step.preempted or not (step.tick or step.named):
            return ONCE
        able = b.seats.values() if step.tick else step.named.values()
        ticks = [left for request in able if (left := self._tokens_to_next_level(request)) is not None]
        until = Until(STEADY, min(ticks, default=None), self._next_promotion_ns(b))
        return self._stepper.door.watch(until, b)
