"""The express lane of a replica that plans each step when the one before has ended."""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush

from batchsim.ahead import Planned
from batchsim.cost.model import Shape
from batchsim.express.road import TURN, Comer, Rider, Road, UnderWay, run_until
from batchsim.group import NOBODY
from batchsim.recorder import pack_iteration
from batchsim.records import FS_PER_NS
from batchsim.repeats import HALF_NS, LONGEST_FS, blocks_opened, duration_fs

_new = tuple.__new__  # a third of the time of Shape(...) and Rider(...)

Chunk = tuple[Comer, int, int]
"""Whose prompt, tokens of this step, tokens computed before."""


class Lane(Road):
    """From event to event: prompts that have come, who ends, who comes next."""

    def take(self, now_ns: int, now_fs: int, planned: Planned | None = None) -> bool:
        """Take over from the replica, which plans now, if nothing is in the way; if so, it has its next event."""
        if not self.worth_a_try() or not self._at_most_one_prompt():
            return False
        before, carried = self._sender.feed.at, len(self._replica.batch.seats)
        self._travel(now_ns, now_fs)
        self.judge(self._sender.feed.at - before, carried)
        return True

    def _at_most_one_prompt(self) -> bool:
        """Whether of the running at most the one admitted last prefills."""
        batch = self._replica.batch
        return not batch.prefilling or list(batch.prefilling) == [batch.newest().index]

    def _under_way(self) -> UnderWay | None:
        for request in self._replica.batch.prefilling.values():
            return UnderWay(self._comer(request), request.seat, request._computed, request.admitted_ns)
        return None

    def _plan(
        self, waiting: list[Comer], under_way: UnderWay | None, size: int, free: int
    ) -> tuple[list[Chunk], int, int] | None:
        """Prompts of a step beside `size` decodes: (chunks, how many of them are admitted, blocks); None: somebody must go."""
        terms, block = self._terms, self._replica.batch.block
        budget, running, blocks = terms.tokens - size, size, 0
        chunks: list[Chunk] = []
        if under_way is not None:
            comer, _, done, _ = under_way
            tokens = min(comer[2] - done, budget)
            if tokens <= 0:
                return None
            if not terms.holds_prompt:
                blocks = -(-(done + tokens) // block) - -(-done // block)
            if blocks > free:
                return None
            chunks.append((comer, tokens, done))
            budget -= tokens
            running += 1
        admitted = 0
        for comer in waiting:
            prompt = comer[2]
            if budget <= 0 or running >= terms.seats or (prompt > budget and not terms.chunked):
                break
            tokens = prompt if prompt < budget else budget
            need = -(-(prompt if terms.holds_prompt else tokens) // block)
            room = -(-prompt // block) if terms.asks_prompt else need
            spare = terms.spare if running or terms.spare_alone else 0
            if blocks + room + spare > free:
                break
            chunks.append((comer, tokens, 0))
            admitted += 1
            running += 1
            blocks += need
            budget -= tokens
        return chunks, admitted, blocks

    def _travel(self, now_ns: int, now_fs: int) -> None:
        """From the start of a step at `now_ns`, exactly `now_fs`, to that of the first step which is not plain."""
        replica, terms = self._replica, self._terms
        batch, number, put, price = replica.batch, replica.number, replica.put, replica.price
        group, pool, block = batch.group, batch.pool, batch.block
        take, retire, total = pool.take, pool.retire, pool.total
        headroom, ordered = terms.headroom, self._order is not None
        gone, gone_ns = self._gone.append, self._gone_ns.append
        under_way = self._under_way()
        riders, residues, waiting, fresh = self._board()
        size, ticks, offsets = group.hand_over()
        seat, last_tick_ns = batch._admissions, group.last_tick_ns
        at = self._sender.feed.at
        first, places, due_times, prompts, limits, stops, stop_ns = self._read(at)
        due_ns = due_times[at - first]
        while True:
            while due_ns <= now_ns:
                if due_ns == TURN:
                    self._write_down()
                    first, places, due_times, prompts, limits, stops, stop_ns = self._read(at)
                else:
                    here = at - first
                    waiting.append((places[here], due_ns, prompts[here], limits[here], stops[here]))
                    at += 1
                due_ns = due_times[at - first]
            if not (size or waiting or under_way):
                if due_ns >= stop_ns or due_ns == NOBODY:
                    break
                now_ns, now_fs = due_ns, due_ns * FS_PER_NS
                continue
            opened = residues[-ticks % block] if size else 0
            free = pool.free - opened
            if (free < headroom and size) or size >= terms.tokens:
                break
            if ordered and len(waiting) > 1:
                self._sort(waiting)
            chunks: list[Chunk] = []
            if waiting or under_way:
                planned = self._plan(waiting, under_way, size, free)
                if planned is None or not (planned[0] or size):
                    break
                chunks, admitted, need = planned
            context = offsets + size * (ticks + 1)
            if chunks:
                tokens = squares = pasts = 0
                for _, chunk, past in chunks:
                    tokens += chunk
                    squares += chunk * (2 * past + chunk)
                    pasts += past
                first_fs = price(_new(Shape, (tokens, squares, pasts, len(chunks), size, context)))[0]
                end_fs = now_fs + first_fs
                end_ns = (end_fs + HALF_NS) // FS_PER_NS
                if end_ns >= stop_ns:
                    break
                take(opened + need)
                used = total - pool.free
                if admitted:
                    del waiting[:admitted]
                    if self._keys and not waiting:
                        self._keys.clear()
                put(pack_iteration(
                    number, now_ns, end_ns, 1, tokens, squares, size, context, 0, size + len(chunks), len(waiting),
                    used, used, 0, ticks, size - len(fresh), size, first_fs, 0, now_fs - now_ns * FS_PER_NS,
                ))  # fmt: skip
                ticked = size > 0
                if ticked:
                    ticks += 1
                    last_tick_ns = end_ns
                    if fresh:
                        self._note_gaps(fresh, end_ns)
                        fresh = []
                going_on, under_way = under_way, None
                for comer, chunk, past in chunks:
                    place, queued_ns, prompt, limit, _ = comer
                    if past:
                        assert going_on is not None
                        _, its_seat, _, admitted_ns = going_on
                    else:
                        seat += 1
                        its_seat, admitted_ns = seat, now_ns
                    if past + chunk < prompt:
                        under_way = UnderWay(comer, its_seat, past + chunk, admitted_ns)
                        continue
                    span_from = ticks
                    if not ticked:
                        span_from += 1
                        if limit > 1:
                            fresh.append((place, end_ns))
                    heappush(riders, _new(
                        Rider, (ticks - 1 + limit, its_seat, place, prompt, limit, queued_ns, admitted_ns, end_ns, span_from)
                    ))  # fmt: skip
                    offset = prompt - ticks
                    offsets += offset
                    residues[offset % block] += 1
                    size += 1
                now_ns, now_fs = end_ns, end_fs
            else:
                first_fs, growth_fs = price(_new(Shape, (0, 0, 0, 0, size, context)))
                repeats = riders[0][0] - ticks
                if growth_fs is None or repeats == 1:
                    repeats, growth_fs = 1, 0
                # where somebody waits, and nobody can pass, nobody hears who comes before anybody ends
                deaf = bool(waiting) and not ordered
                repeats, end_fs, end_ns = run_until(now_fs, first_fs, growth_fs, repeats, NOBODY if deaf else due_ns)
                if end_ns >= stop_ns or end_fs - now_fs > LONGEST_FS:
                    break
                late = 0
                if deaf and repeats > 1:
                    last_fs = now_fs + duration_fs(repeats - 1, first_fs, growth_fs)
                    here = at - first
                    late = bisect_right(due_times, (last_fs + HALF_NS) // FS_PER_NS, here, len(places)) - here
                    if here + late == len(places) and due_times[-1] == TURN:  # more may have come: step by step
                        repeats, late, growth_fs, end_fs = 1, 0, 0, now_fs + first_fs
                        end_ns = (end_fs + HALF_NS) // FS_PER_NS
                need = blocks_opened(residues, size, ticks, repeats)
                if need + headroom > pool.free:
                    break
                if need:
                    take(need)
                used = total - pool.free
                put(pack_iteration(
                    number, now_ns, end_ns, repeats, 0, 0, size, context, 0, size, len(waiting) + late, used,
                    used - need + opened, 0, ticks, size - len(fresh), size, first_fs, growth_fs,
                    now_fs - now_ns * FS_PER_NS,
                ))  # fmt: skip
                if fresh:
                    self._note_gaps(fresh, (now_fs + first_fs + HALF_NS) // FS_PER_NS)
                    fresh = []
                ticks += repeats
                now_ns, now_fs, last_tick_ns = end_ns, end_fs, end_ns
            while riders and riders[0][0] <= ticks:
                rider = heappop(riders)
                end_tick, _, _, prompt, limit, _, _, _, _ = rider
                offset = prompt - 1 + limit - end_tick
                size -= 1
                offsets -= offset
                residues[offset % block] -= 1
                computed = prompt + limit - 1
                retire(-(-computed // block), computed)
                gone(rider)
                gone_ns(now_ns)
        batch._admissions, group.clock.ticks, group.last_tick_ns = seat, ticks, last_tick_ns
        self._write_down()
        self._alight(riders, [], fresh)
        if under_way is not None:
            self._alight_under_way(under_way)
        self._alight([], waiting, [])
        self._hand_back(now_ns, now_fs, at, idle=not (riders or waiting or under_way))
