"""The SGLang oracle agrees with the recordings of the real scheduler, and each of its rules shows."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.sglang import Oracle, Step, run
from tests.oracles.sglang_rules import MUTANTS, Rules
from tests.oracles.sglang_scenarios import random_recording

RECORDINGS = sorted((Path(__file__).parent / "sglang").glob("*.json"))
RANDOM_SCENARIOS = 100

# What makes a rare mutant show: features of the random scenarios, or a single seed.
WHERE: dict[str, dict[str, Any]] = {
    "chunk_keeps_shut": {"first": 128},
    "inserted_sorted": {"ignore_eos": True, "radix": False, "policy": "fcfs"},
    "prompt_counted": {"policy": "priority"},
    "threshold_reached": {"policy": "priority"},
    "long_queue_sorted": {"policy": "lpm", "radix": True, "requests": 150},
}


@cache
def recording(path: Path) -> dict[str, Any]:
    """A recording."""
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_oracle_repeats_the_real_scheduler(path: Path) -> None:
    """Every step of a recording is repeated in every key, the ratio to the last bit, to the same end."""
    golden = recording(path)
    oracle = Oracle(golden, Rules())
    oracle.run()
    for mine, recorded in zip(oracle.steps, golden["steps"], strict=True):
        assert mine == recorded
    assert oracle.end == golden["end"]
    assert (oracle.init, oracle.least, oracle.decay) == tuple(
        golden[f"ratio_{key}"] for key in ("init", "min", "decay")
    )
    assert sum(r.retractions for r in oracle.requests) == golden["total_retractions"] + dropped(oracle.steps)


def dropped(steps: list[Step]) -> int:
    return sum(len(step.get("dropped", [])) for step in steps)


def test_there_are_recordings() -> None:
    """The recordings stand beside this file: without them the test above would claim nothing."""
    assert len(RECORDINGS) == 63


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_request_gets_its_tokens(seed: int) -> None:
    """Emitted = asked: without overlap no token is computed twice, with it none is lost; slots conserved throughout."""
    oracle = Oracle(random_recording(seed), Rules())
    oracle.run()  # asserts at every step that every slot has one owner
    overlap = oracle.config["overlap"]
    emitted: dict[str, int] = {}
    for step in oracle.steps:
        for name, _, _, _, emits in step["sched"]:
            emitted[name] = emitted.get(name, 0) + emits
    for r in oracle.requests:
        if r.done and not dropped(oracle.steps):
            asked = max(1, r.limit if r.ends_at is None else min(r.limit, r.ends_at))
            assert r.out == asked
            assert emitted[r.id] >= asked if overlap else emitted[r.id] == asked


@pytest.mark.slow
def test_oracle_finishes_every_random_scenario() -> None:
    """500 random scenarios run to their end, to a known stand-still or a known crash of the real scheduler."""
    for seed in range(500):
        oracle = Oracle(random_recording(seed), Rules())
        oracle.run()
        if oracle.end.startswith("stuck"):  # a lone request that may fill the pool to the last slot but one
            head = oracle.waiting[0]
            assert (head.ignore_eos and oracle.pool.tree is None) or oracle.pool.page > 1, seed
        elif oracle.end.startswith("crash"):  # surprise 7
            assert oracle.config["enable_mixed_chunk"] or oracle.config["prefill_decode_interval"], seed
        else:
            assert oracle.end == "all finished", seed


def test_random_scenarios_press_the_scheduler() -> None:
    """Of 100 random scenarios more than half refuse, and a fifth each cut, retract and hit a prefix."""
    runs = [truth(seed) for seed in range(RANDOM_SCENARIOS)]
    assert sum(any("refused" in s for s in steps) for steps in runs) > 50
    assert sum(any("retracted" in s for s in steps) for steps in runs) > 20
    assert sum(any(s["chunked"] for s in steps) for steps in runs) > 20
    assert sum(any(row[2] for s in steps for row in s["sched"] if row[3] == "P") for steps in runs) > 20


@cache
def truth(seed: int, **features: Any) -> list[Step]:
    return run(random_recording(seed, **features))


def differs(scenario: dict[str, Any], steps: list[Step], mutant: Rules) -> bool:
    """Whether the mutant goes another way; breaking an invariant is one."""
    try:
        return run(scenario, mutant) != steps
    except AssertionError:
        return True


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_shows(name: str) -> None:
    """Breaking one rule changes a recording of the real scheduler, or a random scenario."""
    mutant = MUTANTS[name]
    features = dict(WHERE.get(name, {}))
    first = features.pop("first", 0)
    shown = any(
        differs(random_recording(seed, **features), truth(seed, **features), mutant)
        for seed in range(first, first + RANDOM_SCENARIOS)
    )
    assert shown or any(differs(recording(path), recording(path)["steps"], mutant) for path in RECORDINGS)
