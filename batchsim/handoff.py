"""Prefill and decode apart: a request is computed on one side, its KV is pulled by the other, which decodes it.

1. A twin of the request, of one token, goes through a prefill replica. When its prompt is computed it ends there, but
   its blocks stay held.
2. A decode replica is chosen with what is known then. When that has the memory it holds blocks for the prompt and pulls
   (`landing`). A transfer occupies the ports of both replicas, in order of arrival. Nothing is held on two sides while
   waiting for the other, so no two hand-offs can wait for each other.
3. The blocks at the source are freed, and the request itself enters the decode replica's queue, as if it had a prefix
   hit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simpy import Environment

from batchsim.alarm import ARRIVE, Alarm
from batchsim.fleet import Fleet, Later, Member
from batchsim.kv.handed import Keeping
from batchsim.landing import Passage, Side
from batchsim.recorder import Recorder
from batchsim.records import NEVER, Status
from batchsim.replica import Replica
from batchsim.request import Request
from batchsim.router import Router

GAVE_UP = "the client gave up"


@dataclass(frozen=True, slots=True)
class Terms:
    """How KV moves. at_prefill: the prefill side streams the first token.

    ns_per_token, ns_per_block: for which a transfer occupies both ports.  latency_ns: on top, and occupies nothing.
    """

    at_prefill: bool
    ns_per_token: float
    ns_per_block: float
    latency_ns: int

    def occupied_ns(self, tokens: int, blocks: int) -> int:
        """How long a transfer keeps the ports."""
        return round(tokens * self.ns_per_token + blocks * self.ns_per_block)


class SideRecorder(Recorder):
    """Writes into another recorder's rows. `look` sees each request first, and says whether it gets its row here."""

    def __init__(self, rows: Recorder, look: Callable[[Request, Status], bool]) -> None:
        vars(self).update(vars(rows))  # the same tables
        self._look = look

    def close(self, request: Request, status: Status, replica: int, finished_ns: int = NEVER) -> None:
        if self._look(request, status):
            super().close(request, status, replica, finished_ns)


