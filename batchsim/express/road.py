"""What both kinds of express lane share: getting on and off, reading arrivals ahead, and writing down who has ended."""

from __future__ import annotations

from heapq import heapify
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from batchsim.feed import Feed, Plain
from batchsim.group import NOBODY
from batchsim.records import FS_PER_NS, NEVER
from batchsim.repeats import HALF_NS, duration_fs, ticks_reaching
from batchsim.request import Request
from batchsim.scheduler import Express, attribute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from batchsim.replica import Replica

TURN = -1
"""Stands at the end of a page: the next must be read."""
AGAIN = 32
"""Plans until the next try after one that found somebody in the way, or carried few; then twice as many, up to 2048."""

Comer = tuple[int, int, int, int, bool]
"""Who waits: place, queued_ns, prompt tokens, limit, whether it stops by itself before its limit."""
Fresh = tuple[int, int]
"""Who joined without a tick: place, and when."""


class Rider(NamedTuple):
    """A request that decodes on the lane; sorted by the tick of its last token."""

    end_tick: int
    seat: int
    place: int
    prompt_tokens: int
    limit: int
    queued_ns: int
    admitted_ns: int
    first_token_ns: int
    span_from: int


class UnderWay(NamedTuple):
    """A prompt of which `done` tokens are computed."""

    comer: Comer
    seat: int
    done: int
    admitted_ns: int


class Stretch(NamedTuple):
    """A page of the feed as the lane reads it, from place `first` on. stop_ns: when the lane must end at the latest."""

    first: int
    places: list[int]
    due_ns: list[int]
    prompts: list[int]
    limits: list[int]
    stops: list[bool]
    stop_ns: int


class Sender(Protocol):
    """The clients, as the lane needs them."""

    feed: Feed

    @property
    def on_the_way(self) -> bool:
        """Whether something was sent that the replicas have not got."""
        ...

    def read_ahead(self, at: int) -> None:
        """Those before place `at` of the feed have been taken."""
        ...


def run_until(now_fs: int, first_fs: int, growth_fs: int, repeats: int, due_ns: int) -> tuple[int, int, int]:
    """Of a run of up to `repeats` steps that starts now, those up to the one in which somebody comes: (repeats, end_fs, end_ns)."""
    end_fs = now_fs + duration_fs(repeats, first_fs, growth_fs)
    end_ns = (end_fs + HALF_NS) // FS_PER_NS
    if end_ns > due_ns and repeats > 1:
        repeats = ticks_reaching(due_ns * FS_PER_NS - HALF_NS - now_fs, first_fs, growth_fs)
        end_fs = now_fs + duration_fs(repeats, first_fs, growth_fs)
        end_ns = (end_fs + HALF_NS) // FS_PER_NS
    return repeats, end_fs, end_ns


