"""The original vLLM: prompts first and alone, against a plain oracle and the practitioners' cases."""

from __future__ import annotations

import random
from typing import Any

import pytest

from batchsim.errors import InvalidInput
from batchsim.simulation import Run, simulate
from tests.oracles import vllm_v0
from tests.schedulers.runs import LIN, check_collapsed, listed, play, random_case, rejected, row, story, ttft_ms

KIND = {"kind": "vllm_v0"}


def random_scheduler(rng: random.Random) -> dict[str, Any]:
    """Tight limits, and each option now and then."""
    chosen: dict[str, Any] = {
        **KIND,
        "max_num_batched_tokens": rng.choice([60, rng.randint(10, 60), 300]),
        "max_num_seqs": rng.choice([256, rng.randint(1, 5)]),
    }
    if rng.random() < 0.5:
        chosen["watermark"] = rng.choice([0.0, 0.05, 0.2])
    elif rng.random() < 0.5:
        chosen["early_release"] = True
    if rng.random() < 0.5:
        chosen["policy"] = "priority"
    if rng.random() < 0.4:
        chosen["scheduler_delay_factor"] = rng.choice([0.5, 1.0, 2.0, 5.0])
    return chosen


def random_v0_case(seed: int) -> dict[str, Any]:
    """A random scenario with priorities."""
    rng = random.Random(f"v0 {seed}")
    case = random_case(seed, random_scheduler(rng))
    for each in case["requests"]:
        each["priority"] = rng.randint(0, 2)
    return case


@pytest.mark.parametrize("start", range(0, 300, 100))
def test_every_step_is_the_oracle_s(start: int) -> None:
    """In random scenarios, with priorities, delay and evictions, each step is that of the plain list-based rules."""
    evictions = 0
    for seed in range(start, start + 100):
        case = random_v0_case(seed)
        steps, gone = vllm_v0.run(case)
        run = play(case)
        assert story(run) == steps, seed
        assert rejected(run) == set(gone), seed
        check_collapsed(run, case)
        evictions += sum(len(step["preempted"]) for step in steps)
    assert evictions > 50


def test_long_prompt_freezes_the_streams_already_decoding() -> None:
    """B01: an 8,192-token prompt opens one gap of 841.2 ms in a stream that decodes alone every 11 ms."""
    requests = [row(100, 1000), row(8192, 8, arrival_ms=1000)]
    run = simulate(listed({**KIND, "max_num_seqs": 256, "max_num_batched_tokens": 8192}, requests))
    assert run.summary["max_itl_ms"] == pytest.approx(841.2, abs=1e-6)
    assert run.summary["median_itl_ms"] == pytest.approx(11.0, abs=1e-6)
    assert ttft_ms(run, 1) == pytest.approx(839.2, abs=1e-6)


def two_low_one_high(priority: int) -> Run:
    """B05: two running requests of priority 1 hold both seats when a third arrives."""
    requests = [
        row(100, 1000, priority=1),
        row(100, 1000, priority=1),
        row(100, 10, priority=priority, arrival_ms=1000),
    ]
    return simulate(listed({**KIND, "policy": "priority", "max_num_seqs": 2, "max_num_batched_tokens": 8192}, requests))


def test_the_urgent_evict_the_worse() -> None:
    """B05: one eviction at the next step's start, in which the other still decodes; then the prompt alone: 33 ms."""
    run = two_low_one_high(priority=0)
    assert ttft_ms(run, 2) == pytest.approx(33.0, abs=1e-9)
    assert run.summary["preemptions"] == 1
    assert run.records.requests.preemptions.tolist() == [0, 1, 0]


def test_equals_evict_nobody() -> None:
    """B05: an equal priority waits for a seat: no eviction, 11,038 ms."""
    run = two_low_one_high(priority=1)
    assert ttft_ms(run, 2) == pytest.approx(11038.0, abs=1e-9)
    assert run.summary["preemptions"] == 0


def test_an_evicted_request_resumes_before_later_equals() -> None:
    """B05: the evicted low request comes back before a low one that arrived meanwhile."""
    requests = [
        row(100, 300, priority=1), row(100, 300, priority=1), row(100, 10, priority=0, arrival_ms=1000),
        row(100, 10, priority=1, arrival_ms=1010),
    ]  # fmt: skip
    run = simulate(listed({**KIND, "policy": "priority", "max_num_seqs": 2}, requests), step_log=True)
    steps = story(run)
    evicted = next(number for number, step in enumerate(steps) if step["preempted"])
    later = [entry[0] for step in steps[evicted:] for entry in step["sched"]]
    assert later.index("r2") < later.index("r1") < later.index("r3")


