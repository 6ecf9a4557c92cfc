"""SGLang: the engine that `run` uses agrees with the recordings of the real scheduler and with the plain rules."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from batchsim.testing import replay
from tests.golden.comparing import HERE, Steps, read
from tests.oracles.sglang import run
from tests.oracles.sglang_rules import MUTANTS
from tests.oracles.sglang_scenarios import random_recording

RECORDINGS = sorted((HERE / "sglang").glob("*.json"))
ALWAYS = ("finished", "retracted")
"""Lists that a recording leaves out where they are empty."""

FEATURES: dict[str, dict[str, Any]] = {
    "everything": {},
    "radix": {"radix": True},
    "overlap": {"overlap": True},
    "mixed": {"mixed": True},
    "pages": {"page": 4, "radix": True},
    "priority": {"policy": "priority"},
    "priority ahead": {"policy": "priority", "overlap": True},
    "lpm": {"policy": "lpm", "radix": True},
    "long queue": {"policy": "lpm", "radix": True, "requests": 150},
    "ignore_eos": {"ignore_eos": True, "radix": False},
}
QUICK = 40
QUICKER = {"long queue": 1}
SLOW = 1500

WHERE: dict[str, dict[str, Any]] = {
    "chunk_keeps_shut": {"first": 128},
    "inserted_sorted": {"ignore_eos": True, "radix": False, "policy": "fcfs"},
    "prompt_counted": {"policy": "priority"},
    "threshold_reached": {"policy": "priority"},
    "long_queue_sorted": {"policy": "lpm", "radix": True, "requests": 150},
}
"""What makes a rare mutant show."""
MUTANT_SCENARIOS = 100


def differences(mine: Steps, theirs: Steps) -> list[str]:
    """Where two plays differ, in any key that a recording has, the ratio to the last bit."""
    found = []
    for ours, other in zip(mine, theirs, strict=False):
        expected = {**{key: [] for key in ALWAYS}, **other}
        keys = (set(ours) | set(expected)) - {"preempted"}
        found += [
            f"step {ours['step']}, {key}: ours {ours.get(key)}, recorded {expected.get(key)}"
            for key in sorted(keys)
            if ours.get(key) != expected.get(key)
        ]
    if len(mine) != len(theirs):
        found.append(f"{len(mine)} steps, recorded {len(theirs)}")
    return found


def agree(seed: int, features: dict[str, Any]) -> None:
    """One random recording, ours against the oracle's; the message replays it."""
    recording = random_recording(seed, **features)
    found = differences(replay(recording), run(recording))
    assert found == [], f"random_recording({seed}, **{features}): {found[:3]}"


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_sglang_step_by_step(path: Path) -> None:
    """SGLang 0.5.23: every key of every step, refusals, evictable tokens and the new-token ratio included."""
    recording = read(path)
    steps = replay(recording)
    assert differences(steps, recording["steps"]) == []
    assert all(step["preempted"] == step["retracted"] for step in steps)


def test_the_recordings_are_all_here() -> None:
    """An empty list of parameters cannot pass for agreement."""
    assert len(RECORDINGS) >= 63


@pytest.mark.parametrize("key", ["sched", "retracted", "running", "waiting", "free", "ratio", "finished"])
def test_a_falsified_recording_is_noticed(key: str) -> None:
    """The comparison sees a change in any key of any step."""
    path = next(path for path in RECORDINGS if any(step.get("retracted") for step in read(path)["steps"]))
    recording = read(path)
    changed = next(step for step in recording["steps"][1:] if step.get(key))
    changed[key] = changed[key][:-1] if isinstance(changed[key], list) else changed[key] + 1e-12
    assert differences(replay(recording), recording["steps"]) != []


@pytest.mark.parametrize("name", FEATURES)
def test_engine_agrees_with_the_plain_rules(name: str) -> None:
    """40 random scenarios a feature, 361 in all: pools of 96 tokens, tiny budgets, pages, retractions, stand-stills."""
    for seed in range(QUICKER.get(name, QUICK)):
        agree(seed, FEATURES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", FEATURES)
def test_engine_agrees_with_the_plain_rules_at_length(name: str) -> None:
    """1,500 more a feature, 150 of the long queues: `pytest -m slow tests/golden`."""
    for seed in range(QUICK, QUICK + (SLOW // 10 if name in QUICKER else SLOW)):
        agree(seed, FEATURES[name])


@cache
def ours(seed: int, **features: Any) -> tuple[dict[str, Any], Steps]:
    """A random recording and our steps."""
    recording = random_recording(seed, **features)
    return recording, replay(recording)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """With one rule of SGLang broken in the oracle, the comparison with our engine finds a difference."""
    features = dict(WHERE.get(name, {}))
    first = features.pop("first", 0)
    known = (ours(seed, **features) for seed in range(first, first + MUTANT_SCENARIOS))
    recorded = ((recording, replay(recording)) for recording in map(read, RECORDINGS))
    for scenarios in (known, recorded):
        for recording, steps in scenarios:
            try:
                if differences(steps, run(recording, MUTANTS[name])):
                    return
            except AssertionError:  # the mutant breaks an invariant of the oracle's
                return
    pytest.fail(f"{name} goes unnoticed")
