"""The express lane of a replica that plans each step when the one before starts: asynchronous scheduling.

Who comes is admitted one step later, and whoever has the last token in a step keeps seat and blocks until it has ended,
when the next is already planned: one that ends at its declared limit is left out of that plan, one that stops by
itself decodes once more, for nothing.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from batchsim.ahead import Planned
from batchsim.cost.model import Shape
from batchsim.express.road import TURN, Comer, Rider, Road, Sender, run_until, work_of
from batchsim.feed import Plain
from batchsim.group import NOBODY
from batchsim.recorder import pack_iteration
from batchsim.records import FS_PER_NS
from batchsim.repeats import HALF_NS, LONGEST_FS, blocks_opened
from batchsim.scheduler import ONCE, Express
from batchsim.step import Chunk

if TYPE_CHECKING:
    from batchsim.replica import Replica

_new = tuple.__new__


class Next(NamedTuple):
    """The step planned ahead. prompts: of those whom it admits; the other figures as when it was planned."""

    prompts: list[Comer]
    decodes: int
    context: int
    running: int
    blocks: int


class LaneAhead(Road):
    """As `Lane`, one step ahead of the GPU, while all who come can be admitted whole."""

    def __init__(self, replica: Replica, sender: Sender, terms: Express, plain: Plain, *, ingress_ns: int) -> None:
        super().__init__(replica, sender, terms, plain, ingress_ns=ingress_ns)
        self._longest = min(self._longest, terms.tokens)

    def take(self, now_ns: int, now_fs: int, planned: Planned | None = None) -> bool:
        """Take over from the replica, where the step `planned` starts now, or which plans now; as `Lane.take`."""
        if not self.worth_a_try() or not self._fits():
            return False
        coming = None if planned is None else self._coming(planned)
        if coming is None and (planned is not None or self._replica.batch.seats):
            return False
        before, carried = self._sender.feed.at, len(self._replica.batch.seats)
        self._travel(now_ns, now_fs, coming)
        self.judge(self._sender.feed.at - before, carried)
        return True

    def _fits(self) -> bool:
        """Whether those who wait can all be admitted whole."""
        batch, terms = self._replica.batch, self._terms
        tokens = sum(request.prompt_tokens for request in batch.queue.values())
        return len(batch.seats) + len(batch.queue) < terms.seats and tokens + len(batch.seats) <= terms.tokens

    def _coming(self, planned: Planned) -> Next | None:
        """The replica's planned step as the lane's, if it is one that the lane could have planned."""
        batch = self._replica.batch
        chunks = list(batch.step.chunks.values())
        whole = all(past == 0 and tokens == r.prompt_tokens and not r._emitted for r, tokens, past in chunks)
        if not whole or len(chunks) != len(batch.prefilling) or planned.waiting or planned.preempted:
            return None
        if batch.step.named or batch.step.preempted or planned.shape.prefill_seqs != len(chunks):
            return None
        prompts = [self._comer(request) for request, _, _ in chunks]
        shape = planned.shape
        return Next(prompts, shape.decode_seqs, shape.context_tokens, planned.running, planned.kv_blocks_used)

    def _travel(self, now_ns: int, now_fs: int, coming: Next | None) -> None:
        """From the start of a step at `now_ns`, exactly `now_fs`, to that of the first after which one is not plain."""
        replica, terms = self._replica, self._terms
        batch, number, put, price = replica.batch, replica.number, replica.put, replica.price
        group, pool, block = batch.group, batch.pool, batch.block
        take, retire, total, seats, budget = pool.take, pool.retire, pool.total, terms.seats, terms.tokens
        spare = terms.spare
        gone, gone_ns = self._gone.append, self._gone_ns.append
        by_themselves = {r.index for r in batch.seats.values() if self._comer(r)[-1]}
        riders, residues, waiting, fresh = self._board()
        size, ticks, offsets = group.hand_over()
        seat, last_tick_ns = batch._admissions, group.last_tick_ns
        ready = coming is not None
        prompts_now, decodes, context, running, used = coming or Next([], 0, 0, 0, 0)
        seat -= len(prompts_now)
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
            if not ready and not waiting:
                if due_ns >= stop_ns or due_ns == NOBODY:
                    break
                now_ns, now_fs = due_ns, due_ns * FS_PER_NS
                continue
            # what the next plan may take, seen before anything happens
            here = size + len(prompts_now)
            tokens, _, need = work_of(waiting, block)
            if waiting and (tokens + here > budget or here + len(waiting) >= seats):
                break
            if need + here + spare > pool.free:
                break
            if not ready:  # nobody was here: this step is planned at its start
                take(need)
                prompts_now, waiting = waiting, []
                decodes = context = 0
                running, used = len(prompts_now), total - pool.free
                ready = True
                continue
            if prompts_now or waiting or running != size or decodes != size:
                tokens, squares, _ = work_of(prompts_now, block)
                first_fs = price(_new(Shape, (tokens, squares, 0, len(prompts_now), decodes, context)))[0]
                end_fs = now_fs + first_fs
                end_ns = (end_fs + HALF_NS) // FS_PER_NS
                if end_ns >= stop_ns:
                    break
                put(pack_iteration(
                    number, now_ns, end_ns, 1, tokens, squares, decodes, context, 0, running, 0, used, used, 0, ticks,
                    size - len(fresh) if decodes else 0, size if decodes else 0, first_fs, 0, now_fs - now_ns * FS_PER_NS,
                ))  # fmt: skip
                if decodes:
                    ticks += 1
                    last_tick_ns = end_ns
                    if fresh:
                        self._note_gaps(fresh, end_ns)
                        fresh = []
                    span_from = ticks
                else:
                    span_from = ticks + 1
                    fresh += [(place, end_ns) for place, _, _, limit, _ in prompts_now if limit > 1]
                for place, queued_ns, prompt, limit, alone in prompts_now:
                    seat += 1
                    heappush(riders, _new(
                        Rider, (ticks - 1 + limit, seat, place, prompt, limit, queued_ns, now_ns, end_ns, span_from)
                    ))  # fmt: skip
                    if alone:
                        by_themselves.add(place)
                    offset = prompt - ticks
                    offsets += offset
                    residues[offset % block] += 1
                size = here
            else:
                first_fs, growth_fs = price(_new(Shape, (0, 0, 0, 0, size, context)))
                repeats = riders[0][0] - ticks
                if growth_fs is None or repeats == 1:
                    repeats, growth_fs = 1, 0
                repeats, end_fs, end_ns = run_until(now_fs, first_fs, growth_fs, repeats, due_ns)
                if end_ns >= stop_ns or end_fs - now_fs > LONGEST_FS:
                    break
                need = 0
                if repeats > 1:
                    need = blocks_opened(residues, size, ticks + 1, repeats - 1)
                    if need + size + spare > pool.free:
                        break
                    take(need)
                put(pack_iteration(
                    number, now_ns, end_ns, repeats, 0, 0, size, context, 0, size, 0, used + need, used, 0, ticks,
                    size - len(fresh), size, first_fs, growth_fs, now_fs - now_ns * FS_PER_NS,
                ))  # fmt: skip
                if fresh:
                    self._note_gaps(fresh, (now_fs + first_fs + HALF_NS) // FS_PER_NS)
                    fresh = []
                ticks += repeats
                last_tick_ns = end_ns
            # the last tokens of the step; those that end at a declared limit are not in the next plan
            ended: list[Rider] = []
            decodes, context = size, offsets
            need = residues[-ticks % block] if size else 0
            while riders and riders[0][0] <= ticks:
                rider = heappop(riders)
                ended.append(rider)
                offset = rider[3] - 1 - rider[0] + rider[4]
                size -= 1
                offsets -= offset
                residues[offset % block] -= 1
                if rider[2] not in by_themselves:
                    decodes -= 1
                    context -= offset
                    if (offset + ticks) % block == 0:
                        need -= 1
            context += decodes * (ticks + 1)
            prompts_now, waiting = waiting, []
            need += work_of(prompts_now, block)[2]
            take(need)
            running, used = size + len(ended) + len(prompts_now), total - pool.free
            ready = decodes > 0 or bool(prompts_now)
            for rider in ended:
                computed = rider[3] + rider[4] - 1
                held = computed
                if rider[2] in by_themselves:
                    by_themselves.remove(rider[2])
                    held += 1
                retire(-(-held // block), computed)
                gone(rider)
                gone_ns(end_ns)
            now_ns, now_fs = end_ns, end_fs
        batch._admissions, group.clock.ticks, group.last_tick_ns = seat, ticks, last_tick_ns
        self._write_down()
        self._alight(riders, [], fresh)
        replica.next = self._planned(Next(prompts_now, decodes, context, running, used)) if ready else None
        self._alight([], waiting, [])
        replica.news = bool(waiting)
        self._hand_back(now_ns, now_fs, at, idle=not (waiting or ready))

    def _planned(self, coming: Next) -> Planned:
        """The step planned ahead, as the replica's; those whom it admits have their seats and blocks."""
        batch = self._replica.batch
        batch.open_step()
        step = batch.step
        step.tick = coming.decodes > 0
        requests = list(self._requests(place for place, *_ in coming.prompts))
        for (_, queued_ns, prompt, _, _), request in zip(coming.prompts, requests, strict=True):
            batch._admissions += 1
            request.clock, request.seat = batch.clock, batch._admissions
            request.queued_ns = request.seated_ns = request.admitted_ns = queued_ns  # until the step starts
            request.blocks = -(-prompt // batch.block)
            request.published = prompt if batch.pool.caching else 0
            batch.seats[request.index] = batch.prefilling[request.index] = request
            step.chunks[request.index] = Chunk(request, prompt, 0)
            step.dirty = True
        batch.planning = False
        tokens, squares, _ = work_of(coming.prompts, batch.block)
        shape = Shape(tokens, squares, 0, len(requests), coming.decodes, coming.context)
        return Planned(ONCE, shape, coming.running, 0, coming.blocks, 0, [], [], requests)
