"""What the policies of this package share: continuous batching within seats and a token budget, as vLLM steps.

In every step everyone past the prompt decodes, running prompts go on, then the queue is admitted in the policy's
order. A policy says who comes next and who gives way; who is admitted with how many tokens, and how long a step holds,
is said here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, Protocol, Self

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import DEAF, ONCE, STEADY, Express, Until, Verdict
from batchsim.schedulers._door import Door

Seats = Annotated[int, Field(ge=1, description="seats: requests that compute at once")]
Budget = Annotated[int, Field(ge=1, description="token budget of a step; at least max_num_seqs")]
Chunked = Annotated[bool, Field(description="cut prompts to the token budget")]
Caching = Annotated[bool, Field(description="share the KV of equal prompt beginnings")]
Reserve = Annotated[
    Literal["none", "declared"],
    Field(description="KV held from admission: what is computed, or prompt + max_tokens (without one, the output)"),
]
SkipBlocked = Annotated[bool, Field(description="admit past a request whose blocks do not fit")]
MaxOvertakes = Annotated[
    int, Field(ge=0, description="with skip_blocked: how often one request is passed over at most")
]

Victim = Callable[[Batch], Request]


class Keys(Protocol):
    """The scenario keys of a policy that the shared part reads."""

    max_num_seqs: int
    max_num_batched_tokens: int
    enable_chunked_prefill: bool
    max_queue: int | None
    queue_timeout_ms: float | None


class AdmissionKeys(Keys, Protocol):
    """Those of a policy that also takes the admission options."""

    reserve: Literal["none", "declared"]
    skip_blocked: bool
    max_overtakes: int


class Passing:
    """Counts how often each blocked request was passed over, so that nobody is more often than `most`."""

    def __init__(self, skip: bool, most: int) -> None:
        self.skip = skip
        self._most = most
        self._counts: dict[int, int] = {}
        self._blocked: list[int] = []  # in this step

    def block(self, request: Request) -> bool:
        """The request does not fit now; whether those behind it may be tried."""
        if not self.skip or self._counts.get(request.index, 0) >= self._most:
            return False
        self._blocked.append(request.index)
        return True

    def admitted(self, request: Request) -> bool:
        """The request got a seat ahead of those blocked before it; whether a further one may pass them."""
        self._counts.pop(request.index, None)
        for index in self._blocked:
            self._counts[index] = self._counts.get(index, 0) + 1
        return all(self._counts[index] < self._most for index in self._blocked)

    def end(self) -> None:
        """The step is planned."""
        self._blocked.clear()


class Stepper:
    """Builds the steps of a policy, and keeps its admission options."""

    def __init__(self, keys: Keys, *, reserves: bool = False, passing: Passing | None = None) -> None:
        if keys.max_num_batched_tokens < keys.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens {keys.max_num_batched_tokens} must be at least "
                f"max_num_seqs {keys.max_num_seqs}"
            )
        self.seats = keys.max_num_seqs
        self.budget = keys.max_num_batched_tokens
        self.passing = Passing(False, 0) if passing is None else passing
        self.door = Door(keys.max_queue, keys.queue_timeout_ms)
        self._chunked = keys.enable_chunked_prefill
        self._reserves = reserves

    @classmethod
    def of(cls, keys: AdmissionKeys) -> Self:
        """With the admission options that the policy's own keys say."""
        return cls(keys, reserves=keys.reserve == "declared", passing=Passing(keys.skip_blocked, keys.max_overtakes))

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reason to reject an arrival."""
        if not self._chunked and request.prompt_tokens > self.budget:
            over = f"prompt of {request.prompt_tokens} tokens exceeds the token budget {self.budget}"
            return f"{over} with chunked prefill off"
        return self.door.refuse(request, b)

    def express(self) -> Express | None:
        """The terms of a policy that only sorts those who wait; None where its options ask for more."""
        if self._reserves or self.passing.skip or self.door.limited:
            return None
        return Express(self.seats, self.budget, chunked=self._chunked)

    # -- who runs ------------------------------------------------------------

    def go_on(self, b: Batch, victim: Victim) -> int:
        """Everyone past the prompt decodes, running prompts go on; where blocks run short `victim` gives way.

        Returns the tokens that are left of the budget.
        """
        budget = self.budget
        if not b.seats:
            return budget
        while not b.decode():
            b.preempt(victim(b))
        budget -= b.decoding
        if b.prefilling:
            for request in list(b.prefilling.values()):
                budget = self.chunk(b, request, budget, victim)
        return budget

    def chunk(self, b: Batch, request: Request, budget: int, victim: Victim) -> int:
        """The next chunk of a running prompt, as long as the budget; returns what is left of it."""
        if budget <= 0 or request.index not in b.seats:
            return budget
        tokens = min(request.remaining_tokens, budget)
        while not b.extend(request, tokens):
            loser = victim(b)
            budget += b.preempt(loser)
            if loser is request:
                return budget
        return budget - tokens

    # -- who is admitted ------------------------------------------------------------

    def tokens_for(self, b: Batch, request: Request, budget: int) -> int:
        """Tokens that a waiting request would compute now; 0 where its prompt may not be cut to the budget.

        A prompt that grew beyond the whole budget by what it emitted before an eviction is cut all the same.
        """
        wanted = request.known_tokens - b.cached(request)
        if not self._chunked and budget < wanted <= self.budget:
            return 0
        return min(wanted, budget)

    def room_for(self, b: Batch, request: Request) -> int:
        """Blocks that must be free to admit it: those of its whole prompt, or of its reservation."""
        return b.blocks_for(max(request.known_tokens, self._hold_tokens(b, request)))

    def admit(self, b: Batch, request: Request, budget: int) -> int:
        """Give a waiting request a seat and what fits of its prompt; returns its tokens, 0 if it cannot be."""
        tokens = self.tokens_for(b, request, budget)
        if not tokens:
            return 0
        hold = self._hold_tokens(b, request)
        return tokens if b.admit(request, tokens, hold_tokens=hold, room_tokens=request.known_tokens) else 0

    def fill(self, b: Batch, budget: int) -> bool:
        """Admit from the head of the queue; True if somebody was left for want of blocks."""
        if self.passing.skip:
            return self._fill_past_blocked(b, budget)
        while budget > 0 and len(b.seats) < self.seats:
            head = b.head()
            if head is None:
                return False
            taken = self.admit(b, head, budget)
            if not taken:
                return True
            budget -= taken
        return False

    def _fill_past_blocked(self, b: Batch, budget: int) -> bool:
        left = False
        for request in list(b.waiting.values()):
            if budget <= 0 or len(b.seats) >= self.seats:
                break
            taken = self.admit(b, request, budget)
            budget -= taken
            left = left or not taken
            if not (self.passing.admitted(request) if taken else self.passing.block(request)):
                break
        self.passing.end()
        return left

    def _hold_tokens(self, b: Batch, request: Request) -> int:
        return request.prompt_tokens + b.declared_tokens(request) - 1 if self._reserves else 0

    # -- how long it holds ------------------------------------------------------------

    def verdict(self, b: Batch, *, listens: bool = False) -> Verdict | Until:
        """How long the planned step stays right; `listens`: an arrival can change it even when all seats are taken."""
        step = b.step
        if not step.tick or step.chunks or step.named or step.preempted or b.prefilling:
            return ONCE
        full = len(b.seats) >= self.seats and not listens
        return self.door.watch(DEAF if full else STEADY, b)


def newest(b: Batch) -> Request:
    """Who gives way by default: the request admitted last."""
    return b.newest()
