"""Skip-join multi-level feedback: levels, preemption without losing KV, and who wins."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.request import Request
from batchsim.schedulers.mlfq import Mlfq
from batchsim.simulation import simulate
from tests.schedulers.queues import SMALL, crowd, drawn, logged, waits_ms
from tests.schedulers.runs import listed, row, ttft_ms

LONG_AND_SHORT = [row(50, 400) for _ in range(4)] + [row(50, 5, arrival_ms=200 + 10 * i) for i in range(8)]
QUANTA = {"quanta": [16, 64], "max_num_seqs": 4, "max_num_batched_tokens": 256}


def test_short_requests_pass_long_ones_that_hold_all_seats() -> None:
    """Eight short requests behind four long ones: under fcfs the first waits for a long one to end, here for none."""
    plain = simulate(listed({"kind": "priority", "max_num_seqs": 4}, LONG_AND_SHORT))
    feedback = simulate(listed({"kind": "mlfq", **QUANTA}, LONG_AND_SHORT))
    short = slice(4, None)
    assert waits_ms(plain)[short].min() > 5000
    assert waits_ms(feedback)[short].max() < 500
    assert feedback.summary["mean_e2el_ms"] < plain.summary["mean_e2el_ms"]
    assert feedback.summary["preemptions"] == feedback.summary["recomputed_tokens"] == 0


def test_who_gives_up_the_seat_rests_and_keeps_its_kv() -> None:
    """One seat: the long request sinks after 4 tokens, rests while a short one runs, and goes on where it stood."""
    rows = [row(16, 12), row(16, 3, arrival_ms=50)]
    run = logged(listed({"kind": "mlfq", "quanta": [4], "max_num_seqs": 1, "prompt_weight": 0}, rows))
    turns = [[entry[0] for entry in step["sched"]] for step in run.records.step_log or []]
    assert turns == [["r0"]] * 5 + [["r1"]] * 3 + [["r0"]] * 7
    assert run.summary["preemptions"] == 0
    assert ttft_ms(run, 1) == 17.2  # it comes at 50 in the step that ends at 55.6, and its prompt takes 11.6


@pytest.mark.parametrize(
    ("prompt", "emitted", "level"),
    [(1, 0, 0), (1, 2, 0), (1, 3, 1), (1, 10, 1), (1, 11, 2), (1, 500, 2),
     (100, 0, 0), (400, 0, 1), (400, 3, 1), (400, 4, 2), (2000, 0, 2)],
)  # fmt: skip
def test_levels(prompt: int, emitted: int, level: int) -> None:
    """Quanta 4 and 8, a prompt token counting 1/100: a prompt of 1 sinks at 3 and 11; one of 400 joins the second
    level.
    """
    request = Request(0, "r", 0, prompt, 1000, 1000)
    request._emitted = emitted
    assert Mlfq(quanta=[4, 8], prompt_weight=0.01).level(request) == level


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_a_step_computes_no_more_requests_than_seats(seed: int) -> None:
    """At most `max_num_seqs` requests compute in a step, however many hold KV."""
    run = logged(listed({"kind": "mlfq", "quanta": [3, 9], **SMALL}, crowd(seed, 40), blocks=40))
    assert max(len(step["sched"]) for step in run.records.step_log or []) <= 4


def test_promotion_bounds_the_starvation() -> None:
    """A long request under a stream of short ones ends seconds earlier when a rest of 150 ms lifts it to the first
    level.
    """
    rows = [row(10, 100)] + [row(10, 8, arrival_ms=50 * i) for i in range(1, 80)]
    ends = [
        simulate(
            listed({"kind": "mlfq", "quanta": [10], "max_num_seqs": 2, **extra}, rows)
        ).records.requests.finished_ns[0]
        / 1e9
        for extra in ({}, {"promote_after_ms": 150})
    ]
    assert ends[1] < ends[0] - 1.0


def test_the_mean_e2e_beats_fcfs_on_skewed_lengths() -> None:
    """Lognormal answers near saturation of four seats: mean E2E falls, the mean wait for a first step by half, without
    an oracle.
    """
    traffic = {
        "requests": 400, "arrivals": {"kind": "poisson", "rate_per_s": 5.5},
        "prompt_tokens": {"kind": "fixed", "tokens": 20},
        "output_tokens": {"kind": "lognormal", "mean": 45, "sigma": 1.4, "max": 1000},
    }  # fmt: skip
    plain = simulate(drawn({"kind": "priority", **SMALL}, traffic))
    feedback = simulate(drawn({"kind": "mlfq", "quanta": [8, 32, 128], **SMALL}, traffic))
    assert feedback.summary["mean_e2el_ms"] < plain.summary["mean_e2el_ms"]
    assert waits_ms(feedback).mean() < waits_ms(plain).mean() / 2
