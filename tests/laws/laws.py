"""The laws that hold in every run, one function each; `docs/reference/invariants.md` lists them by these names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from batchsim.metrics.ticks import max_itl_ns
from batchsim.records import NEVER, Status
from batchsim.simulation import Run
from tests.laws.tokens import by_replica, steps_of, stories

Law = Callable[[Run], None]


def requests_are_conserved(run: Run) -> None:
    """submitted = completed + running + waiting + rejected + cancelled, and the rest was never sent."""
    summary, requests = run.summary, run.records.requests
    counts = Counter(Status(status) for status in requests.status.tolist())
    ends = [summary[key] for key in ("completed", "running_at_end", "waiting_at_end", "rejected", "cancelled")]
    assert summary["submitted"] == sum(ends) == len(requests) - counts[Status.UNSENT]
    assert summary["failed"] == summary["rejected"] + summary["cancelled"]
    for status in (Status.REJECTED, Status.CANCELLED):
        assert all(requests.reasons[i] for i in np.flatnonzero(requests.status == status))
    if run.records.horizon_ns is None:
        assert counts[Status.RUNNING] == counts[Status.WAITING] == counts[Status.UNSENT] == 0


def blocks_are_conserved(run: Run) -> None:
    """0 <= free <= total after every step, what is computed is backed, and all are free when nobody is here."""
    records, block, scheduler = run.records, run.records.block_size, run.resolved.scheduler()
    for log in by_replica(records).values():
        computed: Counter[str] = Counter()
        for step in log:
            for name, _ in step["preempted"]:
                del computed[name]
            for name, tokens, before in step["sched"]:
                computed[name] = before + tokens
            held = records.kv_blocks_total - step["free_blocks"]
            seats = set(step["running"])
            assert 0 <= held <= records.kv_blocks_total
            if not step["running"]:
                assert held == 0
            if getattr(scheduler, "enable_prefix_caching", False) or getattr(scheduler, "async_scheduling", False):
                continue
            need = sum(-(-computed[name] // block) for name in seats)
            assert need <= held, f"{need} blocks are needed, {held} are held"
            if run.resolved.scheduler_kind in ("vllm", "tests.laws.outside:Naive"):
                assert need == held, f"{held} blocks are held for {need}"


def time_runs_forward(run: Run) -> None:
    """arrive <= admit <= first token <= finish, and no step of a replica starts before the one before has ended."""
    requests = run.records.requests
    for before, after in (
        ("arrival_ns", "admitted_ns"),
        ("admitted_ns", "first_token_ns"),
        ("first_token_ns", "finished_ns"),
    ):
        early, late = getattr(requests, before), getattr(requests, after)
        assert np.all((late == NEVER) | ((early != NEVER) & (early <= late))), f"{before} <= {after}"
    assert np.all((requests.arrival_ns == NEVER) | (requests.scheduled_ns <= requests.arrival_ns))
    for log in by_replica(run.records).values():
        ends = [0.0] + [step["end_s"] for step in log]
        assert all(end <= step["start_s"] <= step["end_s"] for end, step in zip(ends, log, strict=False))
    if run.records.horizon_ns is not None:
        assert all(step["end_s"] < run.records.horizon_ns / 1e9 for step in steps_of(run.records))


def tokens_add_up(run: Run) -> None:
    """Each completed request got the tokens that it asked for, one at a time: O - 1 gaps, and TTFT + gaps = E2E."""
    records, room = run.records, run.resolved.max_model_len
    requests, workload = records.requests, records.workload
    for place, story in enumerate(stories(records).values()):
        times = [round(at * 1e9) for at in story.tokens_s]
        assert len(times) == requests.emitted_tokens[place]
        assert times == sorted(times)
        # not logged: evictions of a step that the horizon cuts, and of a step planned ahead that came to nothing
        if records.horizon_ns is None:
            assert requests.preemptions[place] == story.evictions
            assert requests.recomputed_tokens[place] == story.lost - int(requests.resume_hit_tokens[place])
        if times:
            assert requests.first_token_ns[place] == times[0]
            assert requests.admitted_ns[place] == round((story.admitted_s or 0.0) * 1e9)
        if requests.status[place] == Status.COMPLETED:
            limit = int(workload.max_tokens[place])
            asked = min(int(workload.output_tokens[place]), limit if limit > 0 else room)
            assert len(times) == min(asked, room)
            assert requests.finished_ns[place] == times[-1]
            assert story.finishes == 1
        else:
            assert story.finishes == 0


def gaps_are_told(run: Run) -> None:
    """The pooled gaps, their percentiles and each request's longest are those of the steps, to the nanosecond."""
    gaps: list[int] = []
    longest = max_itl_ns(run.records)
    for place, story in enumerate(stories(run.records).values()):
        times = [round(at * 1e9) for at in story.tokens_s]
        own = [after - before for before, after in pairwise(times)]
        gaps += own
        if run.records.requests.status[place] == Status.COMPLETED and own:
            assert longest[place] == max(own)
    summary = run.summary
    assert summary["n_itl"] == len(gaps)
    for key, value in (("mean", np.mean), ("std", np.std), ("median", np.median), ("max", np.max)):
        expected = float(value(gaps)) / 1e6 if gaps else None
        assert summary[f"{key}_itl_ms"] == (None if expected is None else pytest.approx(expected, rel=1e-9, abs=1e-6))
    if gaps:
        assert summary["p99_itl_ms"] == pytest.approx(float(np.percentile(gaps, 99)) / 1e6, rel=1e-9)


