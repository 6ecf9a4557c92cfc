"""Least slack first: who must start soonest to meet the TTFT and TPOT targets; what can meet none waits behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from batchsim.batch import Batch
from batchsim.records import NEVER
from batchsim.request import Request
from batchsim.scheduler import ONCE, STEADY, Until, Verdict
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

NS_PER_MS = 1_000_000
FAR_NS = 1 << 62


@dataclass
class Deadline:
    """Continuous batching by least slack to the TTFT and TPOT targets; a request that missed its TTFT comes last."""

    ttft_ms: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="target for the first token, after arrival")
    ] = 500.0
    tpot_ms: Annotated[float, Field(gt=0, allow_inf_nan=False, description="target pace of the further tokens")] = 50.0
    prefill_token_ms: Annotated[
        float,
        Field(
            ge=0, allow_inf_nan=False, description="time that a prompt token is taken to need; 0: deadlines alone count"
        ),
    ] = 0.0
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
        self._ttft_ns = round(self.ttft_ms * NS_PER_MS)
        self._tpot_ns = round(self.tpot_ms * NS_PER_MS)
        self._token_ns = round(self.prefill_token_ms * NS_PER_MS)
        self._late: set[int] = set()  # waiting, and past the latest start for their TTFT

    @property
    def caching(self) -> bool:
        """Whether the blocks remember their contents."""
        return self.enable_prefix_caching

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reason to reject an arrival."""
        return self._stepper.refuse(request, b)

    def order(self, request: Request) -> tuple[bool, int]:
        """Least slack first, the late behind everyone by arrival. Time shrinks every slack alike, so the order
        stays.
        """
        if request.index in self._late:
            return True, request.arrival_ns
        return False, self._start_by_ns(request)

    def plan(self, b: Batch) -> Verdict | Until:
        """Running requests, then the queue by slack; no prompts while a decode behind its pace is worse off."""
        stepper = self._stepper
        stepper.door.expire(b)
        if b.queue:
            self._sort_out_the_late(b)
        if (b.queue or b.prefilling) and self._decodes_come_first(b):
            while not b.decode():
                b.preempt(b.newest())
            return ONCE
        budget = stepper.go_on(b, newest)
        left = b.queue and not b.step.preempted and stepper.fill(b, budget)
        verdict = stepper.verdict(b)
        head = b.head()
        if verdict is ONCE or not left or head is None or head.index in self._late or head.first_token_ns != NEVER:
            return verdict
        late_ns = self._start_by_ns(head) + 1  # then another is first, and may fit
        if isinstance(verdict, Until) and verdict.ns is not None:
            late_ns = min(late_ns, verdict.ns)
        return Until(STEADY, ns=late_ns)

    def _start_by_ns(self, request: Request) -> int:
        """The latest time to start the prompt for the next token to come in time."""
        if request.first_token_ns == NEVER:
            return request.arrival_ns + self._ttft_ns - request.prompt_tokens * self._token_ns
        return self._next_due_ns(request) - request.known_tokens * self._token_ns

    def _next_due_ns(self, request: Request) -> int:
        """When the next token of a request that has streamed some is due, at the target pace from the first one on."""
        return request.first_token_ns + request.emitted_tokens * self._tpot_ns

    def _sort_out_the_late(self, b: Batch) -> None:
        """Those who can no longer make their TTFT go behind the others; they stand at the head, beside evicted ones."""
        found: list[Request] = []
        for request in b.waiting.values():
            if request.first_token_ns != NEVER:
                continue
            if request.index in self._late or self._start_by_ns(request) >= b.now_ns:
                break
            found.append(request)
        for request in found:
            self._late.add(request.index)
            b.reorder(request)

    def _decodes_come_first(self, b: Batch) -> bool:
        """Whether a decode that can still be good is behind its pace, and has less slack than every prompt."""
        prompts = [self._start_by_ns(r) for r in b.prefilling.values() if r.index not in self._late]
        head = b.head()
        if head is not None and head.index not in self._late:
            prompts.append(self._start_by_ns(head))
        limit_ns = min([b.now_ns, *prompts])
        for request in b.seats.values():
            if request.index in b.prefilling or request.first_token_ns - request.arrival_ns > self._ttft_ns:
                continue
            if self._next_due_ns(request) < limit_ns:
                return True
        return False
