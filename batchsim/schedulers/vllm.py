"""vLLM's V1 scheduler, release 0.32: continuous batching with chunked prefill and preemption by recompute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import DEAF, FLOW, ONCE, STEADY, Express, Verdict


@dataclass
class Vllm:
    """vLLM V1: running requests first, in order of admission, then waiting ones, within one token budget a step."""

    max_num_seqs: Annotated[int, Field(ge=1, description="seats: requests that run at once")] = 256
    max_num_batched_tokens: Annotated[int, Field(ge=1, description="token budget of a step")] = 8192
    max_num_scheduled_tokens: Annotated[
        int | None, Field(ge=1, description="token budget of a step where it is less than max_num_batched_tokens")
    ] = None
    max_num_active_seqs: Annotated[int | None, Field(ge=1, description="seats, where fewer than max_num_seqs")] = None
    policy: Annotated[
        Literal["fcfs", "priority"], Field(description="order of the queue; under priority, lower is more urgent")
    ] = "fcfs"
    enable_chunked_prefill: Annotated[bool, Field(description="cut prompts to the token budget")] = True
    long_prefill_token_threshold: Annotated[
        int, Field(ge=0, description="longest chunk in tokens while others are here; 0: no cap")
    ] = 0
    long_prefill_token_threshold_adaptive: Annotated[
        bool, Field(description="raise the cap to an equal share of the budget")
    ] = False
    watermark: Annotated[
        float, Field(ge=0, lt=1, description="share of blocks kept free when admitting beside others")
    ] = 0.0
    scheduler_reserve_full_isl: Annotated[
        bool, Field(description="admit only if the whole prompt's blocks are free")
    ] = True
    max_num_queued_reqs: Annotated[
        int | None, Field(ge=1, description="front-end limit on the waiting requests; beyond it they are rejected")
    ] = None
    enable_prefix_caching: Annotated[bool, Field(description="share the KV of equal prompt beginnings")] = True
    async_scheduling: Annotated[bool, Field(description="plan one step ahead of the GPU")] = False

    flows_ahead: ClassVar[bool] = True
    sized: ClassVar[tuple[str, str]] = ("max_num_seqs", "max_num_batched_tokens")

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} must be at least max_num_seqs {self.max_num_seqs}"
            )
        self._budget = min(self.max_num_batched_tokens, self.max_num_scheduled_tokens or self.max_num_batched_tokens)
        self._seats = self.max_num_active_seqs or self.max_num_seqs

    @property
    def order(self) -> Callable[[Request], Any] | None:
        """The queue under `priority`: most urgent first, then by arrival."""
        return _priority if self.policy == "priority" else None

    @property
    def caching(self) -> bool:
        """Whether the replica's blocks remember their contents."""
        return self.enable_prefix_caching

    @property
    def evicts_served(self) -> bool:
        """Under `priority` the victim may already have tokens of this step."""
        return self.policy == "priority"

    def express(self, blocks: int) -> Express | None:
        """As long as nobody is evicted, `plan` goes through the queue within one budget."""
        if self.long_prefill_token_threshold or self.max_num_queued_reqs is not None:
            return None
        return Express(
            self._seats,
            self._budget,
            chunked=self.enable_chunked_prefill,
            asks_prompt=self.scheduler_reserve_full_isl,
            spare=int(self.watermark * (blocks + 1)),
        )

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reason to reject an arrival: the queue is full, or the prompt can never be taken whole."""
        if self.max_num_queued_reqs is not None and len(b.queue) >= self.max_num_queued_reqs:
            return f"queue is full: {len(b.queue)} waiting, max_num_queued_reqs {self.max_num_queued_reqs}"
        if not self.enable_chunked_prefill and request.prompt_tokens > self._budget:
            return f"prompt of {request.prompt_tokens} tokens exceeds the token budget {self._budget} with chunked prefill off"
        return None

    def plan(self, b: Batch) -> Verdict:
        """Running requests first; then, unless somebody was preempted, the queue from its head until one does not fit."""
        cap = self._cap(len(b.seats) + len(b.queue)) if self.long_prefill_token_threshold else 0
        budget = self._budget
        seats = b.seats
        if seats:
            if not b.prefilling and len(seats) <= budget and b.decode():
                budget -= b.group.size + len(b.resting)
            else:
                budget = self._continue_running(b, budget, cap)
        if b.queue and not b.step.preempted:
            while budget > 0 and len(seats) < self._seats:
                head = b.queue.head()
                if head is None:
                    break
                taken = self._admit(b, head, budget, cap)
                if not taken:
                    break
                budget -= taken
        return self._verdict(b, budget)

    def _cap(self, here: int) -> int:
        """Longest chunk; 0 for none. It is off for a request that is alone."""
        cap = self.long_prefill_token_threshold if here > 1 else 0
        if cap and self.long_prefill_token_threshold_adaptive:
            cap = max(cap, self.max_num_batched_tokens // here)
        return cap

    def _admit(self, b: Batch, head: Request, budget: int, cap: int) -> int:
        known = head.prompt_tokens + head._emitted
        wanted = known - b.cached(head) if b.pool.caching else known
        if 0 < cap < wanted:
            wanted = cap
        tokens = wanted
        if wanted > budget:
            if not self.enable_chunked_prefill:
                return 0
            tokens = budget
        room = 0
        if self.scheduler_reserve_full_isl and tokens < known:
            room = known if known < b.max_model_len else b.max_model_len
        spare = int(self.watermark * (b.pool.total + 1)) if self.watermark and b.seats else 0
        return tokens if b.admit(head, tokens, room_tokens=room, spare=spare) else 0

    def _continue_running(self, b: Batch, budget: int, cap: int) -> int:
        """Pass 1 over the running requests; returns the budget that is left."""
        decoding = b.decoding
        if decoding > budget or (b.prefilling and not _prefills_come_last(b)):
            return self._one_by_one(b, budget, cap)
        if self.policy == "fcfs":
            b.decode_or_evict()
        elif not b.decode():
            return self._one_by_one(b, budget, cap)
        budget -= b.decoding
        if b.prefilling and budget > 0:
            budget = self._prefill(b, list(b.prefilling.values()), budget, cap)
        return budget

    def _one_by_one(self, b: Batch, budget: int, cap: int) -> int:
        """Pass 1 as vLLM walks it, where the order of the running requests decides who gets what."""
        return self._prefill(b, list(b.seats.values()), budget, cap)

    def _prefill(self, b: Batch, requests: list[Request], budget: int, cap: int) -> int:
        for request in requests:
            if budget <= 0:
                break
            if request.ending or request.index not in b.seats:
                continue
            tokens = request.remaining_tokens
            if 0 < cap < tokens:
                tokens = cap
            tokens = min(tokens, budget, b.max_model_len - request.computed_tokens - 1)
            if tokens <= 0:
                continue
            while not b.extend(request, tokens):
                victim = self._victim(b)
                budget += b.preempt(victim)
                if victim is request:
                    return budget
            budget -= tokens
        return budget

    def _victim(self, b: Batch) -> Request:
        if self.policy == "fcfs":
            return b.newest()
        return max(b.seats.values(), key=_worst)

    def _verdict(self, b: Batch, budget: int) -> Verdict:
        step = b.step
        if step.dirty:
            return ONCE if b.queue or step.preempted or step.named or not _completes_all(b) else FLOW
        if not step.tick or b.prefilling or len(b.seats) > b.group.size:
            return ONCE  # a request whose last token is in flight will give up its seat
        if len(b.seats) >= self._seats or budget <= 0:
            return DEAF
        if not b.queue:
            return FLOW
        if self.policy == "fcfs" and not self.long_prefill_token_threshold_adaptive:
            return DEAF  # the head does not fit, and free blocks only become fewer
        return STEADY


def _completes_all(b: Batch) -> bool:
    """Whether after this step everybody decodes."""
    chunks = b.step.chunks
    if len(chunks) != len(b.prefilling) or len(b.seats) != len(chunks) + b.group.size:
        return False
    return all(past + tokens == request.prompt_tokens + request._emitted for request, tokens, past in chunks.values())


def _priority(request: Request) -> int:
    return request.priority


def _worst(request: Request) -> tuple[int, Any]:
    return (request.priority, request.rank[0])  # equal arrivals tie: the first of them in order of admission


def _prefills_come_last(b: Batch) -> bool:
    """Whether every running request that prefills stands behind every one that decodes."""
    left = len(b.prefilling)
    for request in reversed(b.seats.values()):
        if request.ending:
            continue
        if request.index not in b.prefilling:
            return False
        left -= 1
        if not left:
            return True
    return True
