"""The express lane of a replica that plans each step when the one before has ended."""

from __future__ import annotations

from heapq import heappop, heappush

from batchsim.ahead import Planned
from batchsim.cost.model import Shape
from batchsim.express.road import HALF_NS, TURN, Rider, Road, run_until, work_of
from batchsim.group import NOBODY
from batchsim.recorder import pack_iteration
from batchsim.records import FS_PER_NS
from batchsim.repeats import LONGEST_FS, blocks_opened

_new = tuple.__new__  # a third of the time of Shape(...) and Rider(...)


class Lane(Road):
    """From event to event: prompts that have come, who ends, who comes next."""

    def take(self, now_ns: int, now_fs: int, planned: Planned | None = None) -> bool:
        """Take over from the replica, which plans now, if nothing is contended; if so, it has its next event."""
        if not self.worth_a_try() or self._replica.batch.prefilling:
            return False
        before, carried = self._sender.feed.at, len(self._replica.batch.seats)
        self._travel(now_ns, now_fs)
        self.judge(self._sender.feed.at - before, carried)
        return True

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
            if waiting:
                tokens, squares, need = work_of(waiting, block)
                need += residues[-ticks % block]
                running = size + len(waiting)
                if tokens + size > budget or running >= seats or need + spare > pool.free:
                    break
                context = offsets + size * (ticks + 1)
                first_fs = price(_new(Shape, (tokens, squares, 0, len(waiting), size, context)))[0]
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
                    fresh = [(place, end_ns) for place, _, _, limit, _ in waiting if limit > 1]
                base = ticks - 1
                for place, queued_ns, prompt, limit, _ in waiting:
                    seat += 1
                    rider = _new(
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
                first_fs, growth_fs = price(_new(Shape, (0, 0, 0, 0, size, context)))
                repeats = next_end - ticks
                if growth_fs is None or repeats == 1:
                    repeats, growth_fs = 1, 0
                repeats, end_fs, end_ns = run_until(now_fs, first_fs, growth_fs, repeats, due_ns)
                if end_ns >= stop_ns or end_fs - now_fs > LONGEST_FS:
                    break
                need = blocks_opened(residues, size, ticks, repeats)
                if need > pool.free:
                    break
                if need:
                    take(need)
                used = total - pool.free
                at_first = used - need + residues[-ticks % block]
                put(pack_iteration(
                    number, now_ns, end_ns, repeats, 0, 0, size, context, 0, size, 0, used, at_first, 0, ticks,
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
                end_tick, _, _, prompt, limit, _, _, _, _ = rider
                offset = prompt - 1 + limit - end_tick
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
        self._hand_back(now_ns, now_fs, at, idle=not (riders or waiting))
