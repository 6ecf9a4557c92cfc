"""TGI's batcher in both modes, against a plain oracle, and what its rules mean."""

from __future__ import annotations

import random
from typing import Any

import pytest

from batchsim.simulation import simulate
from tests.oracles import tgi
from tests.schedulers.runs import check_collapsed, listed, play, random_case, rejected, row, story, ttft_ms

KIND = {"kind": "tgi"}
UNCHUNKED = {"kind": "tgi", "prefill_chunking": False}


def random_scheduler(rng: random.Random, chunking: bool) -> dict[str, Any]:
    """Tight limits, and each option now and then."""
    budget = rng.choice([rng.randint(4, 20), rng.randint(10, 60), 200])
    chosen: dict[str, Any] = {**KIND, "prefill_chunking": chunking, "max_batch_prefill_tokens": budget}
    options = {
        "waiting_served_ratio": rng.choice([0, 0.3, 0.5, 1.2, 2.0]),
        "max_waiting_tokens": rng.choice([0, 1, 3, 6]),
        "max_batch_size": rng.randint(1, 6),
        "max_batch_total_tokens": rng.randint(20, 200),
        "max_concurrent_requests": rng.randint(1, 10),
    }
    return chosen | {key: value for key, value in options.items() if rng.random() < 0.35}


@pytest.mark.parametrize("chunking", [True, False])
def test_every_step_is_the_oracle_s(chunking: bool) -> None:
    """In 200 random scenarios each step, and who is refused, is as in the plain list-based rules."""
    for seed in range(200):
        case = random_case(seed, random_scheduler(random.Random(f"tgi {seed}"), chunking))
        steps, gone = tgi.run(case)
        run = play(case)
        assert story(run) == steps, seed
        assert rejected(run) == set(gone), seed
        check_collapsed(run, case)
        assert run.summary["preemptions"] == 0


@pytest.mark.parametrize("chunking", [True, False])
def test_a_huge_declared_limit_serialises_everyone(chunking: bool) -> None:
    """B09: 11,700 declared, 50 generated: the pool is reserved, and B and C start only when A ends: TTFT 624 ms."""
    requests = [row(500, 50, max_tokens=11700), *(row(100, 20, max_tokens=100, arrival_ms=5) for _ in range(2))]
    run = simulate(listed({**KIND, "prefill_chunking": chunking}, requests, blocks=768))
    assert [ttft_ms(run, place) for place in (1, 2)] == pytest.approx([624, 624], abs=1e-9)


def test_few_waiting_do_not_interrupt_until_patience_ends() -> None:
    """Ten run and two wait: 2 < floor(10 · 0.3), so the two start when 20 steps have passed since the last prefill."""
    requests = [row(10, 60) for _ in range(10)] + [row(10, 5, arrival_ms=100) for _ in range(2)]
    run = simulate(listed(UNCHUNKED, requests), step_log=True)
    steps = story(run)
    assert [number for number, step in enumerate(steps) if ["r10", 10, 0] in step["sched"]] == [20]
    assert len(steps[20]["sched"]) == 2, "the prefill runs alone"
    assert len(steps[21]["sched"]) == 12, "and all decode in the same round"


def test_enough_waiting_interrupt_at_once() -> None:
    """Three waiting beside ten are enough: the step that begins when they arrive is their prefill."""
    requests = [row(10, 60) for _ in range(10)] + [row(10, 5, arrival_ms=100) for _ in range(3)]
    run = simulate(listed(UNCHUNKED, requests))
    assert ttft_ms(run, 10) == pytest.approx(10 + 0.1 * 30, abs=1e-9)


def test_a_chunk_fills_what_the_batch_leaves() -> None:
    """Beside one decode 4,095 tokens of the budget are left, in whole blocks 4,096: the last one taken is cut."""
    run = simulate(listed(KIND, [row(100, 50), row(6000, 2, arrival_ms=25)]), step_log=True)
    chunks = [entry[1] for step in story(run) for entry in step["sched"] if entry[0] == "r1"]
    assert chunks == [4096, 6000 - 4096, 1]


def test_more_than_the_front_takes_are_refused() -> None:
    """Of 130 at once two are refused; the reason names both numbers."""
    run = simulate(listed(KIND, [row(10, 2) for _ in range(130)]))
    assert set(run.records.requests.reasons.values()) == {"128 requests are here, max_concurrent_requests 128"}
    assert run.summary["rejected"] == 2


def test_a_total_limit_leaves_part_of_the_pool_unused() -> None:
    """160 tokens in all are ten blocks, one of them kept back: nine requests of one block run together."""
    run = simulate(listed({**KIND, "max_batch_total_tokens": 160}, [row(8, 9) for _ in range(12)]))
    assert run.records.iterations.running.max() == 9
    assert run.summary["completed"] == 12


def test_unchunked_a_prompt_over_the_budget_is_refused() -> None:
    """A prompt that no prefill takes whole is turned away at the door."""
    run = simulate(listed({**UNCHUNKED, "max_batch_prefill_tokens": 100}, [row(113, 2), row(112, 2)]))
    assert run.records.requests.reasons == {0: "prompt of 113 tokens exceeds max_batch_prefill_tokens 112 unchunked"}
