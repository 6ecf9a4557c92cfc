"""The decode side of a hand-off: a replica pulls KV into its pool when it has memory, and decodes what has landed.

A scheduler of this side is wrapped: after each plan of its own, and before the step runs, requests that wait for memory
here are pulled in order, as long as blocks and seats are free and nobody who was evicted waits for them. So a pull
begins where a request would have been admitted: at the start of a step, behind those that run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from batchsim.batch import Batch
from batchsim.fleet import Member
from batchsim.kv.handed import Landing
from batchsim.records import NEVER
from batchsim.replica import Replica
from batchsim.request import Request
from batchsim.scheduler import DEAF, FLOW, STEADY, Scheduler, Until, Verdict, Wait


class Passage:
    """A request on its way through both sides. `twin` stands for it on the prefill side.

    tokens: those it finds in cache when it has landed.  blocks: held for it from the pull on.  Times are NEVER before.
    """

    __slots__ = (
        "blocks", "gave_up", "landed_ns", "prefilled_ns", "pulled_ns", "request", "side", "source", "tokens", "twin",
    )  # fmt: skip

    def __init__(self, request: Request, twin: Request) -> None:
        self.request, self.twin = request, twin
        self.source: Replica | None = None
        self.side: Side | None = None
        self.tokens = self.blocks = 0
        self.prefilled_ns = self.pulled_ns = self.landed_ns = NEVER
        self.gave_up = False


class Side:
    """Where a decode replica's hand-offs stand. `waiting`: for memory; `moving`: transfers under way."""

    def __init__(self, pull: Callable[[Passage, int], None]) -> None:
        self.waiting: deque[Passage] = deque()
        self.moving = 0
        self.free_ns = 0  # when its port has moved what was pulled
        self.returned = 0  # blocks that nobody needs any more, to be given back at the next plan
        self.replica: Replica | None = None
        self.member: Member | None = None
        self.inner: Scheduler | None = None
        self._pull = pull
        self._here: dict[int, Passage] = {}  # landed, and not yet admitted

    def pool(self) -> Landing:
        """The replica's KV pool."""
        assert self.replica is not None
        return self.replica.batch.pool  # type: ignore[return-value]  # built so, in `assembly`

    def refuse(self, request: Request) -> str | None:
        """Why the replica's scheduler does not want the request, asked before anything is pulled for it."""
        assert self.replica is not None
        batch = self.replica.batch
        refuse = getattr(self.inner, "refuse", None)
        batch.now_ns = self.replica.env._now  # type: ignore[assignment]
        return None if refuse is None else refuse(request, batch)

    def await_(self, passage: Passage) -> None:
        """A request will be decoded here."""
        assert self.replica is not None
        assert self.member is not None
        passage.side = self
        self.waiting.append(passage)
        self.member.awaited_blocks += passage.blocks
        self.replica.look_again()

    def leave(self, passage: Passage) -> None:
        """A request waits for memory here no longer."""
        assert self.member is not None
        self.waiting.remove(passage)
        self.member.awaited_blocks -= passage.blocks

    def land(self, passage: Passage) -> None:
        """Its KV is here: it enters the queue."""
        assert self.replica is not None
        request = passage.request
        self._here[request.index] = passage
        if passage.tokens:
            self.pool().landed[request.index] = request._computed = passage.tokens
        self.replica.arrive(request)

    def closed(self, request: Request) -> None:
        """A request left this side; what it never took is given back."""
        passage = self._here.pop(request.index, None)
        if passage is not None and self.pool().landed.pop(request.index, None) is not None:
            self.returned += passage.blocks

    # -- what the wrapped scheduler does ------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Blocks come back at the start of a step, so that a run of steps knows what it can take."""
        if self.returned:
            self.pool().give_back(self.returned)
            self.returned = 0

    def pull(self, b: Batch, seats: int | None) -> None:
        """Begin the transfers that memory and seats allow."""
        if not self.waiting or any(self._lacks(request) for request in b.queue.values()):
            return
        pool = self.pool()
        while self.waiting:
            passage = self.waiting[0]
            taken = len(b.seats) + len(b.queue) + self.moving
            if passage.blocks > pool.free or (seats is not None and taken >= seats):
                return
            self.leave(passage)
            pool.take(passage.blocks)
            self.moving += 1
            self._pull(passage, b.now_ns)

    def _lacks(self, request: Request) -> bool:
        """Whether a waiting request has no KV here: it was evicted, or gave up what had landed."""
        passage = self._here.get(request.index)
        return passage is None or (passage.tokens > 0 and request.index not in self.pool().landed)

    def stands_still(self, b: Batch, *, fills: bool) -> bool:
        """Whether those who wait here hold the memory that one of them, or the next to be pulled, is waiting for.

        fills: the scheduler may be waiting for its batch to fill.
        """
        head = b.head()
        if b.seats or head is None or self.moving:
            return False
        if not fills or self.waiting or b.draining:
            return True
        return self._lacks(head) and b.blocks_for(head.known_tokens) > b.free

    def relieve(self, b: Batch) -> bool:
        """The newest that landed here, and is not the head unless alone, gives up its KV, to compute it again."""
        head, pool = b.head(), self.pool()
        assert head is not None
        if not pool.landed:
            return False
        index = next((index for index in reversed(pool.landed) if index != head.index), head.index)
        passage, tokens = self._here[index], pool.landed.pop(index)
        pool.give_back(passage.blocks)
        passage.request._computed = 0
        passage.request.recomputed_tokens += tokens
        return True


class Pulling:
    """A scheduler whose requests come with their KV from elsewhere."""

    def __init__(self, inner: Scheduler, side: Side) -> None:
        self._inner, self._side = inner, side
        side.inner = inner
        self._forms = hasattr(inner, "hold")  # batches of whole requests

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def refuse(self, request: Request, b: Batch) -> str | None:
        """What was pulled stays: the scheduler was asked before (`Side.refuse`)."""
        return None

    def give_back(self) -> None:
        """Free the blocks of those who gave up."""
        self._side.give_back()

    def plan(self, b: Batch) -> Verdict | Until | Wait:
        """The scheduler's own step, then the pulls."""
        side, member = self._side, self._side.member
        seats = None if member is None else member.seats
        side.give_back()
        verdict = self._inner.plan(b)
        side.pull(b, seats)
        hurried = False
        while _idle(b, verdict) and side.stands_still(b, fills=self._forms and isinstance(verdict, Wait)):
            if side.waiting and not b.draining:  # what is still to come waits for memory here
                hurried = b.draining = True
            elif not side.relieve(b):
                break
            verdict = self._inner.plan(b)
            side.pull(b, seats)
        if hurried:
            b.draining = False
        return _listening(verdict)


def _idle(b: Batch, verdict: Verdict | Until | Wait) -> bool:
    """Whether the plan came to nothing, and to no wait for an hour of its own."""
    timed = isinstance(verdict, Wait) and verdict.until_ns is not None
    return b.step.empty and not b.step.preempted and not b.rejected and not timed


def _listening(verdict: Verdict | Until | Wait) -> Verdict | Until | Wait:
    """A verdict that arrivals always end: they may bring something to pull."""
    if isinstance(verdict, Until):
        return verdict._replace(verdict=STEADY)
    return STEADY if verdict in (DEAF, FLOW) else verdict
