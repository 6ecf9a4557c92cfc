"""The vLLM V1 oracle agrees with the recordings of the real scheduler, and each of its rules shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.oracles.rules import MUTANTS, Rules
from tests.oracles.scenarios import random_recording, recordings
from tests.oracles.vllm_v1 import Oracle, Step, run

RECORDINGS = sorted((Path(__file__).parent / "vllm-v1").glob("*.json"))
COMPARED = ("step", "sched", "preempted", "finished", "running", "waiting", "free")
RANDOM_SCENARIOS = 1500  # the rarest mutant shows in one of some six hundred


def load(path: Path) -> dict[str, Any]:
    """A recording."""
    recording: dict[str, Any] = json.loads(path.read_text())
    return recording


def compared(steps: list[Step]) -> list[list[Any]]:
    """What the fast scheduler returns too."""
    return [[step.get(key) for key in COMPARED] for step in steps]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_oracle_repeats_the_real_scheduler(path: Path) -> None:
    """Every step of a recording is repeated in every key, the log of failed allocations included, to the same end."""
    recording = load(path)
    oracle = Oracle(recording)
    for mine, recorded in zip(oracle.run(), recording["steps"], strict=True):
        assert mine == recorded
    assert oracle.end == recording["end"]
    assert [r.id for r in oracle.requests if not r.done] == recording["unfinished"]
    assert oracle.watermark_blocks == recording["watermark_blocks"]


@pytest.fixture(scope="module")
def known() -> list[tuple[dict[str, Any], list[list[Any]]]]:
    """Recordings and random scenarios with the steps that the true rules make of them; random ones come as needed."""
    return [(recording, compared(run(recording))) for recording in map(load, RECORDINGS)]


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_shows(name: str, known: list[tuple[dict[str, Any], list[list[Any]]]]) -> None:
    """With one rule broken, at least one recording or random scenario takes another course."""
    for place in range(len(RECORDINGS) + RANDOM_SCENARIOS):
        if place == len(known):
            recording = random_recording(place - len(RECORDINGS))
            known.append((recording, compared(run(recording))))
        recording, steps = known[place]
        if compared(run(recording, MUTANTS[name])) != steps:
            return
    pytest.fail(f"{name} changes nothing in {len(known)} scenarios")


def test_no_mutant_is_the_true_scheduler() -> None:
    """Each mutant breaks exactly one rule, and no two break the same."""
    assert len(set(MUTANTS.values()) | {Rules()}) == len(MUTANTS) + 1


@settings(max_examples=60, deadline=None)
@given(recording=recordings())
def test_tokens_and_blocks_are_conserved(recording: dict[str, Any]) -> None:
    """Free and held blocks make up the pool, no step exceeds its budget or seats, and no token is emitted too many."""
    oracle = Oracle(recording)
    steps = oracle.run()
    config = recording["config"]
    usable = config["num_gpu_blocks"] - 1
    held = {block for r in oracle.running for block in r.blocks}
    assert sorted(oracle.pool.free) == sorted(set(range(1, usable + 1)) - held)
    emitted: dict[str, int] = {}
    for step in steps:
        assert step["total"] <= oracle.token_budget
        assert len(step["running"]) <= config["max_num_seqs"]
        assert 0 <= step["free_sched"] <= step["free"] <= usable
        for name, *_, emits in step["sched"]:
            emitted[name] = emitted.get(name, 0) + emits
    for r in oracle.requests:
        thrown_away = 1 if oracle.is_async else 0  # scheduled past an end that could not be foreseen
        assert r.out <= r.output
        assert emitted.get(r.id, 0) <= r.output + thrown_away


def test_same_seed_same_scenario() -> None:
    """A random recording is a function of its seed and features."""
    assert random_recording(7, caching=True) == random_recording(7, caching=True)
    assert random_recording(7, caching=True) != random_recording(8, caching=True)


def test_scenarios_press_hard() -> None:
    """Of 300 random scenarios a third see a preemption, a third a blocked head, and some end stuck or never."""
    preempting, blocked, stuck = 0, 0, 0
    for seed in range(300):
        oracle = Oracle(random_recording(seed))
        steps = oracle.run()
        preempting += any("preempted" in step for step in steps)
        blocked += any("alloc_log" in step for step in steps)
        stuck += oracle.end != "all finished"
    assert preempting > 100
    assert blocked > 100
    assert stuck > 10
