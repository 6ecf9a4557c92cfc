"""Schedulers outside of batchsim, as a user would write them: plain lists, every request by name; and broken ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import ONCE, Verdict, Wait

Seats = Annotated[int, Field(ge=1, description="requests that run at once")]
Budget = Annotated[int, Field(ge=1, description="tokens of a step")]


@dataclass
class Naive:
    """First come, first served, with lists: everyone takes its next tokens by name, the newest gives way."""

    max_num_seqs: Seats = 256
    max_num_batched_tokens: Budget = 8192

    def plan(self, b: Batch) -> Verdict:
        """Running requests in order of admission, then the queue."""
        budget, evicted = self.max_num_batched_tokens, False
        for request in list(b.running.values()):
            tokens = min(request.remaining_tokens, budget)
            if request.index not in b.running or tokens <= 0:
                continue
            while not b.extend(request, tokens):
                victim = b.newest()
                budget += b.preempt(victim)
                evicted = True
                if victim is request:
                    break
            else:
                budget -= tokens
        for request in list(b.waiting.values()):
            tokens = min(request.remaining_tokens, budget)
            if evicted or tokens <= 0 or len(b.running) >= self.max_num_seqs:
                break
            if not b.admit(request, tokens, room_tokens=request.known_tokens):
                break
            budget -= tokens
        return ONCE


@dataclass
class LargestFirst:
    """The longest prompt first, and nobody decodes while a prompt is computed."""

    def plan(self, b: Batch) -> Verdict:
        """One prompt a step, alone; decodes when no prompt fits."""
        for request in sorted(b.waiting.values(), key=lambda r: -r.prompt_tokens):
            if len(b.running) < 4 and b.admit(request, request.remaining_tokens, hold_tokens=request.known_tokens):
                return ONCE
        while not b.decode():
            b.preempt(b.newest(), to="tail")
        return ONCE


@dataclass
class EveryOther:
    """Half of the decoding requests rest at each step, by turns."""

    def __post_init__(self) -> None:
        self.turn = 0

    def plan(self, b: Batch) -> Verdict:
        """Admit what fits; then the even or the odd seats decode."""
        self.turn += 1
        for request in list(b.waiting.values()):
            held = sum(b.blocks_for(_whole(r, b)) for r in b.running.values())
            if held + b.blocks_for(_whole(request, b)) > b.pool.total:
                break
            b.admit(request, request.remaining_tokens)
        able = [r for r in b.running.values() if r.index not in b.prefilling]
        chosen = [r for place, r in enumerate(able) if (place + self.turn) % 2 == 0] or able
        b.decode(chosen)
        return ONCE


@dataclass
class Holder:
    """Holds seats until the last of the batch ends, and decodes by name only those that have not ended."""

    @property
    def hold(self) -> bool:
        """Ended members keep their seats."""
        return True

    def plan(self, b: Batch) -> Verdict:
        """A batch of three, then its members."""
        if not b.running:
            for request in list(b.waiting.values())[:3]:
                b.admit(request, request.remaining_tokens, hold_tokens=_whole(request, b))
            return ONCE
        b.decode([r for r in b.running.values() if not r.ended and r.index not in b.prefilling])
        return ONCE


@dataclass
class TurnsAway:
    """Rejects prompts of odd length while planning, and serves the others one at a time."""

    def plan(self, b: Batch) -> Verdict:
        """At most one decision about the queue in each plan."""
        if b.running:
            b.decode()
            return ONCE
        head = b.head()
        if head is not None and head.prompt_tokens % 2:
            b.reject(head, f"prompt of {head.prompt_tokens} tokens is odd")
        elif head is not None:
            b.admit(head, head.remaining_tokens, hold_tokens=_whole(head, b))
        return ONCE


def _whole(request: Request, b: Batch) -> int:
    """Tokens that stand in the cache at a request's end: its last one is never computed."""
    return request.prompt_tokens + b.declared_tokens(request) - 1


# -- schedulers that make no progress


@dataclass
class NeverAdmits:
    """Leaves everyone in the queue."""

    def plan(self, b: Batch) -> Verdict:
        """Nothing."""
        return ONCE


@dataclass
class WaitsForever:
    """Waits without a time."""

    def plan(self, b: Batch) -> Wait:
        """Nothing, until something happens."""
        return Wait()


@dataclass
class WaitsForNow:
    """Waits until a moment that has come already."""

    def plan(self, b: Batch) -> Wait:
        """Nothing, until now."""
        return Wait(b.now_ns)


@dataclass
class ForgetsTheRunning:
    """Admits, and then never decodes."""

    def plan(self, b: Batch) -> Verdict:
        """Only the queue counts."""
        for request in list(b.waiting.values()):
            b.admit(request, request.remaining_tokens)
        return ONCE


@dataclass
class EvictsForever:
    """Takes everyone's seat back at the moment after admission."""

    def plan(self, b: Batch) -> Verdict:
        """Admit, compute, evict."""
        for request in list(b.running.values()):
            b.preempt(request)
        for request in list(b.waiting.values()):
            b.admit(request, max(1, request.remaining_tokens - 1))
        return ONCE


@dataclass
class EvictsAtOnce:
    """Admits and evicts in the same step, so that no time passes."""

    def plan(self, b: Batch) -> Verdict:
        """A step of nothing."""
        head = b.head()
        if head is not None and b.admit(head, 1):
            b.preempt(head)
        return ONCE
