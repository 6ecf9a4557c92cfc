"""A replica on the SimPy clock: it asks its scheduler for a step, prices it, sleeps that long, and settles it.

SimPy's clock counts whole nanoseconds. Beside it the replica keeps the exact instant in femtoseconds, so that a run of k
equal decode steps, taken as one event, ends on the same nanosecond as k single ones. At one instant arrivals come before
the ends of steps, and ends of steps before plans.
"""

from __future__ import annotations

from collections.abc import Callable

from simpy import Environment
from simpy.events import Event

from batchsim import ahead
from batchsim.ahead import Planned
from batchsim.alarm import END, PLAN, Alarm
from batchsim.cost.model import CostModel, Shape
from batchsim.engine import Engine
from batchsim.errors import NoProgress, RuleBroken
from batchsim.express import Lane, LaneAhead
from batchsim.recorder import pack_iteration
from batchsim.records import FS_PER_NS
from batchsim.repeats import HALF_NS, LONGEST_FS, duration_fs, ticks_reaching
from batchsim.request import Request
from batchsim.scheduler import DEAF, FLOW, ONCE, STEADY, Until, Verdict, Wait

EMPTY_PLANS = 1000


class Replica:
    """One engine with its clock.

    alone: nobody hears of answers before the run is over (one replica, requests sent by the clock): the replica may run
    ahead of SimPy's clock up to the next event.  single: it is the only one, so that after a step it may plan at once instead
    of letting others end first.
    step: take no runs of steps as one event.  ahead_of_gpu: asynchronous scheduling, each step planned when the one before starts.
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
        ahead_of_gpu: bool = False,
        horizon_ns: int | None = None,
    ) -> None:
        self.env = env
        self.engine = engine
        self.batch = engine.batch
        self.cost = cost
        self.number = engine.number
        self.end, self.planning = END + engine.number, PLAN + engine.number
        self.single = single
        self.alone = alone
        self.stepwise = step or engine.recorder.steps is not None
        self.busy = False
        self.alarm: Alarm | None = None  # the plan to come, while idle; the end of the step, while busy
        self.planned = False
        self.shape = Shape(0, 0, 0, 0, 0, 0)
        self.verdict: Verdict | Until = ONCE
        self.start_ns = self.start_fs = self.end_fs = self.first_fs = self.growth_fs = 0
        self.ticks = 1
        self.waiting_then = 0  # when the step or run started; late arrivals come on top
        self.waiting_first = 0  # when the first step of a run was planned ahead
        self.late: list[int] = []  # arrivals during a deaf run
        self.evicted = 0  # in plans that came to nothing
        self.evicted_for_nothing: list[tuple[Request, int]] = []  # by the last of them made ahead, not yet logged
        self.steps = 0
        self._ahead = ahead_of_gpu
        self.horizon_ns = horizon_ns
        self.next: Planned | None = None  # planned while the step before it runs
        self.flown: Planned | None = None  # in flight; None during a run of steps, which is settled when it ends
        self.last: Planned | None = None  # the step after a run of steps, until everything that ends now has ended
        self.row: tuple[int, ...] = ()  # what will be recorded of it
        self.news = False  # something came since the last plan
        self.last_ns = 0  # when something last happened here
        self.lane: Lane | LaneAhead | None = None  # set by who knows that nothing can come in its way
        self.put = engine.recorder.put_iteration
        self.price = cost.price

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
        self.news = True
        if not self.busy:
            self.wake()
        elif self.ticks > 1:
            if self.verdict is DEAF:
                self.late.append(self.env._now)  # type: ignore[arg-type]
            else:
                self._cut()
        return None

    def cancel(self, request: Request) -> None:
        """The client of a request that is still here gave up."""
        self.engine.cancel(request, self.env._now, busy=self.busy)  # type: ignore[arg-type]
        self.last_ns = self.env._now  # type: ignore[assignment]
        self.look_again()

    def wake(self) -> None:
        """Plan at this instant, after everything else that happens in it."""
        if not (self.busy or self.planned):
            self.set_alarm(0, self.planning, self._on_plan)
            self.planned = True

    def look_again(self) -> None:
        """Something changed that the scheduler may want to see: plan now if idle, else after the step under way."""
        self.news = True
        if self.next is not None and self.next.verdict is DEAF:  # deaf to arrivals, not to this
            self.next = self.next._replace(verdict=STEADY)
        if not self.busy:
            self.wake()
        elif self.ticks > 1:
            self._cut()

    def ticks_done(self, *, settled: bool) -> int:
        """Ticks of the run under way that step by step would have been counted by now.

        settled: the steps that end at this very instant have ended.
        """
        if not self.busy or (self.ticks == 1 and not self._ran_ahead()):
            return 0
        now_ns: int = self.env._now  # type: ignore[assignment]
        if self._ran_ahead():  # counted when they start
            return min(self.ticks_until(now_ns), self.ticks)
        return min(self.ticks_until(now_ns + settled) - 1, self.ticks)

    def blocks_opened(self) -> int:
        """Blocks that the run under way has opened by now, beside those that the pool knows of."""
        if not self.busy or (self.ticks == 1 and not self._ran_ahead()):
            return 0
        now_ns: int = self.env._now  # type: ignore[assignment]
        ticks = min(self.ticks_until(now_ns), self.ticks) - 1 + self._ran_ahead()
        return self.batch.group.blocks_after(ticks)

    def _ran_ahead(self) -> bool:
        """Whether a run of steps planned ahead is under way."""
        return self._ahead and self.flown is None

    # -- the loop ------------------------------------------------------------------------------------------------------

    def set_alarm(self, delay_ns: int, priority: int, call: Callable[[Event], None]) -> None:
        self.alarm = Alarm(self.env, delay_ns, priority, call)

    def _on_plan(self, alarm: Event) -> None:
        if alarm is self.alarm:
            self.planned = False
            now_ns: int = self.env._now  # type: ignore[assignment]
            end_ns = self.plan(now_ns, now_ns * FS_PER_NS)
            if end_ns is not None:
                self.set_alarm(end_ns - now_ns, self.end, self.on_end)

    def on_end(self, alarm: Event) -> None:
        if alarm is not self.alarm:
            return
        now_ns: int = self.env._now  # type: ignore[assignment]
        end_ns: int | None = now_ns
        if self._ahead:
            while end_ns is not None:
                self.last_ns = end_ns
                end_ns = ahead.end(self, end_ns)
            return
        while end_ns is not None:  # steps that end before anything else can happen need no event of their own
            self.settle(self.ticks, end_ns)
            self.busy = False
            if not self.single:
                self.set_alarm(0, self.planning, self.on_resume)
                self.planned = True
                return
            if self.news or self.verdict is not FLOW or self.stepwise or not self._flow(end_ns):
                end_ns = self.plan(end_ns, self.end_fs)
            else:
                end_ns = self.alarm_or_end(end_ns)

    def alarm_or_end(self, now_ns: int) -> int | None:
        """When the step that starts now ends, if nothing else happens before; else None, and an alarm is set."""
        end_ns = (self.end_fs + HALF_NS) // FS_PER_NS
        if self.alone and end_ns < self.env.peek():
            return end_ns
        env = self.env
        self.alarm = Alarm(env, end_ns - env._now, self.end, self.on_end)  # type: ignore[arg-type]
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
        self.start_run(now_ns, self.end_fs, FLOW)
        return True

    def on_resume(self, alarm: Event) -> None:
        if alarm is self.alarm:
            self.planned = False
            now_ns: int = self.env._now  # type: ignore[assignment]
            end_ns = ahead.go_on(self, now_ns) if self._ahead else self.plan(now_ns, self.end_fs)
            if end_ns is not None:
                self.set_alarm(end_ns - now_ns, self.end, self.on_end)

    def plan(self, now_ns: int, now_fs: int) -> int | None:
        """Ask the scheduler for a step and start it, or wait. As `alarm_or_end`."""
        if self.lane is not None and self.lane.take(now_ns, now_fs):
            return None
        self.news = False
        verdict = self.engine.plan(now_ns)
        step = self.batch.step
        if not (step.tick or step.chunks or step.named):
            again = self.plan_again(now_ns, verdict)
            if again is None:
                return None
            verdict, step = again, self.batch.step
        if verdict.__class__ is Wait:
            raise RuleBroken(self.engine.name, "a wait comes with an empty step", f"Wait at {now_ns / 1e9} s")
        if self._ahead:
            return ahead.launch(self, now_ns, now_fs, ahead.as_planned(self, verdict))  # type: ignore[arg-type]
        if step.dirty or verdict is ONCE or self.stepwise:
            self.start(now_ns, now_fs, verdict)  # type: ignore[arg-type]
        else:
            self.start_run(now_ns, now_fs, verdict)  # type: ignore[arg-type]
        return self.alarm_or_end(now_ns)

    def plan_again(self, now_ns: int, verdict: Verdict | Until | Wait) -> Verdict | Until | Wait | None:
        """An empty step takes no time: plan again if it changed anything; None when there is nothing to do now."""
        engine, batch = self.engine, self.batch
        for _ in range(EMPTY_PLANS):
            if batch.step.preempted:
                self.evicted += len(batch.step.preempted)
                engine.finished = []  # those were of the step before
                self.log(now_ns, now_ns)
            elif engine.turned_away:  # others may be next, and their clients may have sent again
                engine.turned_away = False
            else:
                self.alarm = None
                self.planned = False
                if isinstance(verdict, Wait) and verdict.until_ns is not None and verdict.until_ns > now_ns:
                    # steps without an event of their own may stand ahead of SimPy's clock; not `planned`: it can be sooner
                    self.set_alarm(verdict.until_ns - self.env._now, self.planning, self._on_plan)  # type: ignore[arg-type]
                return None
            verdict = engine.plan(now_ns)
            if not batch.step.empty:
                return verdict
        raise NoProgress(f"scheduler {engine.name!r} planned {EMPTY_PLANS} empty steps at {now_ns / 1e9} s")

    def start(self, now_ns: int, now_fs: int, verdict: Verdict | Until) -> None:
        """One step."""
        batch = self.batch
        self.shape = shape = batch.shape()
        first_fs, _ = self.price(shape)
        self.verdict = verdict
        self.start_ns, self.start_fs, self.first_fs, self.growth_fs = now_ns, now_fs, first_fs, 0
        self.waiting_then = len(batch.queue)
        self.busy = True
        self.ticks = 1
        self.end_fs = now_fs + first_fs

    def start_run(self, now_ns: int, now_fs: int, verdict: Verdict | Until) -> None:
        """Decode steps, all alike but for the growing contexts, as one event: until somebody ends or something comes."""
        batch = self.batch
        self.shape = shape = batch.shape()
        first_fs, growth_fs = self.price(shape)
        self.verdict = verdict
        self.start_ns, self.start_fs, self.first_fs = now_ns, now_fs, first_fs
        self.waiting_then = len(batch.queue)
        self.busy = True
        ticks = 1 if growth_fs is None or self.stepwise else self._run_length()
        if ticks == 1:
            self.ticks, self.growth_fs = 1, 0
            self.end_fs = now_fs + first_fs
            return
        assert growth_fs is not None
        self.growth_fs = growth_fs
        if verdict.__class__ is Until:
            ticks = self._bounded(verdict, ticks)
        ticks = self.bounded_by_time(ticks, deaf=self.verdict is DEAF)
        self.ticks = ticks
        self.end_fs = now_fs + self.duration_fs(ticks)

    def _run_length(self) -> int:
        """Ticks until somebody ends or blocks run short, the planned one included."""
        batch = self.batch
        group = batch.group
        if group.ghosts and group.size == group.ghosts:
            left = max(batch.hold_until_tick - group.clock.ticks, 1)
        else:
            left = group.next_end - group.clock.ticks
        return 1 if left <= 1 else 1 + group.ticks_that_fit(batch.pool.free - batch.headroom, left - 1)

    def bounded_by_time(self, ticks: int, *, deaf: bool) -> int:
        """Of a run's ticks, those that the columns can hold, and those before the next event, which will probably cut it."""
        lasts_fs = self.duration_fs(ticks)
        if lasts_fs > LONGEST_FS:
            ticks = max(1, LONGEST_FS // (self.first_fs + self.growth_fs * ticks))
        if self.single and not deaf and ticks > 1:
            coming_ns = self.env.peek()
            if coming_ns * FS_PER_NS < self.start_fs + lasts_fs:
                return min(ticks, self.ticks_until(coming_ns))  # type: ignore[arg-type]
        return ticks

    def _bounded(self, until: Until, ticks: int) -> int:
        """Of a run's ticks, those before its scheduler wants to be asked again."""
        self.verdict = until.verdict
        if until.ticks is not None:
            ticks = min(ticks, max(until.ticks, 1))
        return ticks if until.ns is None else min(ticks, self.ticks_until(until.ns))

    def duration_fs(self, ticks: int) -> int:
        return duration_fs(ticks, self.first_fs, self.growth_fs)

    def _cut(self) -> None:
        """Something happened during a run: it ends with the step that is now under way."""
        ticks = self.ticks_until(self.env._now)  # type: ignore[arg-type]
        if ticks < self.ticks:
            self.ticks = ticks
            self.end_fs = self.start_fs + self.duration_fs(ticks)
            self.set_alarm((self.end_fs + HALF_NS) // FS_PER_NS - self.env._now, self.end, self.on_end)  # type: ignore[arg-type]

    def ticks_until(self, now_ns: int) -> int:
        """The first step of the run that ends at `now_ns` or later."""
        return ticks_reaching(now_ns * FS_PER_NS - HALF_NS - self.start_fs, self.first_fs, self.growth_fs)

    def settle(self, ticks: int, end_ns: int, *, cancel: bool = True) -> None:
        """The step, or `ticks` ticks of the run, are over."""
        engine, batch = self.engine, self.batch
        group, pool, step = batch.group, batch.pool, batch.step
        tokens, s2_x2, _, _, decodes, context = self.shape
        blocks = blocks_first = pool.total - pool.free
        first_end_ns = end_ns
        if ticks > 1:
            taken = group.blocks_after(ticks - 1)
            if taken:
                pool.take(taken)
                blocks += taken
            if group.fresh:
                first_end_ns = (self.start_fs + self.first_fs + HALF_NS) // FS_PER_NS
        waiting = self.waiting_then
        if self._ahead and ticks == 1:
            waiting = self.waiting_first
        elif self.late:
            waiting += self.late_by(ticks - 2 if self._ahead else ticks - 1)
            if not self._ahead:
                self.late.clear()
        evicted = streaming = steady = 0
        if decodes:
            streaming = steady = group.size - group.ghosts
            if group.fresh:
                steady -= len(group.fresh)
        if self.evicted or step.preempted:
            evicted = len(step.preempted) + self.evicted
            self.evicted = 0
        start_ns = self.start_ns
        self.last_ns = end_ns
        self.put(
            pack_iteration(
                engine.number, start_ns, end_ns, ticks, tokens, s2_x2, decodes, context, step.padded_tokens + group.ghosts,
                len(batch.seats), waiting, blocks, blocks_first, evicted, group.clock.ticks, steady, streaming,
                self.first_fs, self.growth_fs, self.start_fs - start_ns * FS_PER_NS,
            )
        )  # fmt: skip
        engine.settle(decodes, ticks, first_end_ns, end_ns, cancel=cancel)
        if engine.recorder.steps is not None:
            self.log(start_ns, end_ns)

    # -- the end -----------------------------------------------------------------------------------------------------

    def late_by(self, tick: int) -> int:
        """Arrivals of a deaf run that came by the end of its `tick`-th step (0: its start)."""
        by_ns = (self.start_fs + self.duration_fs(max(tick, 0)) + HALF_NS) // FS_PER_NS
        return sum(1 for arrival_ns in self.late if arrival_ns <= by_ns)

    def log(self, start_ns: int, end_ns: int, planned: Planned | None = None) -> None:
        """Note a step that is over in the step log, if there is one."""
        steps, step = self.engine.recorder.steps, self.batch.step
        if steps is None:
            return
        entries = list((step.entries or {}).values()) if planned is None else planned.entries
        evicted = step.preempted if planned is None else planned.evicted
        steps.append(self.engine.log_entry(self.steps, start_ns, end_ns, entries, evicted))
        self.steps += 1

    def close(self, now_ns: int) -> None:
        """The run is over: settle the steps of a run that ended before the horizon, drop the one that it cuts."""
        if self.busy and (self.ticks > 1 or (self._ahead and self.flown is None)):
            ticks = self.ticks_until(now_ns) - 1
            if ticks >= 1:
                end_ns = (self.start_fs + self.duration_fs(ticks) + HALF_NS) // FS_PER_NS
                self.settle(ticks, end_ns, cancel=False)
        self.engine.close(now_ns)

    def stuck(self) -> str | None:
        """What stands still, when nothing more will happen."""
        if self.busy or not (self.batch.queue or self.batch.seats):
            return None
        return (
            f"scheduler {self.engine.name!r} stands still with {len(self.batch.queue)} waiting, {len(self.batch.seats)} "
            f"running and {self.batch.free} of {self.batch.pool.total} blocks free"
        )
