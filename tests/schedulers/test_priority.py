"""Preemptive priority with ageing: B05 of the practitioners' cases, and what ageing bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.simulation import Run, simulate
from tests.schedulers.queues import SMALL, crowd, first_admissions, logged, waits_ms
from tests.schedulers.runs import listed, row, ttft_ms


def b05(high: int, **keys: Any) -> Run:
    """Two low requests on two seats; a third of priority `high` comes after a second."""
    rows = [row(100, 1000, priority=1), row(100, 1000, priority=1), row(100, 10, priority=high, arrival_ms=1000)]
    return logged(listed({"kind": "priority", "max_num_seqs": 2, "max_num_batched_tokens": 8192, **keys}, rows))


def test_an_urgent_request_takes_a_seat_in_a_mixed_step() -> None:
    """B05: it comes at 1000, the step ends at 1002, the next one prefills it beside one decode (21 ms): TTFT 23 ms."""
    run = b05(0, preemptive=True)
    assert ttft_ms(run, 2) == 23.0
    assert run.summary["preemptions"] == 1


def test_without_preemption_it_waits_for_a_seat() -> None:
    """B05: TTFT 11,038 ms, nobody evicted."""
    run = b05(0)
    assert ttft_ms(run, 2) == 11038.0
    assert run.summary["preemptions"] == 0


@pytest.mark.parametrize("high", [1, 2])
def test_equals_and_less_urgent_ones_never_evict(high: int) -> None:
    """B05: with equal priority nobody is evicted, and the same holds with the sign turned round: lower is more
    urgent.
    """
    run = b05(high, preemptive=True)
    assert ttft_ms(run, 2) == 11038.0
    assert run.summary["preemptions"] == 0


def test_the_evicted_resumes_ahead_of_later_arrivals_of_its_priority() -> None:
    """The one admitted last is evicted, and gets the seat back before a low request that came in between."""
    rows = [
        row(100, 200, priority=1), row(100, 200, priority=1), row(100, 10, priority=0, arrival_ms=1000),
        row(100, 10, priority=1, arrival_ms=1001),
    ]  # fmt: skip
    run = logged(listed({"kind": "priority", "preemptive": True, "max_num_seqs": 2}, rows))
    evicted = [name for step in run.records.step_log or [] for name, _ in step["preempted"]]
    assert evicted == ["r1"]
    seats = [step["running"] for step in run.records.step_log or []]
    back = next(place for place, names in enumerate(seats) if "r1" in names and "r2" not in names and place > 100)
    assert not any("r3" in names for names in seats[: back + 1])


def test_blocks_are_taken_as_well_as_seats() -> None:
    """An urgent prompt of 10 blocks evicts the newest low request of 10 in a pool of 20, not both."""
    rows = [row(140, 20, priority=3), row(140, 20, priority=3), row(150, 2, priority=1, arrival_ms=5)]
    run = logged(listed({"kind": "priority", "preemptive": True}, rows, blocks=20))
    assert [step["preempted"] for step in run.records.step_log or [] if step["preempted"]] == [[["r1", 140]]]
    assert ttft_ms(run, 2) < ttft_ms(logged(listed({"kind": "priority"}, rows, blocks=20)), 2)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.booleans())
def test_ageing_bounds_how_much_later_one_may_come_and_still_go_first(seed: int, preemptive: bool) -> None:
    """Nobody is admitted before a waiting request that came earlier by `aging_s` for each step of priority between
    them.
    """
    rows = crowd(seed, 40, priority=[0, 1, 2])
    scheduler = {"kind": "priority", "aging_s": 0.1, "preemptive": preemptive, **SMALL}
    run = logged(listed(scheduler, rows))
    order = first_admissions(run)
    for turn, later in enumerate(order):
        for earlier in order[turn + 1 :]:
            ahead_ms = rows[later]["arrival_ms"] - rows[earlier]["arrival_ms"]
            assert ahead_ms <= max(0, 100 * (rows[earlier]["priority"] - rows[later]["priority"]))


def test_ageing_bounds_the_wait_of_the_least_urgent() -> None:
    """A low request under a stream of urgent ones waits for all of them, and with ageing of 0.5 s not a third of
    that.
    """
    rows = [row(50, 20, priority=0, arrival_ms=40 * i) for i in range(60)] + [row(50, 20, priority=1, arrival_ms=81)]
    seats = {"max_num_seqs": 2, "max_num_batched_tokens": 256}
    plain = simulate(listed({"kind": "priority", **seats}, rows))
    aged = simulate(listed({"kind": "priority", "aging_s": 0.5, **seats}, rows))
    assert waits_ms(plain)[-1] == waits_ms(plain).max()
    assert waits_ms(aged)[-1] < waits_ms(plain)[-1] / 3
