"""Replicas and the clients that send to them, on one SimPy clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from simpy import Environment
from simpy.events import Event

from batchsim.alarm import ARRIVE, Alarm
from batchsim.feed import Feed
from batchsim.recorder import Recorder
from batchsim.records import NEVER, Status
from batchsim.replica import Replica
from batchsim.request import Request
from batchsim.workload.columns import ABSENT, Int64, Workload

Front = Callable[[Request], str | None]


class Server(Protocol):
    """What a request is sent to: a replica, or a fleet of them. `number`: who turned the last one away."""

    number: int

    def arrive(self, request: Request) -> str | None:
        """Take a request, or say why not."""
        ...

    def cancel(self, request: Request) -> None:
        """The client of a request that is still here gave up."""
        ...


class Share(NamedTuple):
    """The part of a workload that goes to one replica of a fleet. until_ns: when the last of the whole is sent."""

    places: Int64
    until_ns: int


class Clients:
    """Sends the workload's requests when they are due, and hears when they are done.

    Open loop: at their arrival times.  Closed: each client its next one think_ns after its last answer.  A cap lets that
    many be out at once; the rest wait with their client.
    """

    def __init__(
        self, env: Environment, workload: Workload, replicas: list[Replica], route: Callable[[Request], Server],
        recorder: Recorder, front: Front, *, max_model_len: int, pool_tokens: int, ingress_ns: int = 0,
        horizon_ns: int | None = None, share: Share | None = None,
    ) -> None:  # fmt: skip
        self.env = env
        self._workload = workload
        self._replicas = replicas
        self._route = route
        self._recorder = recorder
        self._front = front
        self._max_model_len = max_model_len
        self._pool_tokens = pool_tokens
        self._ingress_ns = ingress_ns
        self._horizon_ns = horizon_ns
        self._others_until_ns = 0 if share is None else share.until_ns + ingress_ns
        self.feed = Feed(workload, self._bounded, None if share is None else share.places)
        self._next_ns: int | None = None  # when the next one is sent by the clock
        self._alarm: Alarm | None = None  # that sends it
        self._coming = 0  # arrivals that will happen whatever the replicas do,
        self._entering = 0  # so many of them between client and replica
        self._cap = workload.max_concurrency
        self._out = 0
        self._follow = _followers(workload)
        self._answers = 0  # that were given and are not yet followed by the next request
        self._client_queue: deque[Request] = deque()
        self._home: dict[int, Server] = {}
        self.on_draining: Callable[[], None] | None = None  # told whenever that may have changed
        self.closed = workload.clients is not None

    def start(self) -> None:
        """Set the first arrivals going."""
        if self._workload.clients is not None:
            for _ in range(self._workload.clients.concurrency):
                self._send_next_after(0)
        else:
            self._schedule_next()
        self._tell_draining()
        if self._others_until_ns:
            Alarm(self.env, self._others_until_ns, ARRIVE, self._on_others_done)

    # -- open loop -------------------------------------------------------------------------------------------------

    def _schedule_next(self) -> None:
        self._next_ns = due_ns = self.feed.due_ns()
        if due_ns is not None and self._horizon_ns is not None and due_ns >= self._horizon_ns:
            self._next_ns = None
        if self._next_ns is not None:
            self._alarm = Alarm(self.env, self._next_ns - self.env._now, ARRIVE, self._on_due)  # type: ignore[arg-type]

    def _on_due(self, alarm: Event) -> None:
        if alarm is not self._alarm:
            return
        now_ns, feed = self.env._now, self.feed
        due: list[Request] = []
        while feed.due_ns() == now_ns:
            due.append(feed.take())
        self._schedule_next()
        for request in due:
            self._offer(request)
        if self._next_ns is None:
            self._tell_draining()

    def _on_others_done(self, _: Event) -> None:
        self._others_until_ns = 0
        self._tell_draining()

    @property
    def on_the_way(self) -> bool:
        """Whether something was sent that the replicas have not got."""
        return self._coming > 0

    def read_ahead(self, at: int) -> None:
        """A replica has taken those before place `at` of the feed by itself."""
        self.feed.skip_to(at)
        self._schedule_next()
        if self._next_ns is None:
            self._tell_draining()

    def _offer(self, request: Request) -> None:
        if self._cap is not None and self._out >= self._cap:
            self._client_queue.append(request)
        else:
            self._send(request)

    # -- closed loop -----------------------------------------------------------------------------------------------

    def _send_next_after(self, delay_ns: int) -> None:
        if self.feed.at >= self.feed.count:
            return
        request = self.feed.take()
        at_ns: int = self.env._now + delay_ns  # type: ignore[assignment]
        request.arrival_ns = request.scheduled_ns = at_ns
        if self._horizon_ns is not None and at_ns >= self._horizon_ns:
            return
        if delay_ns == 0:
            self._send(request)
            return
        self._coming += 1
        self._tell_draining()

        def send(_: Event) -> None:
            self._coming -= 1
            self._send(request)
            self._tell_draining()

        Alarm(self.env, delay_ns, ARRIVE, send)

    # -- sending, and hearing back -----------------------------------------------------------------------------------

    def _send(self, request: Request) -> None:
        request.arrival_ns = self.env._now  # type: ignore[assignment]
        self._out += 1
        if self._cap is not None:
            self._tell_draining()
        if self._workload.cancel_ns[request.index] != ABSENT:
            self._watch_cancel(request)
        if not self._ingress_ns:
            self._submit(request)
            return
        self._coming += 1
        self._entering += 1
        self._tell_draining()

        def enter(_: Event) -> None:
            self._coming -= 1
            self._entering -= 1
            self._tell_draining()
            if not request.cancelled:
                self._submit(request)

        Alarm(self.env, self._ingress_ns, ARRIVE, enter)

    def _submit(self, request: Request) -> None:
        reason = self._front(request)
        number = 0
        if reason is None:
            server = self._route(request)
            self._home[request.index] = server
            reason = server.arrive(request)
            if reason is None:
                return
            number = server.number
        self.turn_away(request, reason, number)

    def turn_away(self, request: Request, reason: str, replica: int) -> None:
        """A request is rejected by a replica, or at the front door."""
        request.queued_ns = request.arrival_ns
        self._recorder.reasons[request.index] = reason
        self._recorder.close(request, Status.REJECTED, replica)
        self.done(request)
        for other in self._replicas:
            other.wake()

    def done(self, request: Request) -> None:
        """A request was answered, rejected or given up."""
        self._out -= 1
        if self._cap is not None:
            self._tell_draining()
        self._home.pop(request.index, None)
        self._answers += 1
        if self._answers > 1:  # the next one was turned away at once: the loop below is already sending
            return
        if self._follow is not None:
            self._send_next_turn(request)
        while self._answers:
            if self._workload.clients is not None:
                self._send_next_after(self._workload.clients.think_ns)
            elif self._client_queue:
                self._send(self._client_queue.popleft())
            self._answers -= 1

    def _send_next_turn(self, request: Request) -> None:
        """A turn that was answered is followed by the next; any other ends its conversation."""
        assert self._follow is not None
        index = self._follow[request.index]
        if index == ABSENT or request.finished_ns == NEVER:
            return
        think_ns = self._workload.think_ns
        delay_ns = 0 if think_ns is None else int(think_ns[index])
        at_ns: int = self.env._now + delay_ns  # type: ignore[assignment]
        if self._horizon_ns is not None and at_ns >= self._horizon_ns:
            return
        turn = next(self.feed.make(np.array([index])))
        turn.arrival_ns = turn.scheduled_ns = at_ns
        if not delay_ns:
            self._offer(turn)
            return
        self._coming += 1
        self._tell_draining()

        def send(_: Event) -> None:
            self._coming -= 1
            self._offer(turn)
            self._tell_draining()

        Alarm(self.env, delay_ns, ARRIVE, send)

    # -- giving up ----------------------------------------------------------------------------------------------------

    def _watch_cancel(self, request: Request) -> None:
        at_ns = request.arrival_ns + int(self._workload.cancel_ns[request.index])

        def give_up(_: Event) -> None:
            replica = self._home.get(request.index)
            if replica is not None:
                replica.cancel(request)
            elif request.queued_ns == request.arrival_ns and self._ingress_ns and not request.cancelled:
                self._cancel_on_the_way(request)

        Alarm(self.env, at_ns - self.env._now, ARRIVE, give_up)  # type: ignore[arg-type]

    def _cancel_on_the_way(self, request: Request) -> None:
        if self.env._now < request.arrival_ns + self._ingress_ns:
            request.cancelled = True
            self._recorder.reasons[request.index] = "the client gave up"
            self._recorder.close(request, Status.CANCELLED, self._replicas[0].engine.number)
            self.done(request)

    # -- bounds ------------------------------------------------------------------------------------------------------

    def _bounded(self, prompt: Int64, output: Int64, declared: Int64) -> tuple[Int64, Int64]:
        """(tokens they will emit, tokens that they may emit) of requests."""
        room = np.maximum(1, self._max_model_len - prompt)
        absent = declared == ABSENT
        maximum = np.where(absent, np.clip(self._pool_tokens - prompt + 1, 1, room), declared)
        return np.minimum(output, np.minimum(room, np.where(absent, room, declared))), maximum

    def _tell_draining(self) -> None:
        # with a full cap what is due waits with its client until an answer comes
        full = self._cap is not None and self._out >= self._cap
        over = self._coming == 0 and self._next_ns is None and not self._others_until_ns
        draining = self._entering == 0 and (full or over)
        for replica in self._replicas:
            if replica.batch.draining != draining:
                replica.batch.draining = draining
                if draining:
                    replica.wake()
        if self.on_draining is not None:
            self.on_draining()


def _followers(workload: Workload) -> Int64 | None:
    """The request that follows each one's answer, or ABSENT; None where nobody waits for answers."""
    if workload.after is None:
        return None
    turns = np.flatnonzero(workload.after != ABSENT)
    follow = np.full(len(workload), ABSENT, dtype=np.int64)
    follow[workload.after[turns]] = turns
    return follow