def work_of(prompts: list[Comer], block: int) -> tuple[int, int, int]:
    """(tokens, their squares summed, KV blocks) of whole prompts."""
    tokens = squares = blocks = 0
    for _, _, prompt, _, _ in prompts:
        tokens += prompt
        squares += prompt * prompt
        blocks += -(-prompt // block)
    return tokens, squares, blocks


class Road:
    """The express lane of one replica, the only one, whose clients send by the clock and hear nothing."""

    def __init__(self, replica: Replica, sender: Sender, terms: Express, plain: Plain, *, ingress_ns: int) -> None:
        """plain: requests that the front door lets in."""
        self._replica, self._sender, self._terms = replica, sender, terms
        self._ingress_ns = ingress_ns
        pool = replica.batch.pool
        self._longest = (pool.total - terms.spare if terms.spare_alone else pool.total) * pool.size
        if not terms.chunked:
            self._longest = min(self._longest, terms.tokens)
        self._plain: Plain = lambda prompt, output: plain(prompt, output) & (prompt <= self._longest)
        self._patience = 0  # plans to come before the next try
        self._wait = AGAIN
        self._gone: list[Rider] = []  # have their last token, not yet recorded
        self._gone_ns: list[int] = []  # since when
        self._odd_gaps: dict[int, int] = {}  # by place, the gap that no tick shows
        self._order = attribute(replica.engine.scheduler, "order", None)
        self._keys: dict[int, Any] = {}  # by place, where those who wait beside others stand in the queue

    # -- whether ---------------------------------------------------------------------------------------------------

    def worth_a_try(self) -> bool:
        """Whether everyone here can go by express; after a failure not for some time."""
        if self._patience > 0:
            self._patience -= 1
            return False
        if self._sender.on_the_way:
            return False
        if not self._uncontended():
            self._patience = AGAIN
            return False
        return True

    def judge(self, served: int, carried: int) -> None:
        """How long to wait after a trip that read `served` arrivals and took `carried` requests on."""
        if 4 * served > carried:  # getting on and off costs a request a fifth of what the plain path does
            self._wait, self._patience = AGAIN, 1  # the step at which it ended is planned as always
        else:
            self._wait = min(2 * self._wait, 2048)
            self._patience = max(self._wait, 1)

    def _uncontended(self) -> bool:
        """Whether nobody here has a past that the lane does not know."""
        batch = self._replica.batch
        group, block = batch.group, batch.block
        if batch.resting or group.ghosts or group.size + len(batch.prefilling) != len(batch.seats):
            return False
        if self._replica.evicted or not (batch.seats or batch.queue):
            return False  # an eviction of an empty plan stands in the row to come
        return not any(
            request.preemptions or request.cancelled or request.hold_blocks > -(-request.prompt_tokens // block)
            for request in chain(batch.seats.values(), batch.queue.values())
        )

    # -- on and off ------------------------------------------------------------------------------------------------

    def _board(self) -> tuple[list[Rider], list[int], list[Comer], list[Fresh]]:
        """Those who decode, the residues of their contexts, who wait, and who joined without a tick.

        The batch is empty then but for its group's sums.
        """
        batch = self._replica.batch
        residues = [0] * batch.block
        riders = [
            Rider(
                request.base + request.limit, request.seat, request.index, request.prompt_tokens, request.limit,
                request.queued_ns, request.admitted_ns, request.first_token_ns, request.span_from,
            )
            for request in batch.seats.values() if request.base is not None
        ]  # fmt: skip
        heapify(riders)
        for rider in riders:
            residues[(rider.prompt_tokens - 1 - rider.end_tick + rider.limit) % batch.block] += 1
        for request in batch.seats.values():
            if request.odd_gap_ns:
                self._odd_gaps[request.index] = request.odd_gap_ns
        waiting = [self._comer(request) for request in batch.queue.values()]
        fresh = [(request.index, request.fresh_ns) for request in batch.group.fresh]
        batch.seats.clear()
        batch.prefilling.clear()
        for request in list(batch.queue.values()):
            batch.queue.leave(request)
        return riders, residues, waiting, fresh

    def _comer(self, request: Request) -> Comer:
        stops = request.limit < min(request.max_tokens, self._replica.batch.max_model_len - request.prompt_tokens)
        return request.index, request.queued_ns, request.prompt_tokens, request.limit, stops

    def _alight(self, riders: list[Rider], waiting: list[Comer], fresh: list[Fresh]) -> None:
        """They become requests again: seats in order of admission, then the queue."""
        batch, fresh_ns = self._replica.batch, dict(fresh)
        group = batch.group
        riders.sort(key=_seat)
        for rider, request in zip(riders, self._requests(rider.place for rider in riders), strict=True):
            request.clock = batch.clock
            request.seat, request.queued_ns = rider.seat, rider.queued_ns
            request.admitted_ns = request.seated_ns = rider.admitted_ns
            request.first_token_ns = rider.first_token_ns
            request.waited_ns = rider.admitted_ns - rider.queued_ns
            request.odd_gap_ns = self._odd_gaps.pop(rider.place, 0)
            request._emitted = group.clock.ticks - (rider.end_tick - rider.limit)
            since_ns = fresh_ns.get(rider.place, NEVER)
            group.join(request, since_ns, ticked=since_ns == NEVER)
            request.span_from = rider.span_from
            batch.seats[rider.place] = request
        for comer, request in zip(waiting, self._requests(place for place, *_ in waiting), strict=True):
            request.queued_ns = comer[1]
            batch.push(request)

    def _alight_under_way(self, under_way: UnderWay) -> None:
        """The prompt under way becomes a request again, the last to have been admitted."""
        batch, (comer, seat, done, admitted_ns) = self._replica.batch, under_way
        (request,) = self._requests([comer[0]])
        request.clock, request.seat, request.queued_ns = batch.clock, seat, comer[1]
        request.admitted_ns = request.seated_ns = admitted_ns
        request.waited_ns = admitted_ns - request.queued_ns
        request._computed = done
        request.blocks = -(-done // batch.block)
        if self._terms.holds_prompt:
            request.blocks = -(-request.prompt_tokens // batch.block)
        request.published = done if batch.pool.caching else 0
        batch.seats[request.index] = batch.prefilling[request.index] = request

    def _sort(self, waiting: list[Comer]) -> None:
        """Let them stand as the scheduler's order has it, equals by arrival."""
        keys = self._keys
        new = [place for place, *_ in waiting if place not in keys]
        for request in self._requests(new) if new else ():
            keys[request.index] = (self._order(request), request.rank)
        waiting.sort(key=lambda comer: keys[comer[0]])

    def _requests(self, places: Iterable[int]) -> Iterable[Request]:
        return self._sender.feed.make(np.array(list(places), dtype=np.int64))

    # -- reading and writing -----------------------------------------------------------------------------------------

    def _read(self, at: int) -> Stretch:
        """The page on which place `at` of the feed stands."""
        feed, horizon_ns = self._sender.feed, self._replica.horizon_ns
        stop_ns = NOBODY if horizon_ns is None else horizon_ns
        if at >= feed.count:
            return Stretch(at, [], [NOBODY], [], [], [], stop_ns)
        page = feed.page(at, self._plain)
        due_ns = [due + self._ingress_ns for due in page.due_ns] if self._ingress_ns else page.due_ns
        odd_ns = next((due_ns[odd] for odd in page.odd if page.first + odd >= at), NOBODY)
        end = NOBODY if page.first + len(due_ns) >= feed.count else TURN
        return Stretch(
            page.first, page.places, [*due_ns, end], page.prompt_tokens, page.limits, page.stops, min(odd_ns, stop_ns)
        )

    def _note_gaps(self, fresh: list[Fresh], end_ns: int) -> None:
        """The first tick of those who had joined without one."""
        for place, since_ns in fresh:
            self._odd_gaps[place] = end_ns - since_ns
            self._replica.batch.group.note_gap(end_ns - since_ns, place, end_ns)

    def _write_down(self) -> None:
        """Record those who have ended."""
        if not self._gone:
            return
        rows = np.fromiter(chain.from_iterable(self._gone), np.int64).reshape(-1, len(Rider._fields))
        end_tick, _, place, _, limit, queued_ns, admitted_ns, first_token_ns, span_from = rows.T
        odd_gaps = [self._odd_gaps.pop(one, 0) for one in place.tolist()] if self._odd_gaps else 0
        finished_ns = np.array(self._gone_ns, dtype=np.int64)
        columns = {
            "index": place,
            "arrival_ns": queued_ns - self._ingress_ns,
            "scheduled_ns": queued_ns - self._ingress_ns,
            "admitted_ns": admitted_ns,
            "first_token_ns": first_token_ns,
            "finished_ns": finished_ns,
            "emitted_tokens": limit,
            "waited_ns": admitted_ns - queued_ns,
            "ran_ns": finished_ns - admitted_ns,
            "odd_gap_ns": np.array(odd_gaps, dtype=np.int64),
        }
        self._replica.engine.recorder.complete(self._replica.number, columns)
        self._replica.batch.group.note_spans(place, span_from, end_tick)
        self._gone.clear()
        self._gone_ns.clear()

    def _hand_back(self, now_ns: int, now_fs: int, at: int, *, idle: bool) -> None:
        """Back on SimPy's clock: the replica goes on at `now_ns`, if anybody is here."""
        replica = self._replica
        replica.busy, replica.planned, replica.alarm = False, False, None
        replica.end_fs, replica.last_ns = now_fs, now_ns
        if not idle:
            replica.set_alarm(now_ns - replica.env._now, replica.planning, replica.on_resume)  # type: ignore[arg-type]
            replica.planned = True
        self._sender.read_ahead(at)


def _seat(rider: Rider) -> int:
    return rider.seat
