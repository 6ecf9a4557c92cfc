"""A replica on the SimPy clock: it asks its scheduler for a step, prices it, sleeps that long, and settles it.

SimPy's clock counts whole nanoseconds. Beside it the replica keeps the exact instant in femtoseconds, so that a run of k
equal decode steps, taken as one event, ends on the same nanosecond as k single ones. At one instant arrivals come before
the ends of steps, and ends of steps before plans.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

from simpy import Environment
from simpy.events import Event

from batchsim.batch import Entry
from batchsim.cost.model import CostModel, Shape
from batchsim.engine import Engine
from batchsim.errors import NoProgress, RuleBroken
from batchsim.recorder import pack_iteration
from batchsim.records import FS_PER_NS, Iterations
from batchsim.request import Request
from batchsim.scheduler import DEAF, FLOW, ONCE, Until, Verdict, Wait

HALF_NS = FS_PER_NS // 2
LONGEST_RUN_FS = 4 * 10**18  # sums of a row stay inside 64 bits
EMPTY_PLANS = 1000
STEADY_SEQS = tuple(Iterations.__dataclass_fields__).index("steady_seqs")

BEFORE_ALL, ARRIVE, END, SEND, PLAN = -1, 0, 1, 1 << 28, 1 << 29
"""SimPy priorities at one instant. Ends and plans add the replica's number, so that nothing hangs on which alarm is older;
between them come the requests that clients send, or routers pass on, because of what ended."""


class Alarm(Event):
    """An event at a given delay and priority that calls one function."""

    def __init__(self, env: Environment, delay_ns: int, priority: int, call: Callable[[Event], None]) -> None:
        self.env = env  # what Event.__init__ does, and in one go what makes it triggered
        self.callbacks = [call]
        self._value = None
        self._ok = True
        env.schedule(self, priority, delay_ns)  # type: ignore[arg-type]  # any whole number orders events


class Planned(NamedTuple):
    """A step planned ahead: what it computes, and how things stood when it was planned."""

    verdict: Verdict
    shape: Shape
    running: int
    waiting: int
    kv_blocks_used: int
    preempted: int
    entries: list[Entry]
    evicted: list[tuple[Request, int]]
    admitted: list[Request]


class Replica:
    """One engine with its clock.

    alone: nobody hears of answers before the run is over (one replica, requests sent by the clock): the replica may run
    ahead of SimPy's clock up to the next event.  single: it is the only one, so that after a step it may plan at once instead of letting others end first.
    step: take no runs of steps as one event.  ahead: asynchronous scheduling, each step planned when the one before starts.
    """

    def __init__(
        self,
        env: Environment,
        engine: Engine,
        cost: CostModel,
        *,
        single: bool = True,
        alone: bool = False,
        step: bool = False,
        ahead: bool = False,
        horizon_ns: int | None = None,
    ) -> None:
        self.env = env
        self.engine = engine
        self.batch = engine.batch
        self.cost = cost
        self.number = engine.number
        self._end, self._planning = END + engine.number, PLAN + engine.number
        self._single = single
        self._alone = alone
        self._stepwise = step or engine.recorder.steps is not None
        self._busy = False
        self._alarm: Alarm | None = None  # the plan to come, while idle; the end of the step, while busy
        self._planned = False
        self._shape = Shape(0, 0, 0, 0, 0, 0)
        self._verdict: Verdict | Until = ONCE
        self._start_ns = self._start_fs = self._end_fs = self._first_fs = self._growth_fs = 0
        self._ticks = 1
        self._waiting_then = 0
        self._late: list[int] = []  # arrivals during a deaf run
        self._evicted = 0  # in plans that came to nothing
        self._evicted_for_nothing: list[tuple[Request, int]] = []  # by the last of them made ahead, not yet logged
        self._steps = 0
        self._ahead = ahead
        self._horizon_ns = horizon_ns
        self._next: Planned | None = None  # planned while the step before it runs
        self._flown: Planned | None = None  # in flight; None during a run of steps, which is settled when it ends
        self._last: Planned | None = None  # the step after a run of steps, until everything that ends now has ended
        self._row: tuple[int, ...] = ()  # what will be recorded of it
        self._news = False  # something came since the last plan
        self.last_ns = 0  # when something last happened here
        self._put = engine.recorder.put_iteration
        self._price = cost.price

    # -- what comes from outside -------------------------------------------------------------------------------------

    def arrive(self, request: Request) -> str | None:
        """Take a request, or say why not."""
        engine = self.engine
        self.last_ns = self.env._now  # type: ignore[assignment]
        if engine.refuse is not None:
            self.batch.now_ns = self.env._now  # type: ignore[assignment]
            reason = engine.refuse(request, self.batch)
            if reason is not None:
                self.wake()
                return str(reason)
        engine.push(request, self.env._now)  # type: ignore[arg-type]
        self._news = True
        if not self._busy:
            self.wake()
        elif self._ticks > 1:
            if self._verdict is DEAF:
                self._late.append(self.env._now)  # type: ignore[arg-type]
            else:
                self._cut()
        return None

    def cancel(self, request: Request) -> None:
        """The client of a request that is still here gave up."""
        self.engine.cancel(request, self.env._now, busy=self._busy)  # type: ignore[arg-type]
        self._news = True
        self.last_ns = self.env._now  # type: ignore[assignment]
        if not self._busy:
            self.wake()
        elif self._ticks > 1:
            self._cut()

    def wake(self) -> None:
        """Plan at this instant, after everything else that happens in it."""
        if not (self._busy or self._planned):
            self._set_alarm(0, self._planning, self._on_plan)
            self._planned = True

    def look_again(self) -> None:
        """Something changed that the scheduler may want to see: plan now if idle, else after the step under way."""
        self._news = True
        if not self._busy:
            self.wake()
        elif self._ticks > 1:
            self._cut()

    def ticks_done(self, *, settled: bool) -> int:
        """Ticks of the run under way that step by step would have been counted by now.

        settled: the steps that end at this very instant have ended.
        """
        if not self._busy or (self._ticks == 1 and not self._ran_ahead()):
            return 0
        now_ns: int = self.env._now  # type: ignore[assignment]
        if self._ran_ahead():  # counted when they start
            return min(self._ticks_until(now_ns), self._ticks)
        return min(self._ticks_until(now_ns + settled) - 1, self._ticks)

    def blocks_opened(self) -> int:
        """Blocks that the run under way has opened by now, beside those that the pool knows of."""
        if not self._busy or (self._ticks == 1 and not self._ran_ahead()):
            return 0
        now_ns: int = self.env._now  # type: ignore[assignment]
        ticks = min(self._ticks_until(now_ns), self._ticks) - 1 + self._ran_ahead()
        return self.batch.group.blocks_after(ticks)

    def _ran_ahead(self) -> bool:
        """Whether a run of steps planned ahead is under way."""
        return self._ahead and self._flown is None

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _set_alarm(self, delay_ns: int, priority: int, call: Callable[[Event], None]) -> None:
        self._alarm = Alarm(self.env, delay_ns, priority, call)

    def _on_plan(self, alarm: Event) -> None:
        if alarm is self._alarm:
            self._planned = False
            now_ns: int = self.env._now  # type: ignore[assignment]
            end_ns = self._plan(now_ns, now_ns * FS_PER_NS)
            if end_ns is not None:
                self._set_alarm(end_ns - now_ns, self._end, self._on_end)

    def _on_end(self, alarm: Event) -> None:
        if alarm is not self._alarm:
            return
        now_ns: int = self.env._now  # type: ignore[assignment]
        if self._ahead:
            self.last_ns = now_ns
            self._on_end_ahead(now_ns)
            return
        end_ns: int | None = now_ns
        while end_ns is not None:  # steps that end before anything else can happen need no event of their own
            self._settle(self._ticks, end_ns)
            self._busy = False
            if not self._single:
                self._set_alarm(0, self._planning, self._on_resume)
                self._planned = True
                return
            if self._news or self._verdict is not FLOW or self._stepwise or not self._flow(end_ns):
                end_ns = self._plan(end_ns, self._end_fs)
            else:
                end_ns = self._alarm_or_end(end_ns)

    def _alarm_or_end(self, now_ns: int) -> int | None:
        """When the step that starts now ends, if nothing else happens before; else None, and an alarm is set."""
        end_ns = (self._end_fs + HALF_NS) // FS_PER_NS
        if self._alone and end_ns < self.env.peek():
            return end_ns
        env = self.env
        self._alarm = Alarm(env, end_ns - env._now, self._end, self._on_end)  # type: ignore[operator]
        return None

    def _flow(self, now_ns: int) -> bool:
        """Nothing came since the scheduler said FLOW: everybody decodes on, if blocks allow."""
        batch = self.batch
        group = batch.group
        if not group.size or batch.resting:
            return False
        need = group.blocks_needed()
        if need:
            if need > batch.pool.free:
                return False
            batch.pool.take(need)
        batch.now_ns = now_ns
        if batch.step.dirty:
            batch.open_step()
        batch.step.tick = True
        self._start_run(now_ns, self._end_fs, FLOW)
        return True

    def _on_resume(self, alarm: Event) -> None:
        if alarm is self._alarm:
            self._planned = False
            if self._ahead:
                self._go_on(self.env._now)  # type: ignore[arg-type]
            else:
                self._plan(self.env._now, self._end_fs)  # type: ignore[arg-type]

    def _plan(self, now_ns: int, now_fs: int) -> int | None:
        """Ask the scheduler for a step and start it, or wait. As `_alarm_or_end`."""
        self._news = False
        verdict = self.engine.plan(now_ns)
        step = self.batch.step
        if not (step.tick or step.chunks or step.named):
            again = self._plan_again(now_ns, verdict)
            if again is None:
                return None
            verdict, step = again, self.batch.step
        if verdict.__class__ is Wait:
            raise RuleBroken(self.engine.name, "a wait comes with an empty step", f"Wait at {now_ns / 1e9} s")
        if self._ahead:
            self._launch(now_ns, now_fs, self._as_planned(verdict))  # type: ignore[arg-type]
            return None
        if step.dirty or verdict is ONCE or self._stepwise:
            self._start(now_ns, now_fs, verdict)  # type: ignore[arg-type]
        else:
            self._start_run(now_ns, now_fs, verdict)  # type: ignore[arg-type]
        return self._alarm_or_end(now_ns)

    def _plan_again(self, now_ns: int, verdict: Verdict | Until | Wait) -> Verdict | Until | Wait | None:
        """An empty step takes no time: plan again if it changed anything; None when there is nothing to do now."""
        engine, batch = self.engine, self.batch
        for _ in range(EMPTY_PLANS):
            if batch.step.preempted:
                self._evicted += len(batch.step.preempted)
                engine.finished = []  # those were of the step before
                self._log(now_ns, now_ns)
            elif engine.turned_away:  # others may be next, and their clients may have sent again
                engine.turned_away = False
            else:
                self._alarm = None
                self._planned = False
                if isinstance(verdict, Wait) and verdict.until_ns is not None and verdict.until_ns > now_ns:
                    # steps without an event of their own may stand ahead of SimPy's clock; not `planned`: it can be sooner
                    self._set_alarm(verdict.until_ns - self.env._now, self._planning, self._on_plan)  # type: ignore[arg-type]
                return None
            verdict = engine.plan(now_ns)
            if not batch.step.empty:
                return verdict
        raise NoProgress(f"scheduler {engine.name!r} planned {EMPTY_PLANS} empty steps at {now_ns / 1e9} s")

    def _start(self, now_ns: int, now_fs: int, verdict: Verdict | Until) -> None:
        """One step."""
        batch = self.batch
        self._shape = shape = batch.shape()
        first_fs, _ = self._price(shape)
        self._verdict = verdict
        self._start_ns, self._start_fs, self._first_fs, self._growth_fs = now_ns, now_fs, first_fs, 0
        self._waiting_then = len(batch.queue)
        self._busy = True
        self._ticks = 1
        self._end_fs = now_fs + first_fs

    def _start_run(self, now_ns: int, now_fs: int, verdict: Verdict | Until) -> None:
        """Decode steps, all alike but for the growing contexts, as one event: until somebody ends or something comes."""
        batch = self.batch
        self._shape = shape = batch.shape()
        first_fs, growth_fs = self._price(shape)
        self._verdict = verdict
        self._start_ns, self._start_fs, self._first_fs = now_ns, now_fs, first_fs
        self._waiting_then = len(batch.queue)
        self._busy = True
        ticks = 1 if growth_fs is None or self._stepwise else self._run_length()
        if ticks == 1:
            self._ticks, self._growth_fs = 1, 0
            self._end_fs = now_fs + first_fs
            return
        assert growth_fs is not None
        self._growth_fs = growth_fs
        if verdict.__class__ is Until:
            ticks = self._bounded(verdict, ticks)  # type: ignore[arg-type]
        duration_fs = ticks * first_fs + growth_fs * (ticks * (ticks - 1) // 2)
        if duration_fs > LONGEST_RUN_FS:
            ticks = max(1, LONGEST_RUN_FS // (first_fs + growth_fs * ticks))
            duration_fs = ticks * first_fs + growth_fs * (ticks * (ticks - 1) // 2)
        if self._single and self._verdict is not DEAF:
            coming_ns = self.env.peek()
            if coming_ns * FS_PER_NS < now_fs + duration_fs:  # it will probably cut the run: end it there
                ticks = min(ticks, self._ticks_until(coming_ns))  # type: ignore[arg-type]
                duration_fs = ticks * first_fs + growth_fs * (ticks * (ticks - 1) // 2)
        self._ticks = ticks
        self._end_fs = now_fs + duration_fs

    def _run_length(self) -> int:
        """Ticks until somebody ends or blocks run short, the planned one included."""
        batch = self.batch
        group = batch.group
        if group.ghosts and group.size == group.ghosts:
            left = max(batch.hold_until_tick - group.clock.ticks, 1)
        else:
            left = group.next_end - group.clock.ticks
        return 1 if left <= 1 else 1 + group.ticks_that_fit(batch.pool.free - batch.headroom, left - 1)

    def _bounded(self, until: Until, ticks: int) -> int:
        """Of a run's ticks, those before its scheduler wants to be asked again."""
        self._verdict = until.verdict
        if until.ticks is not None:
            ticks = min(ticks, max(until.ticks, 1))
        return ticks if until.ns is None else min(ticks, self._ticks_until(until.ns))

    def _duration_fs(self, ticks: int) -> int:
        return ticks * self._first_fs + self._growth_fs * (ticks * (ticks - 1) // 2)

    def _cut(self) -> None:
        """Something happened during a run: it ends with the step that is now under way."""
        ticks = self._ticks_until(self.env._now)  # type: ignore[arg-type]
        if ticks < self._ticks:
            self._ticks = ticks
            self._end_fs = self._start_fs + self._duration_fs(ticks)
            self._set_alarm((self._end_fs + HALF_NS) // FS_PER_NS - self.env._now, self._end, self._on_end)  # type: ignore[arg-type]

    def _ticks_until(self, now_ns: int) -> int:
        """The first step of the run that ends at `now_ns` or later."""
        target = now_ns * FS_PER_NS - HALF_NS - self._start_fs  # its duration must reach this
        first, growth = self._first_fs, self._growth_fs
        if target <= first:
            return 1
        ticks = -(-target // first)  # not too few, as growth is not below 0
        if growth == 0:
            return ticks
        if ticks > 50:
            slope = 2 * first - growth
            ticks = 2 + int((sqrt(slope * slope + 8.0 * growth * target) - slope) / (2 * growth))
        while ticks > 1 and (ticks - 1) * first + growth * ((ticks - 1) * (ticks - 2) // 2) >= target:
            ticks -= 1
        while ticks * first + growth * (ticks * (ticks - 1) // 2) < target:
            ticks += 1
        return ticks

    def _settle(self, ticks: int, end_ns: int, *, cancel: bool = True) -> None:
        """The step, or `ticks` ticks of the run, are over."""
        engine, batch = self.engine, self.batch
        group, pool, step = batch.group, batch.pool, batch.step
        tokens, s2_x2, _, _, decodes, context = self._shape
        blocks = blocks_first = pool.total - pool.free
        first_end_ns = end_ns
        if ticks > 1:
            taken = group.blocks_after(ticks - 1)
            if taken:
                pool.take(taken)
                blocks += taken
            if group.fresh:
                first_end_ns = (self._start_fs + self._first_fs + HALF_NS) // FS_PER_NS
        waiting = self._waiting_then
        if self._late:
            waiting += self._late_before_last_step(ticks)
        evicted = streaming = steady = 0
        if decodes:
            streaming = steady = group.size - group.ghosts
            if group.fresh:
                steady -= len(group.fresh)
        if self._evicted or step.preempted:
            evicted = len(step.preempted) + self._evicted
            self._evicted = 0
        start_ns = self._start_ns
        self.last_ns = end_ns
        self._put(
            pack_iteration(
                engine.number, start_ns, end_ns, ticks, tokens, s2_x2, decodes, context, step.padded_tokens + group.ghosts,
                len(batch.seats), waiting, blocks, blocks_first, evicted, group.clock.ticks, steady, streaming,
                self._first_fs, self._growth_fs, self._start_fs - start_ns * FS_PER_NS,
            )
        )  # fmt: skip
        engine.settle(decodes, ticks, first_end_ns, end_ns, cancel=cancel)
        if engine.recorder.steps is not None:
            self._log(start_ns, end_ns)

    # -- asynchronous scheduling: each step is planned when the one before it starts -------------------------------------

    def _as_planned(self, verdict: Verdict | Until) -> Planned:
        batch, step = self.batch, self.batch.step
        self._news = False
        evicted = len(step.preempted) + self._evicted
        self._evicted = 0
        return Planned(
            ONCE if isinstance(verdict, Until) else verdict,  # bounded runs are planned singly
            batch.shape(),
            len(batch.seats),
            len(batch.queue),
            batch.pool.total - batch.pool.free,
            evicted,
            [] if step.entries is None else list(step.entries.values()),
            step.preempted,
            [r for r, _, past in step.chunks.values() if r.admitted_ns == batch.now_ns and past == r.hit_tokens]
            if step.chunks
            else [],
        )

    def _launch(self, now_ns: int, now_fs: int, planned: Planned, *, single: bool = False) -> None:
        """Start a planned step and plan the next; or start a run of equal steps, the plans of which need no asking."""
        shape = planned.shape
        first_fs, growth_fs = self.cost.price(shape)
        self._shape, self._verdict, self._busy = shape, planned.verdict, True
        self._start_ns, self._start_fs, self._first_fs = now_ns, now_fs, first_fs
        self._waiting_then = planned.waiting
        self._growth_fs = 0
        ticks = 0
        if not (single or growth_fs is None or self._stepwise or planned.verdict is ONCE or shape.prefill_seqs):
            self._growth_fs = growth_fs
            ticks = self._ticks_ahead(planned)
        if ticks:
            self._ticks, self._flown = ticks, None
            self._end_fs = now_fs + self._duration_fs(ticks)
            self._set_alarm((self._end_fs + HALF_NS) // FS_PER_NS - now_ns, self._end, self._on_end)
            return
        self._ticks, self._growth_fs, self._flown = 1, 0, planned
        for request in planned.admitted:
            request.admitted_ns = now_ns  # planned a step ago, but this is the first that computes it
        self._end_fs = now_fs + first_fs
        end_ns = (self._end_fs + HALF_NS) // FS_PER_NS
        if self._horizon_ns is not None and end_ns >= self._horizon_ns:
            return  # nothing of it is seen
        self._row = self._row_of(planned, end_ns)
        self.engine.fly(shape.decode_seqs, end_ns)
        if self.engine.cancelled:
            self.engine.drop_cancelled()
        self._plan_next(now_ns)
        self._set_alarm(end_ns - now_ns, self._end, self._on_end)

    def _plan_next(self, now_ns: int) -> None:
        verdict = self.engine.plan(now_ns)
        step = self.batch.step
        if step.empty:
            self._next = None
            self._evicted += len(step.preempted)
            self._evicted_for_nothing = step.preempted
        else:
            if isinstance(verdict, Wait):
                raise RuleBroken(self.engine.name, "a wait comes with an empty step", f"Wait at {now_ns / 1e9} s")
            self._next = self._as_planned(verdict)

    def _ticks_ahead(self, planned: Planned) -> int:
        """Ticks before the one at whose start the plan could change."""
        batch, group = self.batch, self.batch.group
        if batch.step.chunks or planned.shape.decode_seqs != group.size or self.engine.cancelled:
            return 0
        if self._news and planned.verdict is not DEAF:
            return 0
        left = group.next_end - group.clock.ticks - 1
        ticks = group.ticks_that_fit(batch.pool.free, left)
        while ticks > 1 and self._duration_fs(ticks) > LONGEST_RUN_FS:
            ticks //= 2
        return ticks

    def _on_end_ahead(self, now_ns: int) -> None:
        engine, batch = self.engine, self.batch
        if self._flown is None:
            waiting = self._waiting_then
            self._settle(self._ticks, now_ns, cancel=False)
            batch.open_step()
            if not batch.decode():
                raise AssertionError("the run left blocks for its last step")
            planned = self._as_planned(self._verdict)._replace(waiting=waiting)
            if self._single:
                self._launch(now_ns, self._end_fs, planned, single=True)
            else:
                self._ticks, self._flown, self._last = 1, planned, planned
                self._set_alarm(0, self._planning, self._on_last)
            return
        self._record(batch.recalled)
        engine.land(now_ns)
        self._log(self._start_ns, now_ns, self._flown)
        if self._evicted_for_nothing:
            nothing = Planned(ONCE, self._shape, 0, 0, 0, 0, [], self._evicted_for_nothing, [])
            self._evicted_for_nothing = []
            self._log(now_ns, now_ns, nothing)
        self._busy = False
        if self._single:
            self._go_on(now_ns)
        else:
            self._set_alarm(0, self._planning, self._on_resume)
            self._planned = True

    def _on_last(self, alarm: Event) -> None:
        """The last step of a run of steps planned ahead, after which something may change."""
        if alarm is self._alarm and self._last is not None:
            planned, self._last = self._last, None
            self._launch(self.env._now, self._end_fs, planned, single=True)  # type: ignore[arg-type]

    def _go_on(self, now_ns: int) -> None:
        planned, self._next = self._next, None
        if planned is None:
            self._plan(now_ns, self._end_fs)
        else:
            self._launch(now_ns, self._end_fs, planned)

    def _record(self, recalled: list[tuple[Request, bool]]) -> None:
        """The step that has landed; it gave those recalled nothing, and so no gap."""
        row = self._row
        if recalled:
            row = (*row[:STEADY_SEQS], row[STEADY_SEQS] - sum(steady for _, steady in recalled), *row[STEADY_SEQS + 1 :])
        self._put(pack_iteration(*row))

    def _row_of(self, planned: Planned, end_ns: int) -> tuple[int, ...]:
        group, shape = self.batch.group, planned.shape
        decodes = shape.decode_seqs > 0
        streaming = group.size if decodes else 0
        ticked = streaming - len(group.fresh) if decodes else 0
        return (
            self.engine.number, self._start_ns, end_ns, 1, shape.prefill_tokens, shape.prefill_s2_x2, shape.decode_seqs,
            shape.context_tokens, 0, planned.running, planned.waiting, planned.kv_blocks_used, planned.kv_blocks_used,
            planned.preempted, group.clock.ticks, ticked, streaming, self._first_fs, 0,
            self._start_fs - self._start_ns * FS_PER_NS,
        )  # fmt: skip

    # -- the end -----------------------------------------------------------------------------------------------------

    def _late_before_last_step(self, ticks: int) -> int:
        start_ns = (self._start_fs + self._duration_fs(ticks - 1) + HALF_NS) // FS_PER_NS
        late = sum(1 for arrival_ns in self._late if arrival_ns <= start_ns)
        self._late.clear()
        return late

    def _log(self, start_ns: int, end_ns: int, planned: Planned | None = None) -> None:
        steps, step = self.engine.recorder.steps, self.batch.step
        if steps is None:
            return
        entries = list((step.entries or {}).values()) if planned is None else planned.entries
        evicted = step.preempted if planned is None else planned.evicted
        steps.append(self.engine.log_entry(self._steps, start_ns, end_ns, entries, evicted))
        self._steps += 1

    def close(self, now_ns: int) -> None:
        """The run is over: settle the steps of a run that ended before the horizon, drop the one that it cuts."""
        if self._busy and (self._ticks > 1 or (self._ahead and self._flown is None)):
            ticks = self._ticks_until(now_ns) - 1
            if ticks >= 1:
                end_ns = (self._start_fs + self._duration_fs(ticks) + HALF_NS) // FS_PER_NS
                self._settle(ticks, end_ns, cancel=False)
        self.engine.close(now_ns)

    def stuck(self) -> str | None:
        """What stands still, when nothing more will happen."""
        if self._busy or not (self.batch.queue or self.batch.seats):
            return None
        return (
            f"scheduler {self.engine.name!r} stands still with {len(self.batch.queue)} waiting, {len(self.batch.seats)} "
            f"running and {self.batch.free} of {self.batch.pool.total} blocks free"
        )