class Handoff:
    """A server of two sides. `rows`: index, prefill replica and the times of its hand-off, of each request."""

    def __init__(
        self, env: Environment, later: Later, terms: Terms, recorder: Recorder, done: Callable[[Request], None]
    ) -> None:
        self._env, self._later, self._terms, self._done = env, later, terms, done
        self.at_prefill = SideRecorder(recorder, self._close_prefill)
        self.at_decode = SideRecorder(recorder, self._close_decode)
        self.number = 0
        self.rows = array("q")
        self._passages: dict[int, Passage] = {}
        self._sources: dict[int, int] = {}  # when the port of a prefill replica has moved what was pulled
        self._draining = False
        self._coming = 0  # sent, and not yet on the decode side
        self._sides: list[Side] = []

    def connect(
        self, prefill: Sequence[Replica], decode: Sequence[Replica], sides: list[Side], routers: tuple[Router, Router],
        turn_away: Callable[[Request, str, int], None],
    ) -> None:  # fmt: skip
        """The replicas of both sides, built with this server's recorders, the decode side's with `sides`."""

        def turned_away(twin: Request, reason: str, replica: int) -> None:
            self._end(twin)
            turn_away(twin, reason, replica)

        self.prefill = Fleet(
            self._env, self._later, prefill, routers[0], self.at_prefill, done=self._prefilled, turn_away=turned_away,
            send=self._start,
        )  # fmt: skip
        self.decode = Fleet(
            self._env, self._later, decode, routers[1], self.at_decode, done=self._done, turn_away=self._refused,
            send=self._assign,
        )  # fmt: skip
        self._sides, self._turn_away = sides, turn_away
        for side, member in zip(sides, self.decode.members, strict=True):
            side.member, side.replica = member, member.replica

    # -- the prefill side ----------------------------------------------------------------------------------------------

    def arrive(self, request: Request) -> str | None:
        """Take a request, or say why not."""
        twin = Request(
            request.index, request.id, request.arrival_ns, request.prompt_tokens, 1, 1, priority=request.priority,
            tenant=request.tenant, traffic_class=request.traffic_class, session=request.session,
        )  # fmt: skip
        twin.scheduled_ns = request.scheduled_ns
        self._passages[request.index] = Passage(request, twin)
        self._coming += 1
        self.tell_draining()
        reason = self.prefill.arrive(twin)
        if reason is not None:
            self._end(twin)
            self.number = self.prefill.number
        return reason

    def _start(self, twin: Request, member: Member) -> str | None:
        reason = member.replica.arrive(twin)
        if reason is None:
            self._passages[twin.index].source = member.replica
        return reason

    def _ends_there(self, request: Request) -> bool:
        """A one-token answer that the prefill side streams."""
        return self._terms.at_prefill and request.limit == 1

    def _close_prefill(self, twin: Request, status: Status) -> bool:
        passage = self._passages[twin.index]
        if status == Status.COMPLETED and not self._ends_there(passage.request):
            return False  # its row comes when it has been decoded
        if status == Status.COMPLETED:
            passage.prefilled_ns = passage.landed_ns = twin.finished_ns  # nothing is left to move
            _kept(passage).let_go(twin.index)
        self._note(passage, NEVER)
        return True

    def _prefilled(self, twin: Request) -> None:
        passage = self._passages[twin.index]
        request = passage.request
        if twin.finished_ns == NEVER or self._ends_there(request):
            self._end(twin)
            self._done(twin)
            return
        passage.prefilled_ns = request.queued_ns = twin.finished_ns
        request.waited_ns, request.ran_ns = twin.waited_ns, twin.ran_ns
        request.preemptions, request.recomputed_tokens = twin.preemptions, twin.recomputed_tokens
        request.resume_hit_tokens = twin.resume_hit_tokens
        if twin.cancelled:
            self._give_up(passage)
            return
        passage.tokens = request.prompt_tokens - 1
        if self._terms.at_prefill:
            passage.tokens += 1
            request._emitted = 1
            request.first_token_ns = request.last_token_ns = twin.first_token_ns
        reason = self.decode.arrive(request)
        if reason is not None:
            self._refused(request, reason, self.decode.number)

    def _refused(self, request: Request, reason: str, replica: int) -> None:
        """No decode replica wants it: its prompt was computed for nothing."""
        passage = self._passages[request.index]
        request.waited_ns = passage.twin.waited_ns + self._env._now - passage.prefilled_ns  # type: ignore[assignment]
        self._close_decode(request, Status.REJECTED)
        self._free_source(passage)
        self._arrived()
        self._turn_away(request, reason, replica)

    # -- the hand-off --------------------------------------------------------------------------------------------------

    def _assign(self, request: Request, member: Member) -> str | None:
        passage = self._passages[request.index]
        side = self._sides[member.number]
        reason = side.refuse(request)
        if reason is None:
            passage.blocks = passage.tokens // member.block + 1 if passage.tokens else 0
            side.await_(passage)
        return reason

    def pull(self, passage: Passage, now_ns: int) -> None:
        """A decode replica holds blocks for the request: the transfer begins when both ports are free."""
        side, source = passage.side, passage.source
        assert side is not None
        assert source is not None
        passage.pulled_ns = now_ns
        tokens = passage.request.prompt_tokens
        occupied_ns = self._terms.occupied_ns(tokens, source.batch.blocks_for(tokens))
        free_ns = max(now_ns, side.free_ns, self._sources.get(source.number, 0)) + occupied_ns
        side.free_ns = self._sources[source.number] = free_ns
        Alarm(self._env, free_ns + self._terms.latency_ns - now_ns, ARRIVE, lambda _: self._land(passage))

    def _land(self, passage: Passage) -> None:
        side = passage.side
        assert side is not None
        assert side.replica is not None
        side.moving -= 1
        self._free_source(passage)
        if passage.gave_up:
            side.returned += passage.blocks
            side.replica.look_again()
            return
        request = passage.request
        passage.landed_ns = self._env._now  # type: ignore[assignment]
        request.waited_ns = passage.twin.waited_ns + passage.landed_ns - passage.prefilled_ns
        side.land(passage)
        self._arrived()

    def _free_source(self, passage: Passage) -> None:
        _kept(passage).let_go(passage.request.index)
        assert passage.source is not None
        passage.source.wake()
        self._later.call(self.prefill.pass_on)

    # -- the decode side -----------------------------------------------------------------------------------------------

    def _close_decode(self, request: Request, status: Status) -> bool:
        passage = self._passages.pop(request.index)
        if passage.side is not None:
            passage.side.closed(request)
        self._note(passage, request.admitted_ns)
        request.admitted_ns, request.prefix_hit_tokens = passage.twin.admitted_ns, passage.twin.prefix_hit_tokens
        return True

    # -- giving up -----------------------------------------------------------------------------------------------------

    def cancel(self, request: Request) -> None:
        """The client of a request that is still here gave up."""
        passage = self._passages.get(request.index)
        if passage is None:
            return
        request.cancelled = True
        if passage.prefilled_ns == NEVER:
            self.prefill.cancel(passage.twin)
        elif passage.landed_ns != NEVER:
            self.decode.cancel(request)
        else:
            self._give_up(passage)

    def _give_up(self, passage: Passage) -> None:
        """Between the sides."""
        request = passage.request
        request.waited_ns = passage.twin.waited_ns + self._env._now - passage.prefilled_ns  # type: ignore[assignment]
        passage.gave_up = True
        if passage.pulled_ns == NEVER:  # else the transfer goes on
            if passage.side is not None:
                passage.side.leave(passage)
            else:
                self.decode.withdraw(request)
            self._free_source(passage)
        self.at_decode.reasons[request.index] = GAVE_UP
        self.at_decode.close(request, Status.CANCELLED, NEVER if passage.source is None else passage.source.number)
        self._arrived()
        self.decode.left(request)

    # -- how far all are -----------------------------------------------------------------------------------------------

    def _end(self, twin: Request) -> None:
        del self._passages[twin.index]
        self._arrived()

    def _arrived(self) -> None:
        """One request less is on its way to the decode side: its batches need wait for no more when it was the last."""
        self._coming -= 1
        self.tell_draining()

    def tell_draining(self) -> None:
        """Let the decode side know whether anything is still to come."""
        draining = self._coming == 0 and self.prefill.members[0].replica.batch.draining
        if draining == self._draining:
            return
        self._draining = draining
        for member in self.decode.members:
            member.replica.batch.draining = draining
            if draining:
                member.replica.wake()

    def _note(self, passage: Passage, decode_ns: int) -> None:
        source = NEVER if passage.source is None else passage.source.number
        self.rows.extend(
            (passage.request.index, source, passage.prefilled_ns, passage.pulled_ns, passage.landed_ns, decode_ns)
        )

    def close(self, now_ns: int) -> None:
        """Write the rows of those between the sides, and of those who wait for the first."""
        self.prefill.close(now_ns)
        for passage in list(self._passages.values()):
            if not _between(passage):
                continue
            request, source = passage.request, passage.source
            request.waited_ns = passage.twin.waited_ns + now_ns - passage.prefilled_ns
            self.at_decode.close(request, Status.RUNNING, NEVER if source is None else source.number)

    def stuck(self) -> str | None:
        """What stands still, when nothing more will happen."""
        between = sum(map(_between, self._passages.values()))
        return self.prefill.stuck() or (f"{between} requests wait for the decode side's memory" if between else None)


def _kept(passage: Passage) -> Keeping:
    """The pool that holds the request's KV at the source."""
    assert passage.source is not None
    return passage.source.batch.pool  # type: ignore[return-value]  # built so, in `assembly`


def _between(passage: Passage) -> bool:
    """Whether the request has left the prefill side and is not yet on the other."""
    return passage.prefilled_ns != NEVER and passage.landed_ns == NEVER
