"""Orca's scheduler: every iteration takes whoever is here, and each request's memory is reserved when it enters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import DEAF, ONCE, STEADY, Verdict
from batchsim.schedulers._buddy import Buddy
from batchsim.schedulers._reserving import limit_tokens, over_pool


@dataclass
class Orca:
    """Orca: requests enter and leave at every iteration, prompts whole beside decodes, memory reserved to the end."""

    max_num_seqs: Annotated[int, Field(ge=1, description="seats: requests that run at once")] = 128
    reserve: Annotated[
        Literal["max", "pow2", "oracle"] | None,
        Field(
            description="tokens reserved: absent prompt + max_tokens; max max_model_len; pow2 prompt + real output "
            "rounded up to a power of two; oracle prompt + real output"
        ),
    ] = None
    allocator: Annotated[
        Literal["tokens", "buddy"],
        Field(
            description="tokens: just the blocks reserved; buddy: rounded up to a power of two, contiguous and aligned"
        ),
    ] = "tokens"
    arena_tokens: Annotated[int, Field(ge=1, description="largest arena that buddy cuts the pool into, tokens")] = 2048
    _buddy: Buddy | None = field(default=None, init=False, repr=False)

    @property
    def oracle(self) -> bool:
        """Whether it reads output lengths."""
        return self.reserve in ("pow2", "oracle")

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reservation that the pool, or the largest arena, cannot hold."""
        tokens = self._reservation(request, b)
        reason = over_pool(tokens, b.blocks_for(tokens), b.pool.total)
        if reason is None and self.allocator == "buddy" and not self._arenas(b).could_hold(b.blocks_for(tokens)):
            return f"reserves {tokens} tokens, the largest arena holds {self._arenas(b).largest * b.block}"
        return reason

    def plan(self, b: Batch) -> Verdict:
        """Everyone decodes, and whole prompts enter beside them while seats and reservations last."""
        if b.seats and not b.decode():
            raise AssertionError("running requests have their blocks reserved")
        if self._buddy is not None:
            self._buddy.keep(b.running)
        while (head := b.queue.head()) is not None:
            if not self._enter(head, b):
                break
        if not b.step.tick or b.step.chunks:
            return ONCE
        if b.queue or len(b.seats) >= self.max_num_seqs:
            return DEAF
        return STEADY

    def _enter(self, head: Request, b: Batch) -> bool:
        """Admit the head of the queue, or turn away a prompt beyond max_model_len; False: no seat or no memory."""
        if head.prompt_tokens > b.max_model_len:
            b.reject(head, f"prompt of {head.prompt_tokens} tokens exceeds max_model_len {b.max_model_len}")
            return True
        if len(b.seats) >= self.max_num_seqs:
            return False
        tokens = self._reservation(head, b)
        if self.allocator == "tokens":
            return b.admit(head, head.prompt_tokens, hold_tokens=tokens)
        arenas = self._arenas(b)
        blocks = arenas.take(head.index, b.blocks_for(tokens))
        if not blocks:
            return False
        if not b.admit(head, head.prompt_tokens, hold_tokens=blocks * b.block):
            raise AssertionError("arenas and pool count the same blocks")
        return True

    def _arenas(self, b: Batch) -> Buddy:
        if self._buddy is None:
            self._buddy = Buddy(b.pool.total, max(1, self.arena_tokens // b.block))
        return self._buddy

    def _reservation(self, request: Request, b: Batch) -> int:
        """Tokens of KV memory that a request holds from its first step to its last."""
        if self.reserve == "max":
            return b.max_model_len
        if self.reserve is None:
            return limit_tokens(request, b)
        output = b.output_tokens(request)
        if self.reserve == "pow2":
            output = 1 << (output - 1).bit_length()
        return min(request.prompt_tokens + output, b.max_model_len)
