"""Least slack first: goodput near saturation, and what it does with those who are late."""

from __future__ import annotations

import numpy as np
import pytest

from batchsim.simulation import Run, simulate
from tests.schedulers.queues import drawn, first_admissions, logged
from tests.schedulers.runs import listed, row, ttft_ms

SLO = {"ttft_ms": 500, "tpot_ms": 40}
SEATS = {"max_num_seqs": 16, "max_num_batched_tokens": 512}


def near_saturation(scheduler: dict[str, object], seed: int) -> Run:
    """Bursty arrivals at about the rate that can be served (twelve a second are too many)."""
    traffic = {
        "requests": 500, "arrivals": {"kind": "gamma", "rate_per_s": 11, "burstiness": 0.3},
        "prompt_tokens": {"kind": "lognormal", "mean": 200, "sigma": 0.8, "max": 2000},
        "output_tokens": {"kind": "geometric", "mean": 40},
    }  # fmt: skip
    return simulate(drawn({**scheduler, **SEATS}, traffic, slo=SLO, seed=seed))


@pytest.mark.parametrize("seed", range(4))
def test_goodput_near_saturation_beats_fcfs(seed: int) -> None:
    """At least 1.15 times the good requests per second of fcfs, in each of four seeds."""
    plain = near_saturation({"kind": "vllm"}, seed).summary["request_goodput"]
    slack = near_saturation({"kind": "deadline", **SLO}, seed).summary["request_goodput"]
    assert slack > 1.15 * plain


def test_who_missed_the_target_waits_behind_those_who_can_make_it() -> None:
    """One seat: r1 is late when it frees, r2 is not, though it came later; among the late it goes by arrival."""
    rows = [row(10, 60), row(10, 5, arrival_ms=10), row(10, 5, arrival_ms=20), row(10, 5, arrival_ms=500)]
    run = logged(listed({"kind": "deadline", "ttft_ms": 200, "max_num_seqs": 1}, rows))
    assert first_admissions(run) == [0, 3, 1, 2]


def test_a_long_prompt_starts_earlier_by_what_it_takes() -> None:
    """With 0.1 ms a prompt token, 3,000 tokens leave 300 ms less slack: it goes before a short one that came first."""
    rows = [row(10, 60), row(10, 5, arrival_ms=10), row(3000, 5, arrival_ms=20)]
    plain = logged(listed({"kind": "deadline", "ttft_ms": 2000, "max_num_seqs": 1}, rows))
    priced = logged(listed({"kind": "deadline", "ttft_ms": 2000, "prefill_token_ms": 0.1, "max_num_seqs": 1}, rows))
    assert first_admissions(plain) == [0, 1, 2]
    assert first_admissions(priced) == [0, 2, 1]


def test_a_decode_behind_its_pace_holds_prompts_back() -> None:
    """Prompts of 500 make steps of 61 ms; at a pace of 15 ms a decode that fell behind goes alone until it has caught
    up.
    """
    rows = [row(10, 40)] + [row(500, 2, arrival_ms=50 * i) for i in range(1, 6)]
    scheduler = {"kind": "deadline", "ttft_ms": 3000, "tpot_ms": 15, "max_num_batched_tokens": 512, "max_num_seqs": 8}
    run = simulate(listed(scheduler, rows))
    plain = simulate(listed({"kind": "vllm", "max_num_batched_tokens": 512, "max_num_seqs": 8}, rows))
    requests = [r.records.requests for r in (run, plain)]
    tpot = [float(r.finished_ns[0] - r.first_token_ns[0]) / 39e6 for r in requests]
    assert tpot[0] < tpot[1]
    assert np.all(requests[0].first_token_ns - requests[0].arrival_ns <= 3e9)
    assert ttft_ms(run, 5) > ttft_ms(plain, 5)


def test_an_evicted_request_is_not_late() -> None:
    """Who has streamed a token is sorted by the pace of its next one, not by a TTFT that it has met."""
    rows = [row(30, 60), row(30, 60, arrival_ms=5), row(30, 3, arrival_ms=400)]
    run = logged(listed({"kind": "deadline", "ttft_ms": 100, "tpot_ms": 20, "max_num_seqs": 4}, rows, blocks=9))
    assert run.summary["preemptions"] > 0
    assert run.summary["completed"] == 3
