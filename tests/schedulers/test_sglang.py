"""What SGLang's rules mean for requests, and what becomes of them where the real process dies or drops them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from batchsim.records import Status
from batchsim.schedulers.sglang import Sglang
from batchsim.simulation import Run, simulate
from batchsim.testing.sglang import RENAMED
from tests.golden.comparing import Steps
from tests.oracles.sglang import run as plain
from tests.oracles.sglang_scenarios import random_recording
from tests.schedulers.runs import check_collapsed, listed, play, row, story, ttft_ms

KIND = {"kind": "sglang", "disable_overlap_schedule": True}
NO_RADIX = {**KIND, "disable_radix_cache": True}


def as_case(recording: dict[str, Any]) -> dict[str, Any]:
    """A recording as a scenario of one step a millisecond; lower priorities are more urgent here."""
    config = recording["config"]
    known = {field.name for field in fields(Sglang) if field.init}
    named = {RENAMED.get(key, key): value for key, value in config.items()}
    sign = 1 if config.get("schedule_low_priority_values_first") else -1
    rows = [
        {
            "id": each["id"],
            "arrival_ms": each["arrival_step"],
            "prompt_tokens": each["prompt_len"],
            "output_tokens": each["output_len"],
            "max_tokens": each.get("max_new", each["output_len"]),
            "priority": sign * each.get("priority", 0),
            "prefix": each.get("prefix", []),
        }
        for each in recording["requests"]
    ]
    scheduler = {"kind": "sglang", **{key: value for key, value in named.items() if key in known}}
    scheduler["disable_overlap_schedule"] = not config["overlap"]
    return {"scheduler": scheduler, "block_size": 1, "num_blocks": config["max_total_tokens"], "requests": rows}


def computing(steps: Steps) -> list[list[Any]]:
    """Who computed how much, in the steps in which anybody did."""
    found = [[entry[:3] for entry in step["sched"]] for step in steps]
    return [sorted(scheduled) for scheduled in found if scheduled]


def finished(run: Run) -> bool:
    """Everybody who was not turned away at the door or dropped has all tokens."""
    status = run.records.requests.status
    return bool(((status == Status.COMPLETED) | (status == Status.REJECTED)).all())


@pytest.mark.parametrize("overlap", [False, True])
def test_a_run_on_the_clock_is_the_plain_rules(overlap: bool) -> None:
    """120 random scenarios without pauses: step for step the oracle's, and runs taken as one event change nothing."""
    compared = 0
    for seed in range(120):
        recording = random_recording(seed, overlap=overlap, ignore_eos=False, too_long=False)
        recording["config"]["prefill_decode_interval"] = 0
        case = as_case(recording)
        run = play(case)
        check_collapsed(run, case)
        assert finished(run), seed
        if (run.records.requests.status == Status.REJECTED).any():
            continue
        recording["requests"].sort(key=lambda each: each["arrival_step"])
        steps = plain(recording)
        if any(step.get("dropped") for step in steps):
            continue
        if not all(step["total"] for step in steps) or overlap:  # idle turns: arrivals fall on other steps
            mine = sum(len(step["preempted"]) for step in story(run))
            assert overlap or mine == sum(len(step.get("retracted", [])) for step in steps), seed
            continue
        assert computing(story(run)) == computing(steps), seed
        compared += 1
    assert overlap or compared > 15


@pytest.mark.parametrize("radix", [False, True])
def test_promised_lengths_set_concurrency(radix: bool) -> None:
    """A newcomer needs room for all of its limit: 20-token answers that declare 150 hardly share 200 tokens."""
    requests = [row(10, 20, max_tokens=150) for _ in range(6)]
    declared = simulate(listed({**KIND, "disable_radix_cache": not radix}, requests, blocks=200, block_size=1))
    exact = simulate(listed({**KIND, "disable_radix_cache": not radix}, [row(10, 20)] * 6, blocks=200, block_size=1))
    assert declared.summary["mean_running"] < 2.1
    assert exact.summary["mean_running"] > 4
    assert declared.summary["duration"] > 1.5 * exact.summary["duration"]


def test_every_admission_pauses_the_streams() -> None:
    """A prefill batch runs alone: a 4,096-token prompt is a gap of 419.6 + 12 ms in a stream that has 11 ms."""
    run = simulate(listed(NO_RADIX, [row(100, 50), row(4096, 2, arrival_ms=100)]))
    assert run.summary["max_itl_ms"] == pytest.approx(10 + 409.6 + 12)
    mixed = simulate(listed({**NO_RADIX, "enable_mixed_chunk": True}, [row(100, 50), row(4096, 2, arrival_ms=100)]))
    assert mixed.summary["max_itl_ms"] == pytest.approx(10 + 409.6 + 1)


