"""TensorRT-LLM's in-flight batching: its policies against a plain oracle and against each other."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from batchsim.simulation import Run, simulate
from tests.oracles import tensorrt
from tests.schedulers.runs import TICK, check_collapsed, listed, play, random_case, rejected, row, story, ttft_ms

KIND = {"kind": "tensorrt_llm"}
POLICIES = ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH")


def random_scheduler(rng: random.Random, policy: str) -> dict[str, Any]:
    """Tight limits; chunks of either policy more often than not."""
    return {
        **KIND, "capacity_scheduler_policy": policy,
        "max_batch_size": rng.choice([2048, rng.randint(1, 6)]),
        "max_num_tokens": rng.choice([rng.randint(2, 20), rng.randint(10, 80), 300]),
        "enable_chunked_prefill": rng.random() < 0.6,
        "context_chunking_policy": rng.choice(["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"]),
    }  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_every_step_is_the_oracle_s(policy: str) -> None:
    """In 200 random scenarios each step, and who is refused, is as in the plain list-based rules."""
    pauses = 0
    for seed in range(200):
        case = random_case(seed, random_scheduler(random.Random(f"trt {seed}"), policy))
        steps, gone = tensorrt.run(case)
        run = play(case)
        assert story(run) == steps, seed
        assert rejected(run) == set(gone), seed
        check_collapsed(run, case)
        pauses += run.summary["preemptions"]
    assert (pauses > 100) == (policy == "MAX_UTILIZATION")


def test_a_huge_declared_limit_serialises_everyone() -> None:
    """B09: 11,700 declared, 50 generated: the pool is reserved, and B and C start only when A ends: TTFT 624 ms."""
    requests = [row(500, 50, max_tokens=11700), *(row(100, 20, max_tokens=100, arrival_ms=5) for _ in range(2))]
    keys = {"capacity_scheduler_policy": "GUARANTEED_NO_EVICT", "max_batch_size": 256, "max_num_tokens": 8192}
    run = simulate(listed({**KIND, **keys}, requests, blocks=768))
    assert [ttft_ms(run, place) for place in (1, 2)] == pytest.approx([624, 624], abs=1e-9)


def many(policy: str, blocks: int, **keys: Any) -> Run:
    """Sixty requests, whose answers grow to four times their prompts, in quick succession."""
    requests = [row(40 + 7 * i % 50, 120 + 13 * i % 90, arrival_ms=15 * i) for i in range(60)]
    scheduler = {**KIND, "capacity_scheduler_policy": policy, "max_num_tokens": 512, **keys}
    return simulate(listed(scheduler, requests, blocks=blocks), step_log=True)


@pytest.mark.parametrize("chunked", [False, True])
def test_with_ample_memory_greed_changes_nothing(chunked: bool) -> None:
    """MAX_UTILIZATION and GUARANTEED_NO_EVICT have identical event logs, times included; only free blocks differ."""
    logs = []
    for policy in ("MAX_UTILIZATION", "GUARANTEED_NO_EVICT"):
        log = many(policy, 100_000, enable_chunked_prefill=chunked).records.step_log or []
        logs.append([{key: value for key, value in step.items() if key != "free_blocks"} for step in log])
    assert logs[0] == logs[1]
    assert len(logs[0]) > 100


def test_under_pressure_greed_evicts_and_its_worst_stream_suffers() -> None:
    """With 200 blocks MAX_UTILIZATION pauses requests; its worst TPOT is worse, and it runs more at once."""
    greedy, safe = many("MAX_UTILIZATION", 200), many("GUARANTEED_NO_EVICT", 200)
    assert greedy.summary["preemptions"] > 10
    assert safe.summary["preemptions"] == 0
    assert greedy.summary["max_tpot_ms"] > 1.5 * safe.summary["max_tpot_ms"]
    assert greedy.summary["mean_running"] > safe.summary["mean_running"]


def test_static_takes_new_ones_only_when_nothing_runs() -> None:
    """Each batch ends before the next begins, though its members leave as they finish."""
    run = simulate(
        listed(
            {**KIND, "capacity_scheduler_policy": "STATIC_BATCH", "max_batch_size": 2},
            [row(10, n) for n in (2, 5, 3)],
            cost=TICK,
        )
    )
    requests = run.records.requests
    assert (requests.finished_ns / 1e6).tolist() == [2, 5, 8]
    assert requests.admitted_ns[2] == requests.finished_ns[1]


def chunks_of(policy: str) -> list[list[list[Any]]]:
    """Three prompts, 32 tokens a step, blocks of 8."""
    scheduler = {**KIND, "max_num_tokens": 32, "enable_chunked_prefill": True, "context_chunking_policy": policy}
    run = simulate(listed(scheduler, [row(30, 1), row(20, 1), row(9, 1)], block_size=8, cost=TICK), step_log=True)
    return [[entry[:2] for entry in step["sched"]] for step in story(run)]


def test_first_come_takes_all_that_it_can() -> None:
    """The first prompt whole; the 2 tokens left are less than a block and go to nobody. Then 20 and 9 fit together."""
    assert chunks_of("FIRST_COME_FIRST_SERVED") == [[["r0", 30]], [["r1", 20], ["r2", 9]]]


def test_equal_progress_gives_each_a_block_in_turn() -> None:
    """Round one 8, 8, 8; round two 8 for the first, and nothing is left. Then 14, 12 and 1 fit together."""
    assert chunks_of("EQUAL_PROGRESS") == [[["r0", 16], ["r1", 8], ["r2", 8]], [["r0", 14], ["r1", 12], ["r2", 1]]]


@pytest.mark.parametrize("stepwise", [False, True])
def test_a_short_prompt_finds_room_that_a_block_does_not(stepwise: bool) -> None:
    """Three tokens a step are left, less than a block of 4: the prompt of 10 waits, a later one of 3 starts."""
    scheduler = {**KIND, "max_num_tokens": 4, "enable_chunked_prefill": True}
    requests = [row(4, 30), row(10, 2, arrival_ms=5), row(3, 2, arrival_ms=15)]
    run = simulate(listed(scheduler, requests, block_size=4, cost=TICK), stepwise=stepwise)
    assert run.records.requests.admitted_ns.tolist() == [0, 30_000_000, 15_000_000]


def test_without_chunking_the_first_that_does_not_fit_stops_the_walk() -> None:
    """A prompt of 30 beside one of 20 in a budget of 32: the short one behind them waits too."""
    run = simulate(
        listed({**KIND, "max_num_tokens": 32}, [row(30, 1), row(20, 1), row(2, 1)], cost=TICK), step_log=True
    )
    assert [[entry[0] for entry in step["sched"]] for step in story(run)] == [["r0"], ["r1", "r2"]]


def test_what_can_never_start_is_turned_away() -> None:
    """A prompt over the budget unchunked, or a reservation over the pool, is refused with both numbers."""
    run = simulate(listed({**KIND, "max_num_tokens": 32}, [row(33, 1), row(32, 1)]))
    assert run.records.requests.reasons == {0: "prompt of 33 tokens exceeds max_num_tokens 32 with chunked prefill off"}
    run = simulate(listed(KIND, [row(16, 17)], blocks=2))
    assert run.records.requests.reasons == {0: "reserves 33 tokens: 3 blocks, the pool has 2"}


def test_a_paused_request_that_outgrew_the_budget_is_turned_away() -> None:
    """Unchunked, a paused request restarts with its output as prompt; over the budget it never could."""
    requests = [row(30, 60), row(30, 60)]
    scheduler = {**KIND, "capacity_scheduler_policy": "MAX_UTILIZATION", "max_num_tokens": 60}
    run = simulate(listed(scheduler, requests, blocks=8))
    assert run.summary["completed"] == 1
    assert "exceeds max_num_tokens 60" in run.records.requests.reasons[1]
    assert np.all(run.records.requests.preemptions == [0, 1])
