"""The batcher of text-generation-inference (TGI, v3): memory reserved to the end, nobody evicted."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import DEAF, ONCE, STEADY, Until, Verdict
from batchsim.schedulers._reserving import limit_tokens, over_pool


@dataclass
class Tgi:
    """TGI: whoever fits to the end may enter; prompts in chunks beside decodes, or alone once enough have gathered."""

    max_concurrent_requests: Annotated[
        int, Field(ge=1, description="requests here at once; beyond it they are refused")
    ] = 128
    waiting_served_ratio: Annotated[
        float,
        Field(
            ge=0, allow_inf_nan=False, description="waiting per running request that interrupts decoding (no chunking)"
        ),
    ] = 0.3
    max_waiting_tokens: Annotated[
        int,
        Field(
            ge=0, description="steps since the last prefill after which any waiting request interrupts (no chunking)"
        ),
    ] = 20
    max_batch_prefill_tokens: Annotated[int, Field(ge=1, description="token budget of a prefill")] = 4096
    max_batch_total_tokens: Annotated[
        int | None,
        Field(ge=1, description="KV tokens of all running together, one block of them kept back; absent: the pool"),
    ] = None
    max_batch_size: Annotated[int | None, Field(ge=1, description="seats, where prompts are not chunked")] = None
    prefill_chunking: Annotated[bool, Field(description="chunks of prompts run beside decodes, as flash models do")] = (
        True
    )
    _prefill_tick: int = field(default=0, init=False, repr=False)  # of the decode clock, at the last prefill
    _owes_decode: bool = field(default=False, init=False, repr=False)  # a prefill paused the decodes, which now come

    def refuse(self, request: Request, b: Batch) -> str | None:
        """Too many here, a reservation over the pool, or a prompt that is never taken whole."""
        here = len(b.queue) + len(b.seats)
        if here >= self.max_concurrent_requests:
            return f"{here} requests are here, max_concurrent_requests {self.max_concurrent_requests}"
        most = self._budget(b, 0)
        if not self.prefill_chunking and request.prompt_tokens > most:
            return f"prompt of {request.prompt_tokens} tokens exceeds max_batch_prefill_tokens {most} unchunked"
        tokens = limit_tokens(request, b) - 1
        return over_pool(tokens, b.blocks_for(tokens), b.pool.total - self._withheld(b))

    def plan(self, b: Batch) -> Verdict | Until:
        """One pass over new and running ones; or, without chunking, a prefill alone or a decode."""
        if self.prefill_chunking:
            return self._plan_chunked(b)
        looked = not (b.seats and self._owes_decode)
        if looked:
            paused = bool(b.seats)
            if self._prefill(b):
                self._prefill_tick, self._owes_decode = b.clock.ticks, paused
                return ONCE
        self._owes_decode = False
        waited = self._waited(b)
        self._decode(b)
        if b.queue and not looked:
            return ONCE
        return self._verdict_unchunked(b, waited)

    # -- with chunking -----------------------------------------------------------------------------------------------

    def _plan_chunked(self, b: Batch) -> Verdict:
        """Everyone running has at least one token; what is left goes to unfinished prompts, then to new ones."""
        self._decode(b)
        left = self.max_batch_prefill_tokens - len(b.seats)
        for request in list(b.prefilling.values()):
            more = min(request.remaining_tokens - 1, max(left, 0))
            b.extend(request, 1 + more)
            left -= more
        budget = self._budget(b, self.max_batch_prefill_tokens - max(left, 0))
        spare = self._withheld(b)
        while budget > 0:
            head = b.queue.head()
            if head is None:
                break
            tokens = min(head.prompt_tokens - b.cached(head), budget)
            if not b.admit(head, tokens, hold_tokens=limit_tokens(head, b) - 1, spare=spare):
                break
            budget -= tokens
        if not b.step.tick or b.step.chunks:
            return ONCE
        return DEAF if b.queue else STEADY

    # -- without -----------------------------------------------------------------------------------------------------

    def _prefill(self, b: Batch) -> bool:
        """Whole prompts alone, if at least the smallest batch worth an interruption is queued and fits."""
        smallest = self._smallest(b)
        if len(b.queue) < smallest:
            return False
        taken = self._fitting(b)
        if not taken or len(taken) < smallest:
            return False
        spare = self._withheld(b)
        for request in taken:
            tokens = request.prompt_tokens - b.cached(request)
            if not b.admit(request, tokens, hold_tokens=limit_tokens(request, b) - 1, spare=spare):
                raise AssertionError("only what fits was taken")
        return True

    def _smallest(self, b: Batch) -> int:
        if not b.seats or self._waited(b) >= self.max_waiting_tokens:
            return 0
        return int(len(b.seats) * self.waiting_served_ratio)

    def _waited(self, b: Batch) -> int:
        """Steps since the last prefill, that one included."""
        return 1 + b.clock.ticks - self._prefill_tick

    def _fitting(self, b: Batch) -> list[Request]:
        """The head of the queue, as far as budget, seats and reservations reach."""
        budget = self._budget(b, 0)
        seats = len(b.queue) if self.max_batch_size is None else max(self.max_batch_size - len(b.seats), 0)
        free = b.free - self._withheld(b)
        taken: list[Request] = []
        for request in islice(b.queue.values(), seats):
            budget -= request.prompt_tokens - b.cached(request)
            free -= b.blocks_for(limit_tokens(request, b) - 1)
            if budget < 0 or free < 0:
                break
            taken.append(request)
        return taken

    def _verdict_unchunked(self, b: Batch, waited: int) -> Verdict | Until:
        if not b.step.tick:
            return ONCE
        if not b.queue:
            return STEADY
        if not self._fitting(b):
            return DEAF  # the head waits for a departure
        return Until(
            STEADY, ticks=self.max_waiting_tokens - waited
        )  # until enough have gathered, or long enough passed

    # -- both --------------------------------------------------------------------------------------------------------

    def _decode(self, b: Batch) -> None:
        if b.seats and not b.decode():
            raise AssertionError("running requests have their blocks reserved")

    def _budget(self, b: Batch, used: int) -> int:
        """Prefill tokens left, rounded up to whole blocks."""
        return b.blocks_for(max(self.max_batch_prefill_tokens - used, 0)) * b.block

    def _withheld(self, b: Batch) -> int:
        """Blocks of the pool that max_batch_total_tokens leaves unused."""
        if self.max_batch_total_tokens is None:
            return 0
        return max(b.pool.total - max(self.max_batch_total_tokens // b.block - 1, 0), 0)
