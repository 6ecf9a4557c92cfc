"""The original vLLM's scheduler (V0): whole prompts in steps of their own, which come before all decodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import DEAF, ONCE, STEADY, Until, Verdict
from batchsim.schedulers._decoding import decode_all


@dataclass
class VllmV0:
    """The original vLLM: whole prompts first, in steps of their own, while all decodes stall."""

    max_num_seqs: Annotated[int, Field(ge=1, description="seats: requests that run at once")] = 256
    max_num_batched_tokens: Annotated[
        int | None, Field(ge=1, description="prompt tokens of a step; absent: max_model_len, at least 2048")
    ] = None
    policy: Annotated[
        Literal["fcfs", "priority"],
        Field(description="order of the queue; under priority, lower is more urgent and evicts worse running requests"),
    ] = "fcfs"
    scheduler_delay_factor: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="a prompt waits this many times the last prompt step's duration"),
    ] = 0.0
    watermark: Annotated[float, Field(ge=0, lt=1, description="share of the blocks that an admission leaves free")] = (
        0.01
    )
    early_release: Annotated[
        bool,
        Field(
            description="rules of the first releases: evict whenever no block at all is free, even if none is needed"
        ),
    ] = False
    _prompts_at_ns: int | None = field(
        default=None, init=False, repr=False
    )  # when the last step began, if one of prompts
    _prompts_took_ns: int = field(default=0, init=False, repr=False)

    @property
    def headroom(self) -> int:
        """Blocks that a run of decodes leaves free."""
        return 1 if self.early_release else 0

    @property
    def order(self) -> Callable[[Request], Any] | None:
        """The queue under `priority`: most urgent first, then by arrival."""
        return _priority if self.policy == "priority" else None

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A prompt over the token limit, or one that never leaves the watermark free."""
        return self._too_long(request.prompt_tokens, b) or self._over_watermark(request.prompt_tokens, b)

    def plan(self, b: Batch) -> Verdict | Until:
        """Prompts alone if any can start; else a token for everyone."""
        waits = self._time_prompts(b)
        dropped = False
        if b.queue:
            dropped = self._start_prompts(b, waits)
            if b.step.chunks:
                self._prompts_at_ns = b.now_ns
                return ONCE
            if self.policy == "priority" and b.queue and b.seats:
                self._evict_for_the_best(b)
        if dropped and self.early_release:
            return ONCE  # a step that drops a prompt as too long does nothing else
        if b.seats:
            decode_all(b, always_one=self.early_release, worst=_worst if self.policy == "priority" else None)
        return self._verdict(b, waits)

    def _time_prompts(self, b: Batch) -> float:
        """The age, ns, that the oldest waiting request must exceed before prompts start beside running requests."""
        if self._prompts_at_ns is not None:
            self._prompts_took_ns = b.now_ns - self._prompts_at_ns
            self._prompts_at_ns = None
        return self.scheduler_delay_factor * self._prompts_took_ns

    def _start_prompts(self, b: Batch, waits: float) -> bool:
        """Whole prompts in order, until one does not fit; whether one was dropped as hopeless."""
        left = self._limit(b)
        spare = int(self.watermark * b.pool.total)
        delayed, dropped = bool(self.scheduler_delay_factor and b.seats), False
        while (head := b.queue.head()) is not None:
            if delayed and b.now_ns - self._oldest_ns(b, head) <= waits:
                break
            known = head.known_tokens
            reason = self._too_long(known, b) or (None if self.early_release else self._over_watermark(known, b))
            if reason is not None:
                b.reject(head, reason)
                dropped = True
                continue
            if known > left or len(b.seats) >= self.max_num_seqs or not b.admit(head, known, spare=spare):
                break
            left -= known
        return dropped

    def _oldest_ns(self, b: Batch, head: Request) -> int:
        """The earliest arrival that waits; by arrival, with the evicted in front, it is the head."""
        return head.arrival_ns if self.policy == "fcfs" else min(each.arrival_ns for each in b.queue.values())

    def _evict_for_the_best(self, b: Batch) -> None:
        """Running requests worse than the best waiting one leave, worst first, until it could start."""
        best = b.queue.head()
        assert best is not None
        need = b.blocks_for(best.known_tokens) + int(self.watermark * b.pool.total)
        while b.seats and (b.free < need or len(b.seats) >= self.max_num_seqs):
            worst = max(b.seats.values(), key=_worst)
            if (worst.priority, worst.rank[0]) <= (best.priority, best.rank[0]):
                return
            b.preempt(worst)

    def _limit(self, b: Batch) -> int:
        return self.max_num_batched_tokens or max(b.max_model_len, 2048)

    def _too_long(self, known: int, b: Batch) -> str | None:
        limit = min(b.max_model_len, self._limit(b))
        if known <= limit:
            return None
        return f"prompt of {known} tokens exceeds the limit {limit} of a step that takes prompts whole"

    def _over_watermark(self, known: int, b: Batch) -> str | None:
        need, spare = b.blocks_for(known), int(self.watermark * b.pool.total)
        if need + spare <= b.pool.total:
            return None
        return f"prompt needs {need} KV blocks and the watermark {spare}, the cache has {b.pool.total}"

    def _verdict(self, b: Batch, waits: float) -> Verdict | Until:
        if not b.step.tick or b.step.preempted:
            return ONCE
        if b.queue and self.scheduler_delay_factor:
            if self.policy == "priority":
                return ONCE  # as blocks run out while the best one waits, somebody has to go
            due_ns = self._oldest_ns(b, next(iter(b.queue.values()))) + waits
            return STEADY if b.now_ns > due_ns else Until(STEADY, ns=int(due_ns) + 1)
        if self.policy == "fcfs" and (b.queue or len(b.seats) >= self.max_num_seqs):
            return DEAF  # a seat or blocks are missing, until somebody leaves
        return STEADY


def _priority(request: Request) -> int:
    return request.priority


def _worst(request: Request) -> tuple[int, Any]:
    return (request.priority, request.rank)