def test_the_retracted_stand_behind_later_arrivals() -> None:
    """No end comes early: who has the fewest outputs is retracted, and stands behind one who came long after it."""
    scheduler = {**NO_RADIX, "schedule_conservativeness": 0.05}
    requests = [row(30, 80), row(30, 80, arrival_ms=200), row(30, 5, arrival_ms=600)]
    run = simulate(listed(scheduler, requests, blocks=165, block_size=1), step_log=True)
    step = next(step for step in story(run) if step["preempted"])
    assert [name for name, _ in step["preempted"]] == ["r1"]
    assert step["waiting"] == ["r2", "r1"]
    assert run.summary["completed"] == 3


def test_a_refusal_bars_smaller_ones_too() -> None:
    """Once a request has found no room nobody enters before somebody leaves, even one that would fit."""
    requests = [row(50, 40), row(120, 40, arrival_ms=30), row(5, 5, arrival_ms=40)]
    run = simulate(listed(NO_RADIX, requests, blocks=200, block_size=1))
    assert run.records.requests.admitted_ns[2] >= run.records.requests.finished_ns[0]


def test_the_next_turn_hits_the_answer_before() -> None:
    """Prompt and answer but its last token stay in the tree; a next turn computes only what is new, and a token."""
    first = row(40, 10)
    second = row(60, 5, arrival_ms=1000, prefix=[["req:r0", 50]])
    run = simulate(listed(KIND, [first, second], blocks=1000))
    assert run.records.requests.prefix_hit_tokens.tolist() == [0, 49]
    off = simulate(listed(NO_RADIX, [first, second], blocks=1000))
    assert off.summary["prefix_hit_tokens"] == 0


def test_overlap_delays_who_arrives_by_a_step() -> None:
    """Planned one step ahead, an arrival waits for the step in flight and for the one planned before it came."""
    requests = [row(10, 40), row(10, 2, arrival_ms=100)]
    apart, ahead = (simulate(listed({**NO_RADIX, "disable_overlap_schedule": off}, requests)) for off in (True, False))
    assert ttft_ms(ahead, 1) - ttft_ms(apart, 1) == pytest.approx(11)


@pytest.mark.parametrize(
    ("prompt", "output", "radix", "why"),
    [(195, 1, True, "too long"), (100, 99, True, "cut"), (100, 98, True, None), (10, 188, False, None)],
)
def test_the_front_door_rejects_what_sglang_would_cut(prompt: int, output: int, radix: bool, why: str | None) -> None:
    """In 200 tokens: a prompt of 194 or more becomes a stub there, and an answer ends at 198 tokens in all."""
    scheduler = {**KIND, "disable_radix_cache": not radix}
    run = simulate(listed(scheduler, [row(prompt, output)], blocks=200, block_size=1))
    reasons = list(run.records.requests.reasons.values())
    assert len(reasons) == (why is not None)
    assert why is None or why in reasons[0]


def test_ignore_eos_without_the_tree_stands_still_nowhere() -> None:
    """With ignore_eos and no radix cache the real one never takes a request that fills the pool but two: rejected."""
    scheduler = {**NO_RADIX, "ignore_eos": True}
    run = simulate(listed(scheduler, [row(10, 188), row(10, 187)], blocks=200, block_size=1))
    assert run.records.requests.status.tolist() == [Status.REJECTED, Status.COMPLETED]


@pytest.mark.parametrize("seed", [121, 1212, 2300, 2485, 2640])
def test_a_piece_without_room_waits(seed: int) -> None:
    """Where the real process dies because a piece of a prompt finds no room, the piece waits and all are served."""
    features = {"mixed": True, "overlap": False, "radix": False, "ignore_eos": False, "own_end": False}
    recording = random_recording(seed, **features, too_long=False, policy="fcfs", page=1, requests=25)
    case = as_case(recording)
    run = play(case)
    check_collapsed(run, case)
    assert finished(run)
    assert run.summary["preemptions"] > 0


def test_priorities_preempt_beyond_the_threshold() -> None:
    """Lower is more urgent: 0 takes the seat of 11 at once, of 10 only when that one has ended."""
    scheduler = {**NO_RADIX, "enable_priority_scheduling": True, "max_running_requests": 1}
    for other, evictions in ((10, 0), (11, 1)):
        requests = [row(10, 50, priority=other), row(10, 5, priority=0, arrival_ms=100)]
        assert simulate(listed(scheduler, requests)).summary["preemptions"] == evictions
