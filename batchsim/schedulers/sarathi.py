"""Sarathi-Serve's scheduler: decodes first, then prompts in chunks within what is left of one token budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import DEAF, ONCE, STEADY, Express, Verdict
from batchsim.schedulers._decoding import decode_all


@dataclass
class Sarathi:
    """Sarathi-Serve: a step is all decodes and, within one token budget, chunks of prompts."""

    chunk_size: Annotated[int, Field(ge=1, description="token budget of a step, decodes included")] = 512
    max_num_seqs: Annotated[int, Field(ge=1, description="seats: requests that run at once")] = 128
    watermark: Annotated[float, Field(ge=0, lt=1, description="share of the blocks that an admission leaves free")] = (
        0.01
    )
    hybrid: Annotated[bool, Field(description="decodes and chunks share a step; false: steps of each take turns")] = (
        True
    )
    stands_still: bool = field(default=False, init=False, repr=False)
    """As the real one does when an evicted request and the watermark no longer fit the pool; else it is rejected."""
    _chunks_last: bool = field(default=False, init=False, repr=False)  # whether the last step was one of chunks

    headroom: ClassVar[int] = 1
    folds_output: ClassVar[bool] = True

    def express(self, blocks: int) -> Express | None:
        """As long as nobody is evicted, steps are the same mix of decodes and prompts by arrival."""
        if not self.hybrid:
            return None
        spare = int(self.watermark * blocks)
        return Express(self.max_num_seqs, self.chunk_size, holds_prompt=True, spare=spare, spare_alone=True, headroom=1)

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A prompt that never leaves the watermark free."""
        return self._hopeless(request.prompt_tokens, b)

    def plan(self, b: Batch) -> Verdict:
        """Decodes, then chunks of running prompts, then new ones; or, not hybrid, the kind whose turn it is."""
        if not self.hybrid:
            return self._take_turns(b)
        if b.seats:
            decode_all(b, always_one=True)
        self._chunks(b, self.chunk_size - b.decoding)
        return self._verdict(b)

    def _take_turns(self, b: Batch) -> Verdict:
        turn = not (self._chunks_last and b.decoding)
        self._chunks_last = False
        if turn:
            self._chunks(b, self.chunk_size)
            if b.step.chunks:
                self._chunks_last = True
                return ONCE
        if b.seats:
            decode_all(b, always_one=True)
        if not turn and b.queue:
            return ONCE
        return self._verdict(b)

    def _chunks(self, b: Batch, budget: int) -> None:
        """Chunks of running prompts, then of new ones, whose whole prompt gets its blocks at once."""
        for request in list(b.prefilling.values()):
            tokens = min(request.remaining_tokens, budget)
            if tokens <= 0:
                break
            b.extend(request, tokens)
            budget -= tokens
        spare = int(self.watermark * b.pool.total)
        while (head := b.queue.head()) is not None:
            known = head.known_tokens
            if known > b.max_model_len:
                b.reject(head, f"prompt of {known} tokens exceeds max_model_len {b.max_model_len}")
                continue
            if not self.stands_still and (reason := self._hopeless(known, b)) is not None:
                b.reject(head, reason)
                continue
            if budget <= 0 or len(b.seats) >= self.max_num_seqs:
                return
            if b.step.preempted:  # the evicted lead the queue, and none of them comes back in this step
                return
            tokens = min(known, budget)
            if not b.admit(head, tokens, hold_tokens=known if tokens < known else 0, spare=spare):
                return
            budget -= tokens

    def _hopeless(self, tokens: int, b: Batch) -> str | None:
        """A reason to reject a prompt that never leaves the watermark free."""
        need, spare = b.blocks_for(tokens), int(self.watermark * b.pool.total)
        if need + spare <= b.pool.total:
            return None
        return f"prompt needs {need} KV blocks and the watermark {spare}, the cache has {b.pool.total}"

    def _verdict(self, b: Batch) -> Verdict:
        step = b.step
        if not step.tick or step.chunks or step.preempted or b.prefilling:
            return ONCE
        if b.queue or len(b.seats) >= self.max_num_seqs or (self.hybrid and b.decoding >= self.chunk_size):
            return DEAF  # whatever keeps the head out holds until somebody leaves
        return STEADY
