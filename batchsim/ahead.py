"""Asynchronous scheduling: what a replica does when each step is planned while the one before it runs.

At the moment a step starts, what it will compute and emit is committed (`Engine.fly`), and the next step is planned from that;
when it ends, those who ended leave (`Engine.land`), and the planned step starts. Runs of equal steps are one event here too: up to
the step at whose start the plan could change, which is then taken singly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simpy.events import Event

from batchsim.cost.model import Shape
from batchsim.errors import RuleBroken
from batchsim.recorder import pack_iteration
from batchsim.records import FS_PER_NS, Iterations
from batchsim.request import Request
from batchsim.scheduler import DEAF, FLOW, ONCE, Until, Verdict, Wait
from batchsim.step import Entry

if TYPE_CHECKING:
    from batchsim.replica import Replica

STEADY_SEQS = tuple(Iterations.__dataclass_fields__).index("steady_seqs")


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


def as_planned(replica: Replica, verdict: Verdict | Until) -> Planned:
    """The step that stands in the batch."""
    batch, step = replica.batch, replica.batch.step
    replica.news = False
    evicted = len(step.preempted) + replica.evicted
    replica.evicted = 0
    admitted: list[Request] = []
    if step.chunks:
        chunks = step.chunks.values()
        admitted = [r for r, _, past in chunks if r.admitted_ns == batch.now_ns and past == r.hit_tokens]
    return Planned(
        ONCE if verdict.__class__ is Until else verdict,  # type: ignore[arg-type]  # bounded runs are planned singly
        batch.shape(),
        len(batch.seats),
        len(batch.queue),
        batch.pool.total - batch.pool.free,
        evicted,
        [] if step.entries is None else list(step.entries.values()),
        step.preempted,
        admitted,
    )


def launch(replica: Replica, now_ns: int, now_fs: int, planned: Planned, *, single: bool = False) -> int | None:
    """Start a planned step and plan the next; or start a run of equal steps, the plans of which need no asking.

    As `Replica.alarm_or_end`: when it ends, if nothing else can happen before.
    """
    shape = planned.shape
    first_fs, growth_fs = replica.price(shape)
    replica.shape, replica.verdict, replica.busy = shape, planned.verdict, True
    replica.start_ns, replica.start_fs, replica.first_fs = now_ns, now_fs, first_fs
    replica.waiting_then = replica.waiting_first = planned.waiting
    replica.growth_fs = 0
    if not (single or growth_fs is None or replica.stepwise or planned.verdict is ONCE or shape.prefill_seqs):
        replica.growth_fs = growth_fs
        ticks = _ticks_ahead(replica, planned)
        if ticks:
            replica.ticks, replica.flown = ticks, None
            replica.waiting_then = len(replica.batch.queue)  # as the plans after this one will see it
            replica.end_fs = now_fs + replica.duration_fs(ticks)
            return replica.alarm_or_end(now_ns)
    return _launch_one(replica, now_ns, planned)


def _launch_one(replica: Replica, now_ns: int, planned: Planned) -> int | None:
    engine = replica.engine
    replica.ticks, replica.growth_fs, replica.flown = 1, 0, planned
    for request in planned.admitted:
        # planned a step ago, but this is the first that computes it: until now it has waited
        request.waited_ns += now_ns - request.seated_ns
        request.admitted_ns = request.seated_ns = now_ns
    replica.end_fs = replica.start_fs + replica.first_fs
    end_ns = (replica.end_fs + FS_PER_NS // 2) // FS_PER_NS
    if replica.horizon_ns is not None and end_ns >= replica.horizon_ns:
        return None  # nothing of it is seen
    replica.row = _row_of(replica, planned, end_ns)
    engine.fly(planned.shape.decode_seqs, end_ns)
    if engine.cancelled:
        engine.drop_cancelled()
    asked = planned.verdict is not FLOW or replica.news or replica.stepwise or not engine.flows_ahead
    if asked or not _plan_flow(replica, now_ns):
        _plan_next(replica, now_ns)
    return replica.alarm_or_end(now_ns)


def _plan_flow(replica: Replica, now_ns: int) -> bool:
    """The scheduler said FLOW and nothing came since: in the next step everybody decodes on, if blocks allow."""
    batch = replica.batch
    if not batch.group.size or batch.resting or batch.prefilling:
        return False
    batch.now_ns = now_ns
    batch.open_step()
    if not batch.decode():
        return False
    replica.next = as_planned(replica, FLOW)
    return True


def _plan_next(replica: Replica, now_ns: int) -> None:
    verdict = replica.engine.plan(now_ns)
    step = replica.batch.step
    if step.empty:
        replica.next = None
        replica.evicted += len(step.preempted)
        replica.evicted_for_nothing = step.preempted
        return
    if verdict.__class__ is Wait:
        raise RuleBroken(replica.engine.name, "a wait comes with an empty step", f"Wait at {now_ns / 1e9} s")
    replica.next = as_planned(replica, verdict)  # type: ignore[arg-type]


def _ticks_ahead(replica: Replica, planned: Planned) -> int:
    """Ticks before the one at whose start the plan could change."""
    batch, group = replica.batch, replica.batch.group
    if batch.step.chunks or planned.shape.decode_seqs != group.size or replica.engine.cancelled:
        return 0
    if planned.preempted or planned.running != len(batch.seats):  # in its row, and not in those that follow
        return 0
    deaf = planned.verdict is DEAF
    if replica.news and not deaf:
        return 0
    ticks = group.ticks_that_fit(batch.pool.free, group.next_end - group.clock.ticks - 1)
    return replica.bounded_by_time(ticks, deaf=deaf)


def end(replica: Replica, now_ns: int) -> int | None:
    """The step in flight, or the run, is over; start what comes next. As `Replica.alarm_or_end`."""
    engine, batch = replica.engine, replica.batch
    if replica.flown is None:
        return _end_run(replica, now_ns)
    _record(replica, batch.recalled)
    engine.land(now_ns)
    if engine.recorder.steps is not None:
        replica.log(replica.start_ns, now_ns, replica.flown)
        if replica.evicted_for_nothing:
            engine.finished, engine.discarded = [], []  # those were of the step that has ended
            replica.log(now_ns, now_ns, Planned(ONCE, replica.shape, 0, 0, 0, 0, [], replica.evicted_for_nothing, []))
    replica.evicted_for_nothing = []
    replica.busy = False
    if replica.single:
        return go_on(replica, now_ns)
    replica.set_alarm(0, replica.planning, replica.on_resume)
    replica.planned = True
    return None


def _end_run(replica: Replica, now_ns: int) -> int | None:
    """After a run of equal steps one more of them, at whose start the plan may change."""
    batch = replica.batch
    waiting = replica.waiting_then + replica.late_by(replica.ticks - 1)  # as its plan saw it, a step ago
    replica.settle(replica.ticks, now_ns, cancel=False)
    replica.late.clear()
    news = replica.news
    batch.open_step()
    if not batch.decode():
        raise AssertionError("the run left blocks for its last step")
    planned = as_planned(replica, replica.verdict)._replace(waiting=waiting)
    replica.news = news  # what came during the run was not in this step's plan
    if replica.single:
        return launch(replica, now_ns, replica.end_fs, planned, single=True)
    replica.ticks, replica.flown, replica.last = 1, planned, planned
    replica.set_alarm(0, replica.planning, lambda alarm: _on_last(replica, alarm))
    return None


def _on_last(replica: Replica, alarm: Event) -> None:
    """The last step of a run, once everything that ends at this instant has ended."""
    if alarm is replica.alarm and replica.last is not None:
        planned, replica.last = replica.last, None
        launch(replica, replica.env._now, replica.end_fs, planned, single=True)  # type: ignore[arg-type]


def go_on(replica: Replica, now_ns: int) -> int | None:
    """The step planned ahead starts; without one, plan now."""
    planned, replica.next = replica.next, None
    if planned is None:
        return replica.plan(now_ns, replica.end_fs)
    if replica.lane is not None and replica.lane.take(now_ns, replica.end_fs, planned):
        return None
    return launch(replica, now_ns, replica.end_fs, planned)


def _record(replica: Replica, recalled: list[tuple[Request, bool]]) -> None:
    """The step that has landed; it gave those recalled nothing, and so no gap."""
    row = replica.row
    if recalled:
        row = (*row[:STEADY_SEQS], row[STEADY_SEQS] - sum(steady for _, steady in recalled), *row[STEADY_SEQS + 1 :])
    replica.put(pack_iteration(*row))


def _row_of(replica: Replica, planned: Planned, end_ns: int) -> tuple[int, ...]:
    group, shape = replica.batch.group, planned.shape
    streaming = group.size if shape.decode_seqs else 0
    ticked = streaming - len(group.fresh) if shape.decode_seqs else 0
    return (
        replica.number, replica.start_ns, end_ns, 1, shape.prefill_tokens, shape.prefill_s2_x2, shape.decode_seqs,
        shape.context_tokens, 0, planned.running, planned.waiting, planned.kv_blocks_used, planned.kv_blocks_used,
        planned.preempted, group.clock.ticks, ticked, streaming, replica.first_fs, 0,
        replica.start_fs - replica.start_ns * FS_PER_NS,
    )  # fmt: skip