def every_step_moves(run: Run) -> None:
    """No step is empty unless it preempted, and only a step that computes takes time."""
    ended: set[str] = set()
    ahead = getattr(run.resolved.scheduler(), "async_scheduling", False)
    for step in steps_of(run.records):
        ended |= set(step["finished"])
        assert step["sched"] or step["preempted"]
        assert step["sched"] or step["start_s"] == step["end_s"]
        names = [name for name, *_ in step["sched"]]
        assert len(names) == len(set(names)), "a request computes once a step"
        evicted_since = set(step["waiting"]) if ahead else set()  # by the next step, planned when this one started
        assert set(names) <= set(step["running"]) | ended | _gone(run) | evicted_since
        assert not set(step["running"]) & set(step["waiting"])


def little_holds(run: Run) -> None:
    """Time spent in the queue and in seats is the sum over requests, so mean numbers times the span equal it."""
    records, summary = run.records, run.summary
    requests = records.requests
    done = requests.status == Status.COMPLETED
    stay_ns = requests.waited_ns + requests.ran_ns
    held = run.resolved.scheduler().__class__
    if not getattr(run.resolved.scheduler(), "hold", False):
        assert np.array_equal(
            stay_ns[done], (requests.finished_ns - requests.arrival_ns)[done] - run.resolved.ingress_ns
        ), held
    if summary["duration"]:
        together = summary["mean_running"] + summary["mean_waiting"]
        assert together * summary["duration"] * 1e9 == pytest.approx(float(stay_ns.sum()), rel=1e-9)


def the_oldest_stays(run: Run) -> None:
    """Under vLLM's fcfs the request admitted first among the running is never evicted."""
    if run.resolved.scheduler_kind != "vllm" or run.resolved.scheduler().policy != "fcfs":
        return
    for log in by_replica(run.records).values():
        oldest = None
        for step in log:
            assert oldest not in [name for name, _ in step["preempted"]]
            oldest = step["running"][0] if step["running"] else None


EVERY_RUN: tuple[Law, ...] = (
    requests_are_conserved,
    blocks_are_conserved,
    time_runs_forward,
    tokens_add_up,
    gaps_are_told,
    every_step_moves,
    little_holds,
    the_oldest_stays,
)

APPROXIMATE = ("kv_mean_fraction", "token_bound_fraction", "seat_bound_fraction", "kv_bound_fraction")
"""Figures that know of a run of equal steps only how it began and ended."""


def same_results(one: Run, other: Run) -> None:
    """Every column of every request and every figure of the summary is the same in both runs."""
    for field in fields(one.records.requests):
        mine, theirs = getattr(one.records.requests, field.name), getattr(other.records.requests, field.name)
        same = np.array_equal(mine, theirs) if field.name != "reasons" else mine == theirs
        assert same, (
            f"{field.name}: not as step by step; did `plan` return STEADY, DEAF or FLOW where only ONCE is true?"
        )
    assert one.records.end_ns == other.records.end_ns
    differences(figures(one), figures(other), "summary")


def figures(run: Run) -> dict[str, Any]:
    """The summary without what is approximate."""
    return {key: value for key, value in run.summary.items() if key not in APPROXIMATE}


def differences(mine: Any, theirs: Any, path: str) -> None:
    """Assert that two summaries are equal, floats but for the rounding of sums that run in another order."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        assert list(mine) == list(theirs), path
        for key in mine:
            differences(mine[key], theirs[key], f"{path}.{key}")
    elif isinstance(mine, float) and isinstance(theirs, float):
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-9), path
    else:
        assert mine == theirs, path


def _gone(run: Run) -> set[str]:
    """Requests that left without finishing."""
    records = run.records
    return {records.workload.id_of(i) for i in np.flatnonzero(records.requests.status == Status.CANCELLED)}
