"""Several replicas behind a router: who gets an arrival, who is tried when it is rejected, who waits for all of them.

What a router reads is what step by step would have been counted by then, though a replica takes a run of steps as one
event. At one instant come: arrivals; the ends of steps, by number; what clients send, and the central queue passes on,
because of what ended; plans, by number. So every plan of an instant sees all that happened in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from simpy import Environment
from simpy.events import Event

from batchsim.alarm import SEND, Alarm
from batchsim.batch import Batch
from batchsim.recorder import Recorder
from batchsim.records import NEVER, Status
from batchsim.replica import Replica
from batchsim.request import Request
from batchsim.router import Router, attribute

SEATS = ("max_num_active_seqs", "max_num_seqs", "max_batch_size", "batch_size")
"""What schedulers call their limit of requests that run at once."""

TURNED_AWAY_NS = 1
"""A client that a plan turned away, or that gave up, is heard of so much later: when every replica has planned."""


class Later:
    """Puts calls off until every step that ends at an instant has ended. `settled`: that is so now."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.settled = False

    def call(self, what: Callable[[], None], delay_ns: int = 0) -> None:
        """At this instant, or a later one."""

        def run(_: Event) -> None:
            self.settled = True
            what()
            self.settled = False

        Alarm(self._env, delay_ns, SEND, run)


class Member:
    """A replica of a fleet, as routers see it (`router.Load`).

    sent: the requests that it was sent and that are not answered.  awaited_blocks: KV blocks that it will hold for
    requests on their way to it.
    """

    def __init__(self, replica: Replica, later: Later, number: int) -> None:
        self.replica = replica
        self.number = number  # in its fleet
        self.block = replica.batch.block
        self.sent: dict[int, Request] = {}
        self.awaited_blocks = 0
        self._later = later
        self._prompts = 0
        scheduler = replica.engine.scheduler
        limits = [limit for name in SEATS if (limit := getattr(scheduler, name, None)) is not None]
        self.seats: int | None = min(limits, default=None)
        self._forms = hasattr(scheduler, "hold")  # batches of whole requests

    @property
    def requests(self) -> int:
        """Requests waiting and running."""
        return len(self.sent)

    @property
    def tokens(self) -> int:
        """Tokens still to prefill plus context held."""
        if not self.sent:
            return 0
        batch = self.replica.batch
        ticks = batch.clock.ticks + self.replica.ticks_done(settled=self._later.settled)
        total = self._prompts
        for request in batch.seats.values():
            if not request.ended:
                total += request._emitted if request.base is None else ticks - request.base
        if batch.evicted:
            total += sum(request._emitted for request in batch.queue.values())
        return total

    def add(self, request: Request) -> None:
        """It was sent a request."""
        self.sent[request.index] = request
        self._prompts += request.prompt_tokens

    def forget(self, request: Request) -> None:
        """A request was answered, or given up."""
        if self.sent.pop(request.index, None) is not None:
            self._prompts -= request.prompt_tokens

    def could_admit(self, request: Request) -> bool:
        """Whether its next plan could: a seat and blocks are left over, and no batch of whole requests is under way."""
        if not self.sent:
            return True
        if self.seats is not None and len(self.sent) >= self.seats:
            return False
        batch = self.replica.batch
        if self._forms:  # one that does not fit closes the batch
            return not batch.seats
        free = batch.free - self.replica.blocks_opened() - self.awaited_blocks - _promised(batch)
        return batch.blocks_for(request.prompt_tokens) <= free


def _promised(batch: Batch) -> int:
    """Blocks that those who wait here, or whose prompt is unfinished, will take."""
    waiting = sum(batch.blocks_for(request.known_tokens) for request in batch.queue.values())
    growing = sum(max(0, batch.blocks_for(r.known_tokens) - r.blocks) for r in batch.prefilling.values())
    return waiting + growing


