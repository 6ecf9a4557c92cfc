"""The express lane: a replica on which nothing is contended, in one loop over columns.

While everybody decodes and whoever arrives fits at once (`scheduler.Express`), what the next step is needs no asking: all
who have come are admitted whole and everybody decodes. So requests are not made into objects, and no event is waited for:
arrivals are read ahead from the clients' feed. Before anything else could happen (blocks, seats or the token budget
run short, an odd request, the horizon) the lane ends at the start of a step, everyone in it becomes a `Request` again, and
the replica plans that step as always. Records are the same to the last number (`tests/laws/test_express.py`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from batchsim.alarm import Alarm
from batchsim.cost.model import Shape
from batchsim.feed import Feed, Plain
from batchsim.group import NOBODY
from batchsim.recorder import pack_iteration
from batchsim.records import FS_PER_NS, NEVER
from batchsim.repeats import LONGEST_FS, ticks_reaching
from batchsim.scheduler import Express

if TYPE_CHECKING:
    from batchsim.replica import Replica

HALF_NS = FS_PER_NS // 2
TURN = -1
"""Stands at the end of a page: the next must be read."""
AGAIN = 32
"""Plans until the next try, at first and at most 2048 of them, after one that carried few."""

_shape = tuple.__new__  # a third of the time of Shape(...)


class Rider(NamedTuple):
    """A request on the lane, sorted by the tick of its last token."""

    end_tick: int
    seat: int
    place: int
    prompt_tokens: int
    limit: int
    queued_ns: int
    admitted_ns: int
    first_token_ns: int
    span_from: int


_rider = tuple.__new__


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


class Lane:
    """The express lane of one replica, the only one, whose clients send by the clock and hear nothing."""

    def __init__(self, replica: Replica, sender: Sender, terms: Express, plain: Plain, *, ingress_ns: int) -> None:
        """plain: requests that the front door lets in."""
        self._replica, self._sender, self._terms = replica, sender, terms
        self._ingress_ns = ingress_ns
        self._plain: Plain = lambda prompt, output: plain(prompt, output) & (prompt <= terms.tokens)
        self._patience = 0  # plans to come before the next try
        self._wait = AGAIN
        self._gone: list[Rider] = []  # have their last token, not yet recorded
        self._gone_ns: list[int] = []  # since when
        self._odd_gaps: dict[int, int] = {}  # by place, the gap that no tick shows

    # -- on and off ------------------------------------------------------------------------------------------------

    def take(self, now_ns: int, now_fs: int) -> bool:
        """Take over from the replica, if nothing is contended; it has its next event when this returns True."""
        if self._patience > 0:
            self._patience -= 1
            return False
        if not self._open():
            self._patience = AGAIN
            return False
        before = self._sender.feed.at
        carried = len(self._replica.batch.seats)
        self._travel(now_ns, now_fs)
        self._wait = min(2 * self._wait, 2048) if self._sender.feed.at - before <= carried + 4 else AGAIN
        self._patience = max(self._wait, 1)  # the step at which it ended is planned as always
        return True

    def _open(self) -> bool:
        """Whether everyone here can go by express."""
        batch = self._replica.batch
        group = batch.group
        if batch.prefilling or batch.resting or group.ghosts or group.size != len(batch.seats):
            return False
        if not (batch.seats or batch.queue):
            return False
        if group.size + len(batch.queue) >= self._terms.seats or self._sender.on_the_way:
            return False
        if any(
            r.preemptions or r.hold_blocks or r.cancelled for r in chain(batch.seats.values(), batch.queue.values())
        ):
            return False
        tokens = sum(request.prompt_tokens for request in batch.queue.values())
        return tokens + group.size <= self._terms.tokens

    def _board(self) -> tuple[list[Rider], list[tuple[int, int, int, int]], list[tuple[int, int]]]:
        """Those who decode, who wait (place, queued_ns, prompt, limit), and who joined without a tick (place, when)."""
        batch = self._replica.batch
        riders = [
            Rider(
                request.base + request.limit, request.seat, request.index, request.prompt_tokens, request.limit,
                request.queued_ns, request.admitted_ns, request.first_token_ns, request.span_from,
            )
            for request in batch.seats.values() if request.base is not None
        ]  # fmt: skip
        heapify(riders)
        for request in batch.seats.values():
            if request.odd_gap_ns:
                self._odd_gaps[request.index] = request.odd_gap_ns
        waiting = [(r.index, r.queued_ns, r.prompt_tokens, r.limit) for r in batch.queue.values()]
        fresh = [(request.index, request.fresh_ns) for request in batch.group.fresh]
        batch.seats.clear()
        for request in list(batch.queue.values()):
            batch.queue.leave(request)
        return riders, waiting, fresh

    def _alight(
        self, riders: list[Rider], waiting: list[tuple[int, int, int, int]], fresh: list[tuple[int, int]]
    ) -> None:
        """They become requests again, in order of admission."""
        batch = self._replica.batch
        group = batch.group
        riders.sort(key=_seat)
        places = np.array([*(rider.place for rider in riders), *(place for place, *_ in waiting)], dtype=np.int64)
        requests = self._sender.feed.make(places)
        fresh_ns = dict(fresh)
        for rider, request in zip(riders, requests, strict=False):
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
        for (_, queued_ns, _, _), request in zip(waiting, requests, strict=True):
            request.queued_ns = queued_ns
            batch.push(request)

    # -- the way ---------------------------------------------------------------------------------------------------

    def _travel(self, now_ns: int, now_fs: int) -> None:
        """From the start of a step at `now_ns`, exactly `now_fs`, to that of the first step which is not plain."""
        replica, terms = self._replica, self._terms
        batch, number, put, price = replica.batch, replica.number, replica.put, replica.price
        group, pool, block = batch.group, batch.pool, batch.block
        take, retire, total, seats, budget = pool.take, pool.retire, pool.total, terms.seats, terms.tokens
        spare = int(terms.watermark * (total + 1))
        gone, gone_ns = self._gone.append, self._gone_ns.append
        riders, waiting, fresh = self._board()
        size, ticks, offsets, residues = group.hand_over()
        seat, last_tick_ns = batch._admissions, group.last_tick_ns
        next_end = riders[0][0] if riders else NOBODY
        at, (places, due_times, prompts, limits, stop_ns) = self._sender.feed.at, self._page(self._sender.feed.at)
        first = self._first
        due_ns = due_times[at - first]
        while True:
            while due_ns <= now_ns:
                if due_ns == TURN:
                    self._write_down()
                    places, due_times, prompts, limits, stop_ns = self._page(at)
                    first = self._first
                else:
                    here = at - first
                    waiting.append((places[here], due_ns, prompts[here], limits[here]))
                    at += 1
                due_ns = due_times[at - first]
            if waiting:
                tokens = squares = 0
                need = residues[-ticks % block]
                for _, _, prompt, _ in waiting:
                    tokens += prompt
                    squares += prompt * prompt
                    need += -(-prompt // block)
                running = size + len(waiting)
                if tokens + size > budget or running >= seats or need + spare > pool.free:
                    break
                context = offsets + size * (ticks + 1)
                first_fs = price(_shape(Shape, (tokens, squares, 0, len(waiting), size, context)))[0]
                end_fs = now_fs + first_fs
                end_ns = (end_fs + HALF_NS) // FS_PER_NS
                if end_ns >= stop_ns:
                    break
                take(need)
                used = total - pool.free
                put(pack_iteration(
                    number, now_ns, end_ns, 1, tokens, squares, size, context, 0, running, 0, used, used, 0, ticks,
                    size - len(fresh), size, first_fs, 0, now_fs - now_ns * FS_PER_NS,
                ))  # fmt: skip
                if size:
                    ticks += 1
                    last_tick_ns = end_ns
                    if fresh:
                        self._note_gaps(fresh, end_ns)
                        fresh = []
                    span_from = ticks
                else:
                    span_from = ticks + 1
                    fresh = [(place, end_ns) for place, _, _, limit in waiting if limit > 1]
                base = ticks - 1
                for place, queued_ns, prompt, limit in waiting:
                    seat += 1
                    rider = _rider(
                        Rider, (base + limit, seat, place, prompt, limit, queued_ns, now_ns, end_ns, span_from)
                    )
                    heappush(riders, rider)
                    offset = prompt - ticks
                    offsets += offset
                    residues[offset % block] += 1
                size = running
                waiting = []
                now_ns, now_fs = end_ns, end_fs
            elif size:
                context = offsets + size * (ticks + 1)
                first_fs, growth_fs = price(_shape(Shape, (0, 0, 0, 0, size, context)))
                repeats = next_end - ticks
                if growth_fs is None or repeats == 1:
                    repeats, growth_fs = 1, 0
                    lasts_fs = first_fs
                else:
                    lasts_fs = repeats * first_fs + growth_fs * (repeats * (repeats - 1) // 2)
                end_fs = now_fs + lasts_fs
                end_ns = (end_fs + HALF_NS) // FS_PER_NS
                if end_ns > due_ns and repeats > 1:
                    repeats = ticks_reaching(due_ns * FS_PER_NS - HALF_NS - now_fs, first_fs, growth_fs)
                    lasts_fs = repeats * first_fs + growth_fs * (repeats * (repeats - 1) // 2)
                    end_fs = now_fs + lasts_fs
                    end_ns = (end_fs + HALF_NS) // FS_PER_NS
                if end_ns >= stop_ns or lasts_fs > LONGEST_FS:
                    break
                need = opened = residues[-ticks % block]
                if repeats > 1:
                    full, rest = divmod(repeats - 1, block)
                    need += full * size
                    if rest:
                        high = -(ticks + 1) % block + 1
                        low = high - rest
                        need += sum(residues[low:high]) if low >= 0 else sum(residues[:high]) + sum(residues[low:])
                if need > pool.free:
                    break
                if need:
                    take(need)
                used = total - pool.free
                put(pack_iteration(
                    number, now_ns, end_ns, repeats, 0, 0, size, context, 0, size, 0, used, used - need + opened, 0, ticks,
                    size - len(fresh), size, first_fs, growth_fs, now_fs - now_ns * FS_PER_NS,
                ))  # fmt: skip
                if fresh:
                    self._note_gaps(fresh, (now_fs + first_fs + HALF_NS) // FS_PER_NS)
                    fresh = []
                ticks += repeats
                now_ns, now_fs, last_tick_ns = end_ns, end_fs, end_ns
            elif due_ns >= stop_ns or due_ns == NOBODY:
                break
            else:
                now_ns, now_fs = due_ns, due_ns * FS_PER_NS
                continue
            while riders and riders[0][0] <= ticks:
                rider = heappop(riders)
                _, _, _, prompt, limit, *_ = rider
                offset = prompt - 1 - rider[0] + limit
                size -= 1
                offsets -= offset
                residues[offset % block] -= 1
                computed = prompt + limit - 1
                retire(-(-computed // block), computed)
                gone(rider)
                gone_ns(now_ns)
            next_end = riders[0][0] if riders else NOBODY
        batch._admissions, group.clock.ticks, group.last_tick_ns = seat, ticks, last_tick_ns
        self._write_down()
        self._alight(riders, waiting, fresh)
        self._resume(now_ns, now_fs, at, idle=not (riders or waiting))

    def _resume(self, now_ns: int, now_fs: int, at: int, *, idle: bool) -> None:
        """Back on SimPy's clock, where the replica plans at `now_ns`, if anybody is here."""
        replica, env = self._replica, self._replica.env
        replica.busy = False
        replica.end_fs, replica.last_ns = now_fs, now_ns
        replica.planned = not idle
        replica.alarm = None if idle else Alarm(env, now_ns - env._now, replica.planning, replica.on_resume)  # type: ignore[arg-type]
        self._sender.read_ahead(at)

    # -- reading and writing -----------------------------------------------------------------------------------------

    def _page(self, at: int) -> tuple[list[int], list[int], list[int], list[int], int]:
        """places, due times, prompts and limits of a page, and when the lane must end at the latest."""
        feed = self._sender.feed
        if at >= feed.count:
            self._first = at
            return [], [NOBODY], [], [], self._horizon_ns()
        page = feed.page(at, self._plain)
        self._first = page.first
        due_times = page.due_ns
        if self._ingress_ns:
            due_times = [due_ns + self._ingress_ns for due_ns in due_times]
        last = page.first + len(due_times) >= feed.count
        stop_ns = next((due_times[odd] for odd in page.odd if page.first + odd >= at), NOBODY)
        return (
            page.places, [*due_times, NOBODY if last else TURN], page.prompt_tokens, page.limits,
            min(stop_ns, self._horizon_ns()),
        )  # fmt: skip

    def _horizon_ns(self) -> int:
        return NOBODY if self._replica.horizon_ns is None else self._replica.horizon_ns

    def _note_gaps(self, fresh: list[tuple[int, int]], end_ns: int) -> None:
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
        self._replica.engine.recorder.complete(
            self._replica.number,
            {
                "index": place,
                "arrival_ns": queued_ns - self._ingress_ns,
                "scheduled_ns": queued_ns - self._ingress_ns,
                "admitted_ns": admitted_ns,
                "first_token_ns": first_token_ns,
                "finished_ns": np.array(self._gone_ns),
                "emitted_tokens": limit,
                "waited_ns": admitted_ns - queued_ns,
                "ran_ns": np.array(self._gone_ns) - admitted_ns,
                "odd_gap_ns": np.array(odd_gaps),
            },
        )
        self._replica.batch.group.note_spans(place, span_from, end_tick)
        self._gone.clear()
        self._gone_ns.clear()


def _seat(rider: Rider) -> int:
    return rider.seat
