"""A replica on the SimPy clock: it asks its scheduler for a step, prices it, sleeps that long, and settles it.

SimPy's clock counts whole nanoseconds. Beside it the replica keeps the exact instant in femtoseconds, so that a run of k
equal decode steps, taken as one event, ends on the same nanosecond as k single ones. At one instant arrivals come before
the ends of steps, and ends of steps before plans.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

from simpy import Environment
from simpy.events import Event

from batchsim.cost.model import CostModel, Shape
from batchsim.engine import Engine
from batchsim.errors import NoProgress, RuleBroken
from batchsim.records import FS_PER_NS
from batchsim.request import Request
from batchsim.scheduler import DEAF, ONCE, Verdict, Wait

HALF_NS = FS_PER_NS // 2
LONGEST_RUN_FS = 4 * 10**18  # sums of a row stay inside 64 bits
EMPTY_PLANS = 1000

ARRIVE, END, PLAN = 0, 1, 2
"""SimPy priorities at one instant."""


class Alarm(Event):
    """An event at a given delay and priority that calls one function."""

    def __init__(self, env: Environment, delay_ns: int, priority: int, call: Callable[[Event], None]) -> None:
        self.env = env  # what Event.__init__ does, and in one go what makes it triggered
        self.callbacks = [call]
        self._value = None
        self._ok = True
        env.schedule(self, priority, delay_ns)  # type: ignore[arg-type]  # any whole number orders events


class Replica:
    """`single`: it is the only one, so that after a step it may plan at once instead of letting others end first."""

    def __init__(self, env: Environment, engine: Engine, cost: CostModel, *, single: bool = True, step: bool = False) -> None:
        self.env = env
        self.engine = engine
        self.batch = engine.batch
        self.cost = cost
        self._single = single
        self._stepwise = step or engine.recorder.steps is not None
        self._busy = False
        self._alarm: Alarm | None = None  # the plan to come, while idle; the end of the step, while busy
        self._alarm_at = 0
        self._planned = False
        self._shape = Shape(0, 0, 0, 0, 0, 0)
        self._verdict: Verdict = ONCE
        self._start_ns = self._start_fs = self._end_fs = self._first_fs = self._growth_fs = 0
        self._ticks = 1
        self._waiting_then = 0
        self._late: list[int] = []  # arrivals during a deaf run
        self._evicted = 0  # in plans that came to nothing
        self._steps = 0

    # -- what comes from outside -------------------------------------------------------------------------------------

    def arrive(self, request: Request) -> str | None:
        """Take a request, or say why not."""
        engine = self.engine
        if engine.refuse is not None:
            self.batch.now_ns = self.env._now  # type: ignore[assignment]
            reason = engine.refuse(request, self.batch)
            if reason is not None:
                self.wake()
                return str(reason)
        engine.push(request, self.env._now)  # type: ignore[arg-type]
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
        if not self._busy:
            self.wake()
        elif self._ticks > 1:
            self._cut()

    def wake(self) -> None:
        """Plan at this instant, after everything else that happens in it."""
        if self._busy or (self._planned and self._alarm_at == self.env._now):
            return
        self._set_alarm(0, PLAN, self._on_plan)
        self._planned = True

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _set_alarm(self, delay_ns: int, priority: int, call: Callable[[Event], None]) -> None:
        self._alarm_at = self.env._now + delay_ns  # type: ignore[assignment]
        self._alarm = Alarm(self.env, delay_ns, priority, call)

    def _on_plan(self, alarm: Event) -> None:
        if alarm is self._alarm:
            self._planned = False
            now_ns: int = self.env._now  # type: ignore[assignment]
            self._plan(now_ns, now_ns * FS_PER_NS)

    def _on_end(self, alarm: Event) -> None:
        if alarm is not self._alarm:
            return
        now_ns: int = self.env._now  # type: ignore[assignment]
        self._settle(self._ticks, now_ns)
        self._busy = False
        if self._single:
            self._plan(now_ns, self._end_fs)
        else:
            self._set_alarm(0, PLAN, self._on_resume)
            self._planned = True

    def _on_resume(self, alarm: Event) -> None:
        if alarm is self._alarm:
            self._planned = False
            self._plan(self.env._now, self._end_fs)  # type: ignore[arg-type]

    def _plan(self, now_ns: int, now_fs: int) -> None:
        engine, batch = self.engine, self.batch
        for _ in range(EMPTY_PLANS):
            verdict = engine.plan(now_ns)
            step = batch.step
            if not step.empty:
                if isinstance(verdict, Wait):
                    raise RuleBroken(engine._name, "a wait comes with an empty step", f"Wait at {now_ns / 1e9} s")
                self._start(now_ns, now_fs, verdict)
                return
            if not step.preempted:
                self._alarm = None
                if isinstance(verdict, Wait) and verdict.until_ns is not None and verdict.until_ns > now_ns:
                    self._set_alarm(verdict.until_ns - now_ns, PLAN, self._on_plan)
                return
            self._evicted += len(step.preempted)
            self._log(now_ns, now_ns)
        raise NoProgress(f"scheduler {engine._name!r} planned {EMPTY_PLANS} empty steps at {now_ns / 1e9} s")

    def _start(self, now_ns: int, now_fs: int, verdict: Verdict) -> None:
        batch = self.batch
        self._shape = shape = batch.shape()
        first_fs, growth_fs = self.cost.price(shape)
        self._verdict = verdict
        self._start_ns, self._start_fs, self._first_fs = now_ns, now_fs, first_fs
        self._waiting_then = len(batch.queue)
        self._busy = True
        if verdict is ONCE or growth_fs is None or self._stepwise or batch.step.chunks:
            self._growth_fs, self._ticks = 0, 1
            self._end_fs = now_fs + first_fs
        else:
            self._growth_fs = growth_fs
            self._ticks = ticks = self._run_length()
            self._end_fs = now_fs + self._duration_fs(ticks)
        self._set_alarm((self._end_fs + HALF_NS) // FS_PER_NS - now_ns, END, self._on_end)

    def _run_length(self) -> int:
        """Ticks until somebody ends or blocks run short, the planned one included."""
        group = self.batch.group
        end = group.next_end
        if group.size == group.ghosts:
            end = max(self.batch.hold_until_tick, group.clock.ticks + 1)
        ticks = 1 + group.ticks_that_fit(self.batch.pool.free, end - group.clock.ticks - 1)
        while ticks > 1 and self._duration_fs(ticks) > LONGEST_RUN_FS:
            ticks //= 2
        return ticks

    def _duration_fs(self, ticks: int) -> int:
        return ticks * self._first_fs + self._growth_fs * (ticks * (ticks - 1) // 2)

    def _cut(self) -> None:
        """Something happened during a run: it ends with the step that is now under way."""
        ticks = self._ticks_until(self.env._now)  # type: ignore[arg-type]
        if ticks < self._ticks:
            self._ticks = ticks
            self._end_fs = self._start_fs + self._duration_fs(ticks)
            self._set_alarm((self._end_fs + HALF_NS) // FS_PER_NS - self.env._now, END, self._on_end)  # type: ignore[arg-type]

    def _ticks_until(self, now_ns: int) -> int:
        """The first step of the run that ends at `now_ns` or later."""
        target = now_ns * FS_PER_NS - HALF_NS - self._start_fs  # its duration must reach this
        first, growth = self._first_fs, self._growth_fs
        if target <= first:
            return 1
        if growth == 0:
            return -(-target // first)
        slope = 2 * first - growth
        ticks = (isqrt(slope * slope + 8 * growth * target) - slope) // (2 * growth)
        while ticks > 1 and self._duration_fs(ticks - 1) >= target:
            ticks -= 1
        while self._duration_fs(ticks) < target:
            ticks += 1
        return max(ticks, 1)

    def _settle(self, ticks: int, end_ns: int) -> None:
        """The step, or `ticks` ticks of the run, are over."""
        engine, batch, step = self.engine, self.batch, self.batch.step
        group, pool = batch.group, batch.pool
        tokens, s2_x2, _, _, decodes, context = self._shape
        first_end_ns = end_ns
        if ticks > 1:
            pool.take(group.blocks_after(ticks - 1))
            first_end_ns = (self._start_fs + self._first_fs + HALF_NS) // FS_PER_NS
        waiting = self._waiting_then
        if self._late:
            waiting += self._late_before_last_step(ticks)
        streaming = group.size - group.ghosts if decodes else 0
        engine.recorder.iteration(
            (
                engine.number, self._start_ns, end_ns, ticks, tokens, s2_x2, decodes, context,
                step.padded_tokens + group.ghosts, len(batch.seats), waiting, pool.total - pool.free,
                len(step.preempted) + self._evicted, group.clock.ticks, streaming - len(group.fresh) if decodes else 0,
                streaming, self._first_fs, self._growth_fs, self._start_fs - self._start_ns * FS_PER_NS,
            )
        )  # fmt: skip
        self._evicted = 0
        engine.settle(decodes > 0, ticks, first_end_ns, end_ns)
        if engine.recorder.steps is not None:
            self._log(self._start_ns, end_ns)

    def _late_before_last_step(self, ticks: int) -> int:
        start_ns = (self._start_fs + self._duration_fs(ticks - 1) + HALF_NS) // FS_PER_NS
        late = sum(1 for arrival_ns in self._late if arrival_ns <= start_ns)
        self._late.clear()
        return late

    def _log(self, start_ns: int, end_ns: int) -> None:
        steps = self.engine.recorder.steps
        if steps is not None:
            steps.append(self.engine.log_entry(self._steps, start_ns, end_ns))
            self._steps += 1

    def close(self, now_ns: int) -> None:
        """The run is over: settle the steps of a run that ended before the horizon, drop the one that it cuts."""
        if self._busy and self._ticks > 1:
            ticks = self._ticks_until(now_ns) - 1
            if ticks >= 1:
                end_ns = (self._start_fs + self._duration_fs(ticks) + HALF_NS) // FS_PER_NS
                self._settle(ticks, end_ns)
        self.engine.close(now_ns)

    def stuck(self) -> str | None:
        """What stands still, when nothing more will happen."""
        if self._busy or not (self.batch.queue or self.batch.seats):
            return None
        return (
            f"scheduler {self.engine._name!r} stands still with {len(self.batch.queue)} waiting, {len(self.batch.seats)} "
            f"running and {self.batch.free} of {self.batch.pool.total} blocks free"
        )