@pytest.mark.parametrize(
    ("kind", "varying", "tokens_per_s", "with_prefill", "alone"),
    [
        ("vllm_v0", False, 713.0, 8, 8),
        ("vllm", False, 713.0, 8, 8),
        ("vllm_v0", True, 666.5, 199, 199),
        ("vllm", True, 701.4, 199, 1),
    ],
)
def test_unequal_answers_cost_a_prefill_first_engine_more(
    kind: str, varying: bool, tokens_per_s: float, with_prefill: int, alone: int
) -> None:
    """B23: with answers of 80 to 120 tokens each departure brings a prompt step of its own: 666.5 tokens/s, not 701."""
    requests = [row(100, 80 + 17 * i % 41 if varying else 100) for i in range(256)]
    run = simulate(listed({"kind": kind, "max_num_seqs": 32, "max_num_batched_tokens": 8192}, requests))
    rows = run.records.iterations
    prefills = rows.prefill_tokens > 0
    assert run.summary["output_throughput"] == pytest.approx(tokens_per_s, abs=0.05)
    assert (int(prefills.sum()), int((prefills & (rows.decode_seqs == 0)).sum())) == (with_prefill, alone)


@pytest.mark.parametrize(("factor", "ms"), [(0.0, 26.0), (1.0, 48.0), (3.0, 81.0)])
def test_the_delay_factor_lets_the_queue_fill(factor: float, ms: float) -> None:
    """A prompt step of 20 ms: at factor 1 the next prompt starts once it is older than 20 ms, at factor 3 than 60 ms.

    Decode steps end at 31, 42, 53, 64, 75, 86 ms; the second request arrives at 25 ms.
    """
    requests = [row(100, 50), row(100, 5, arrival_ms=25)]
    run = simulate(listed({**KIND, "scheduler_delay_factor": factor}, requests, cost=LIN))
    assert ttft_ms(run, 1) == pytest.approx(ms, abs=1e-9)


def test_the_watermark_stays_free() -> None:
    """Of 100 blocks one stays free when a prompt enters: 99 blocks of prompt start, 100 are refused."""
    assert simulate(listed(KIND, [row(99 * 16, 1)], blocks=100)).summary["completed"] == 1
    run = simulate(listed(KIND, [row(100 * 16, 1), row(16, 1)], blocks=100))
    assert run.summary["rejected"] == 1
    assert "100 KV blocks and the watermark 1" in run.records.requests.reasons[0]


def test_a_prompt_over_the_token_limit_is_refused() -> None:
    """Prompts are never cut: one over max_num_batched_tokens is turned away and the next is served."""
    run = simulate(listed({**KIND, "max_num_batched_tokens": 64}, [row(65, 2), row(64, 2)]))
    assert run.records.requests.reasons == {
        0: "prompt of 65 tokens exceeds the limit 64 of a step that takes prompts whole"
    }
    assert run.summary["completed"] == 1


def test_the_token_limit_defaults_to_the_model_s_length() -> None:
    """Without a limit a step takes prompts of max_model_len tokens, at least 2,048, together."""
    run = simulate(listed(KIND, [row(1000, 2), row(1000, 2), row(100, 2)], max_model_len=1024), step_log=True)
    assert [len(step["sched"]) for step in run.records.step_log or []][:2] == [2, 1]


def test_an_early_release_evicts_sooner() -> None:
    """Two blocks, two prompts of 3: the early release evicts at the first decode, the later one at a full block."""
    first: dict[bool, int] = {}
    for early in (False, True):
        scheduler = {**KIND, "watermark": 0, "early_release": early}
        run = simulate(listed(scheduler, [row(3, 6), row(3, 3)], blocks=2, block_size=4), step_log=True)
        first[early] = next(number for number, step in enumerate(story(run)) if step["preempted"])
        assert run.summary["completed"] == 2
    assert first == {False: 2, True: 1}


def test_mistakes_are_refused() -> None:
    """A share of the pool is below 1, a delay is finite."""
    for wrong in ({"watermark": 1.0}, {"scheduler_delay_factor": float("inf")}, {"policy": "lifo"}, {"swap_space": 4}):
        with pytest.raises(InvalidInput):
            listed({**KIND, **wrong}, [row(1, 1)])