class Fleet:
    """Routes requests to replicas, and hears from them when they are done.

    send: gives a request to a member, or says why not; by default it arrives there.
    done: called for each request that left a replica, when everything that ends at that instant has ended.
    retries: requests that were tried on a further replica, each time counted.
    """

    def __init__(
        self, env: Environment, later: Later, replicas: Sequence[Replica], router: Router, recorder: Recorder, *,
        done: Callable[[Request], None], turn_away: Callable[[Request, str, int], None],
        send: Callable[[Request, Member], str | None] | None = None,
    ) -> None:  # fmt: skip
        self._env = env
        self._later = later
        self._router = router
        self._recorder = recorder
        self._done, self._turn_away = done, turn_away
        self._send = send or _arrive
        self.members = [Member(replica, later, number) for number, replica in enumerate(replicas)]
        self._where: dict[int, Member] = {}
        self._central: deque[Request] | None = deque() if attribute(router, "central", False) else None
        self._retry: int = attribute(router, "retry", 0)
        self._tokens = [member.replica.batch.pool.total * member.block for member in self.members]
        self._alike = len(set(self._tokens)) == 1
        self.retries = 0
        self.number = 0
        for replica in replicas:
            replica.engine.on_done = self.left

    # -- coming --------------------------------------------------------------------------------------------------------

    def arrive(self, request: Request) -> str | None:
        """Send a request to a replica, or let it wait for one; or say why all that were tried rejected it."""
        if self._central is not None:
            request.queued_ns = self._env._now  # type: ignore[assignment]
            self._central.append(request)
            if len(self._central) == 1:
                self.pass_on()
            return None
        members = self.able(request)
        for attempt in range(self._retry + 1):
            member = self._router.route(request, members)
            assert isinstance(member, Member)
            reason = self._give(request, member)
            if reason is None:
                return None
            members = [other for other in members if other is not member]
            if not members or attempt == self._retry:
                break
            self.retries += 1
        return reason

    def able(self, request: Request) -> list[Member]:
        """The members whose KV pool can hold all that the request may need."""
        if self._alike:
            return self.members
        output = request.max_tokens if request.declared else request.wanted_tokens
        need = request.prompt_tokens + output - 1
        return [member for member, tokens in zip(self.members, self._tokens, strict=True) if need <= tokens]

    def _give(self, request: Request, member: Member) -> str | None:
        reason = self._send(request, member)
        if reason is None:
            member.add(request)
            self._where[request.index] = member
        else:
            self.number = member.replica.number
        return reason

    def pass_on(self) -> None:
        """Give requests of the central queue, from its head, to those who could admit them."""
        while self._central:
            request = self._central[0]
            members = [member for member in self.able(request) if member.could_admit(request)]
            if not members:
                return
            self._central.popleft()
            request.waited_ns += self._env._now - request.queued_ns  # type: ignore[assignment]
            reason = self._give(request, self._router.route(request, members))  # type: ignore[arg-type]
            if reason is not None:
                self._turn_away(request, reason, self.number)

    # -- going ---------------------------------------------------------------------------------------------------------

    def left(self, request: Request) -> None:
        """A request was answered by its replica, rejected in a plan, or given up."""
        member = self._where.pop(request.index, None)
        if member is not None:
            member.forget(request)
        delay_ns = TURNED_AWAY_NS if request.finished_ns == NEVER else 0
        self._later.call(lambda: self._after(request), delay_ns)

    def _after(self, request: Request) -> None:
        if self._central:
            self.pass_on()
        self._done(request)

    def cancel(self, request: Request) -> None:
        """The client of a request that is still here gave up."""
        if self.withdraw(request):
            request.cancelled = True
            request.waited_ns += self._env._now - request.queued_ns  # type: ignore[assignment]
            self._recorder.reasons[request.index] = "the client gave up"
            self._recorder.close(request, Status.CANCELLED, NEVER)
            self._later.call(lambda: self._after(request))
            return
        member = self._where.get(request.index)
        if member is not None:
            member.replica.cancel(request)

    def withdraw(self, request: Request) -> bool:
        """Whether the request waited for all replicas; it does no longer."""
        if self._central is None or request not in self._central:
            return False
        self._central.remove(request)
        return True

    # -- the end of the run --------------------------------------------------------------------------------------------

    def close(self, now_ns: int) -> None:
        """Write the rows of those who wait for all replicas."""
        for request in self._central or ():
            request.waited_ns += now_ns - request.queued_ns
            self._recorder.close(request, Status.WAITING, NEVER)

    def stuck(self) -> str | None:
        """What stands still, when nothing more will happen."""
        waiting = len(self._central or ())
        return f"{waiting} requests wait in the central queue, and nobody takes them" if waiting else None


def _arrive(request: Request, member: Member) -> str | None:
    return member.replica.arrive(request)
