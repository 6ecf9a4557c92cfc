"""One replica's engine without a clock of its own: plan a step, then settle it. `replica.py` gives it time.

The life of a request: `push` puts it in the queue; a plan admits it and computes chunks of its prompt; the step that
finishes the prompt emits its first token, and it joins the decode group; the tick of its last token ends it; `conclude`
frees its blocks and its seat and writes its row. With asynchronous scheduling `fly` and `land` take the place of `settle`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchsim.batch import Batch
from batchsim.errors import InvalidInput, NoProgress, RuleBroken, problem
from batchsim.kv.blocks import BlockPool
from batchsim.recorder import Recorder
from batchsim.records import NEVER, Status
from batchsim.request import Request
from batchsim.scheduler import ONCE, Scheduler, Until, Verdict, Wait, attribute
from batchsim.step import Entry

Done = Callable[[Request], None]


class Engine:
    """A batch, its scheduler, and what a step does to them."""

    def __init__(
        self,
        number: int,
        scheduler: Scheduler,
        pool: BlockPool,
        recorder: Recorder,
        *,
        name: str,
        max_model_len: int,
        log: bool = False,
        on_done: Done | None = None,
    ) -> None:
        self.number = number
        self.scheduler = scheduler
        self.recorder = recorder
        self.hold: bool = attribute(scheduler, "hold", False)
        self.batch = Batch(
            pool,
            scheduler=name,
            order=attribute(scheduler, "order", None),
            hold=self.hold,
            oracle=attribute(scheduler, "oracle", False),
            log=log,
            max_model_len=max_model_len,
        )
        self.batch.headroom = attribute(scheduler, "headroom", 0)
        self.batch.folds_output = attribute(scheduler, "folds_output", False)
        if not callable(getattr(scheduler, "plan", None)):
            raise InvalidInput([problem("scheduler.kind", name, "has no method plan(batch)")])
        self.refuse = attribute(scheduler, "refuse", None)
        self.flows_ahead: bool = attribute(scheduler, "flows_ahead", False)
        self.concluding = attribute(scheduler, "concluding", None)
        self.on_done = on_done
        self.turned_away = False  # a plan rejected somebody
        self.cancelled: list[Request] = []  # to be dropped when the running step ends
        self.finished: list[Request] = []  # by the step settled last, in batch order
        self.discarded: list[str] = []  # whose token of the step that landed is thrown away
        self._held: list[Request] = []
        self._ended: list[Request] = []  # by the step committed last
        self.name = name
        self._spun = 0  # tokens computed since one was emitted, in steps that preempted
        self._spun_since = 0  # the tick of that emission, where the group had it

    # -- between steps ---------------------------------------------------------------------------------------------

    def push(self, request: Request, now_ns: int) -> None:
        """A request enters the queue."""
        self.batch.now_ns = request.queued_ns = now_ns
        self.batch.push(request)

    def cancel(self, request: Request, now_ns: int, *, busy: bool) -> None:
        """The client gave up: out of the queue, or out of its seat when the step under way, if any, has ended."""
        request.cancelled = True
        if busy and request.index in self.batch.seats:
            self.cancelled.append(request)
        else:
            self.batch.now_ns = now_ns
            self._drop_cancelled(request)

    def plan(self, now_ns: int) -> Verdict | Until | Wait:
        """Let the scheduler build the next step, in `batch.step`."""
        batch = self.batch
        batch.now_ns = now_ns
        batch.open_step()
        verdict = self.scheduler.plan(batch)
        if verdict is None:
            raise RuleBroken(self.name, "plan returns a verdict", "it returned None")
        step = batch.step
        if step.named:
            batch.close_step()
            if step.named:  # somebody joins the group when the step ends
                verdict = ONCE
        if step.preempted:
            self._watch_for_thrash()
        if batch.rejected:
            self._settle_rejected()
            if not isinstance(verdict, Wait):
                verdict = ONCE  # their clients may have sent again, which this plan has not seen
        return verdict

    # -- the end of a step -----------------------------------------------------------------------------------------

    def settle(self, decodes: int, ticks: int, first_end_ns: int, end_ns: int, *, cancel: bool = True) -> None:
        """The planned step has run `ticks` times; the first run ended at first_end_ns, the last at end_ns.

        decodes: how many sequences decoded.  cancel: those given up in the meantime leave now.
        """
        batch = self.batch
        batch.now_ns = end_ns
        batch.planning = False
        group = batch.group
        ended: list[Request] = []
        self._ended = ended
        if decodes:
            group.advance(ticks, first_end_ns, end_ns)
            if group.next_end <= group.clock.ticks:
                group.pop_ended(ended)
        if batch.step.dirty:
            self._emit_singly(decodes > 0, end_ns, ended)
        if ended or self._held:
            self.conclude(end_ns)
        else:
            self.finished = ended
        if self.cancelled and cancel:
            self.drop_cancelled()

    def commit(self, decodes: int, end_ns: int) -> None:
        """Count what one step computes and emits; those whose last token that is are ended by `conclude`."""
        batch = self.batch
        batch.now_ns = end_ns
        batch.planning = False
        group = batch.group
        ended: list[Request] = []
        self._ended = ended
        if decodes:
            group.advance(1, end_ns, end_ns)
            if group.next_end <= group.clock.ticks:
                group.pop_ended(ended)
        if batch.step.dirty:
            self._emit_singly(decodes > 0, end_ns, ended)

    def conclude(self, end_ns: int) -> None:
        """The step is over: its last tokens are out."""
        batch = self.batch
        batch.now_ns = end_ns
        self.finished = ended = self._ended
        if len(ended) > 1:
            ended.sort(key=_seat)
        if self.concluding is not None:
            self.concluding(batch, ended)
        if ended:
            if self.hold:
                for request in ended:
                    self._hold(request, end_ns)
            else:
                seats, number, close = batch.seats, self.number, self.recorder.close
                for request in ended:
                    request.finished_ns = end_ns
                    if request.index in seats:
                        batch.retire(request)
                    else:  # evicted while its last token was in flight
                        batch.drop(request)
                    close(request, Status.COMPLETED, number, end_ns)
            self._spun = 0
        if self._held:
            self._release_held()
        if ended and self.on_done is not None:
            for request in ended:
                self.on_done(request)

    def _emit_singly(self, decodes: bool, end_ns: int, ended: list[Request]) -> None:
        batch, step = self.batch, self.batch.step
        for request in step.named.values():
            request._computed += 1
            del batch.resting[request.index]
            self._emit(request, decodes, end_ns, ended)
        for request, tokens, past in step.chunks.values():
            request._computed = computed = past + tokens
            remaining = request.prompt_tokens + request._emitted - computed
            if remaining == 0:
                del batch.prefilling[request.index]
                self._emit(request, decodes, end_ns, ended)
            elif remaining == 1 and computed >= request.prompt_tokens and not batch.folds_output:
                del batch.prefilling[request.index]  # what is left of a resumed request is its newest token
                batch.resting[request.index] = request

    def _emit(self, request: Request, decodes: bool, end_ns: int, ended: list[Request]) -> None:
        """A token for a request outside the group, which then joins it or has ended."""
        request._emitted += 1
        self._spun = 0
        if request.first_token_ns == NEVER:
            request.first_token_ns = end_ns
        else:
            gap = end_ns - request.last_token_ns
            self.batch.group.note_gap(gap, request.index, end_ns)
            if gap > request.odd_gap_ns:
                request.odd_gap_ns = gap
        request.last_token_ns = end_ns
        if request._emitted < request.limit:
            self.batch.group.join(request, end_ns, ticked=decodes)
        else:
            ended.append(request)

    def _hold(self, request: Request, end_ns: int) -> None:
        """A member of a static batch has its last token; its row computes on until the batch ends."""
        request.finished_ns = end_ns
        group = self.batch.group
        if request.base is None:
            group.join(request, end_ns, ticked=True)
        group.end(request)
        self._held.append(request)

    # -- one step ahead ----------------------------------------------------------------------------------------------

    def fly(self, decodes: int, end_ns: int) -> None:
        """Asynchronous scheduling: `commit` one step when it starts, so that the next can be planned while it runs.

        A request whose last token by its limits is now in flight decodes no more; one that will stop by itself does.
        """
        batch, group, step = self.batch, self.batch.group, self.batch.step
        before: dict[int, int] = {}
        if step.dirty:
            for request in step.named.values():
                before[request.index] = request.last_token_ns
            for request, tokens, past in step.chunks.values():
                if past + tokens == request.prompt_tokens + request._emitted:
                    before[request.index] = request.last_token_ns
        singly = list(before)
        batch.flight_before, batch.flight_before_ns = before, group.last_tick_ns
        self.commit(decodes, end_ns)
        for request in self._ended:
            foreseen = request.limit >= min(request.max_tokens, batch.max_model_len - request.prompt_tokens)
            if not foreseen and request.base is None:
                group.join(request, end_ns, ticked=decodes > 0)
            elif foreseen and request.base is not None:
                group.leave(request)
                singly.append(request.index)
            request.ending = foreseen
        batch.flight_ticked, batch.flight_singly = decodes > 0, set(singly)

    def land(self, end_ns: int) -> None:
        """The step in flight is over; the next is planned. What that one grants a request that ended now is wasted."""
        batch = self.batch
        batch.planning = False
        batch.flight_ticked, batch.flight_singly = False, set()
        if self._ended:
            self._ended = [r for r in self._ended if r.index in batch.seats or r.index in batch.queue]
        self.discarded = []
        if batch.recalled:
            recalled = {request.index for request, _ in batch.recalled}
            self._ended = [request for request in self._ended if request.index not in recalled]
            self.discarded = [request.id for request, _ in batch.recalled]
            batch.recalled = []
        for request in self._ended:
            batch.withdraw(request)
        self.conclude(end_ns)

    def drop_cancelled(self) -> None:
        """Those given up during the step lose their seats."""
        for request in self.cancelled:
            if request.finished_ns == NEVER:
                self._drop_cancelled(request)
        self.cancelled.clear()
        if self.hold and self._held:
            self._release_held()  # the last that still generated may be among them

    def _release_held(self) -> None:
        batch = self.batch
        if len(batch.seats) > len(self._held) or batch.clock.ticks < batch.hold_until_tick:
            return
        for request in self._held:
            batch.drop(request)
            self.recorder.close(request, Status.COMPLETED, self.number, request.finished_ns)
        self._held.clear()
        batch.hold_until_tick = -1

    def _settle_rejected(self) -> None:
        rejected, self.batch.rejected = self.batch.rejected, []
        self.turned_away = True
        for request, reason in rejected:
            self.recorder.reasons[request.index] = reason
            self.recorder.close(request, Status.REJECTED, self.number)
            if self.on_done is not None:
                self.on_done(request)

    def _drop_cancelled(self, request: Request) -> None:
        self.batch.drop(request)
        self.recorder.reasons[request.index] = "the client gave up"
        self.recorder.close(request, Status.CANCELLED, self.number)
        if self.on_done is not None:
            self.on_done(request)

    # -- the end of the run ------------------------------------------------------------------------------------------

    def close(self, now_ns: int) -> None:
        """Write the rows of those still here."""
        batch = self.batch
        batch.now_ns = now_ns
        for request in list(batch.seats.values()):
            if request.base is not None:
                batch.group.leave(request)
            request.ran_ns += now_ns - request.seated_ns
            status = Status.COMPLETED if request.ended else Status.RUNNING
            self.recorder.close(request, status, self.number, request.finished_ns)
        for request in batch.queue.values():
            if request.evicted_ns != NEVER:
                batch.evictions.extend((request.index, request.evicted_ns, NEVER))
            request.waited_ns += now_ns - request.queued_ns
            self.recorder.close(request, Status.WAITING, self.number)

    # -- checks ------------------------------------------------------------------------------------------------------

    def _watch_for_thrash(self) -> None:
        """Computing far more than everybody here together needs without emitting a token is no progress."""
        batch, group = self.batch, self.batch.group
        if group.clock.ticks != self._spun_since and group.size > group.ghosts:
            self._spun, self._spun_since = 0, group.clock.ticks
        self._spun += 1 + sum(lost for _, lost in batch.step.preempted)
        if self._spun <= 20 * batch.pool.total * batch.block:
            return
        live = [*batch.seats.values(), *batch.queue.values()]
        if self._spun > 20 * (batch.pool.total * batch.block + sum(r.known_tokens for r in live)):
            raise NoProgress(
                f"scheduler {self.name!r} evicts and recomputes without end: {self._spun:,} tokens since one was emitted, "
                f"{len(batch.seats)} running, {len(batch.queue)} waiting, {batch.free} of {batch.pool.total} blocks free"
            )

    def log_entry(
        self, number: int, start_ns: int, end_ns: int, entries: list[Entry], preempted: list[tuple[Request, int]]
    ) -> dict[str, Any]:
        """The step that is over, as a line of the step log."""
        batch = self.batch
        entry: dict[str, Any] = {
            "step": number,
            "replica": self.number,
            "start_s": start_ns / 1e9,
            "end_s": end_ns / 1e9,
            "sched": [[e.request.id, e.tokens, e.computed_before] for e in entries],
            "preempted": [[request.id, lost] for request, lost in preempted],
            "finished": [request.id for request in self.finished],
            "running": [request.id for request in batch.seats.values()],
            "waiting": [request.id for request in batch.queue.values()],
            "free_blocks": batch.free,
        }
        if self.discarded:
            entry["discarded"] = self.discarded
        return entry


def _seat(request: Request) -> int:
    return request.seat
