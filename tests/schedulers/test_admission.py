"""What all policies offer at their door: a bound on the queue, a timeout, passing a blocked request, reservations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.records import Status
from batchsim.simulation import simulate
from tests.schedulers.queues import crowd, logged, most_overtakes, waits_ms
from tests.schedulers.runs import listed, row, ttft_ms

KINDS = ["priority", "round_robin", "sjf", "vtc", "deadline", "mlfq"]
PASSING = ["priority", "round_robin", "sjf", "vtc", "deadline"]
BLOCKED = [row(100, 60), row(170, 2, arrival_ms=1)] + [row(10, 2, arrival_ms=2 + 30 * i) for i in range(10)]
"""One runs, the second needs more blocks than are left, the small ones behind it would fit."""


@pytest.mark.parametrize("kind", ["priority", "round_robin", "vtc"])
@pytest.mark.parametrize("most", [0, 1, 3, 7])
def test_a_blocked_head_is_passed_over_so_often_and_no_more(kind: str, most: int) -> None:
    """The head needs 11 blocks of 16, 8 or fewer are free: `max_overtakes` small ones pass it, and no further one."""
    run = logged(listed({"kind": kind, "skip_blocked": True, "max_overtakes": most}, BLOCKED, blocks=16))
    assert most_overtakes(run) == most


@pytest.mark.parametrize("kind", ["priority", "round_robin", "vtc"])
def test_without_it_nobody_passes(kind: str) -> None:
    """Nobody passes a blocked head unless `skip_blocked` says so."""
    assert most_overtakes(logged(listed({"kind": kind}, BLOCKED, blocks=16))) == 0


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 5), st.sampled_from(["none", "declared"]))
def test_nobody_is_passed_over_more_often_than_allowed(seed: int, most: int, reserve: str) -> None:
    """Over random crowds in a small pool no request is overtaken more than `max_overtakes` times before its first
    seat.
    """
    scheduler = {"kind": "priority", "skip_blocked": True, "max_overtakes": most, "reserve": reserve, "max_num_seqs": 6}
    assert most_overtakes(logged(listed(scheduler, crowd(seed, 40), blocks=18))) <= most


@pytest.mark.parametrize("kind", [*KINDS, "static", "dynamic"])
def test_arrivals_beyond_the_queue_are_rejected_with_a_reason(kind: str) -> None:
    """Of eight that come together while somebody runs, three may wait: five are rejected and counted."""
    rows = [row(10, 50)] + [row(10, 5, arrival_ms=15) for _ in range(8)]
    seats = (
        {"batch_size": 1} if kind == "static" else {"max_batch_size": 1} if kind == "dynamic" else {"max_num_seqs": 1}
    )
    run = simulate(listed({"kind": kind, "max_queue": 3, **seats}, rows))
    if kind == "mlfq":  # it starts the new ones at once
        return
    assert (run.summary["completed"], run.summary["rejected"]) == (4, 5)
    assert run.records.requests.reasons[8] == "queue is full: 3 waiting, max_queue 3"


@pytest.mark.parametrize("kind", [*KINDS, "static", "dynamic"])
def test_who_waited_too_long_is_rejected_with_a_reason(kind: str) -> None:
    """One seat taken for 600 ms, a timeout of 100: the second is rejected, the one that comes near the end is
    served.
    """
    rows = [row(10, 50, priority=-1), row(10, 5, arrival_ms=5), row(10, 5, arrival_ms=520)]
    seats = (
        {"batch_size": 1} if kind == "static" else {"max_batch_size": 1} if kind == "dynamic" else {"max_num_seqs": 1}
    )
    extra = {"quanta": [1000], "prompt_weight": 0} if kind == "mlfq" else {}
    case = listed({"kind": kind, "queue_timeout_ms": 100, **seats, **extra}, rows)
    run = simulate(case)
    assert [Status(status).name for status in run.records.requests.status] == ["COMPLETED", "REJECTED", "COMPLETED"]
    assert "queue_timeout_ms 100" in run.records.requests.reasons[1]
    assert run.summary["rejected"] == run.summary["failed"] == 1


@pytest.mark.parametrize("kind", [*KINDS, "static"])
def test_a_timeout_ends_a_run_of_steps(kind: str) -> None:
    """A request that times out at 105 ms left the queue at the end of the step under way then, at 110: it waited 105
    ms.
    """
    rows = [row(10, 50, priority=-1), row(10, 5, arrival_ms=5)]
    seats = {"batch_size": 1} if kind == "static" else {"max_num_seqs": 1}
    extra = {"quanta": [1000], "prompt_weight": 0} if kind == "mlfq" else {}
    run = simulate(listed({"kind": kind, "queue_timeout_ms": 100, **seats, **extra}, rows))
    assert run.records.requests.waited_ns[1] / 1e6 == 105.0  # prompts of 10 take 11 ms, decodes 11: steps end at 11 k


@pytest.mark.parametrize("kind", PASSING)
def test_declared_limits_reserved_are_never_evicted(kind: str) -> None:
    """With `reserve: declared` a pool under pressure evicts nobody; without, it does."""
    rows = [row(20, 100) for _ in range(12)]
    tight = simulate(listed({"kind": kind}, rows, blocks=20))
    held = simulate(listed({"kind": kind, "reserve": "declared"}, rows, blocks=20))
    assert tight.summary["preemptions"] > 0
    assert held.summary["preemptions"] == 0
    assert held.summary["completed"] == 12


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_whole_without_chunking(kind: str) -> None:
    """With chunking off prompts share the budget only whole, and one above it is rejected."""
    rows = [row(60, 3), row(60, 3), row(101, 3)]
    scheduler = {"kind": kind, "enable_chunked_prefill": False, "max_num_batched_tokens": 100, "max_num_seqs": 4}
    run = logged(listed(scheduler, rows))
    chunks = [tokens for step in run.records.step_log or [] for _, tokens, before in step["sched"] if before < 60]
    assert chunks == [60, 60]
    assert run.summary["rejected"] == 1
    assert ttft_ms(run, 0) == 16.0
    assert waits_ms(run)[1] == 16.0


@pytest.mark.parametrize("kind", KINDS)
def test_equal_beginnings_are_shared_where_asked_for(kind: str) -> None:
    """With prefix caching the second of two prompts that share 64 tokens computes 36 of its 100, otherwise all."""
    rows = [row(100, 2, prefix=[["system", 64]]), row(100, 2, prefix=[["system", 64]], arrival_ms=500)]
    for cached, hits in ((True, 64), (False, 0)):
        run = simulate(listed({"kind": kind, "enable_prefix_caching": cached}, rows))
        assert run.summary["prefix_hit_tokens"] == hits
