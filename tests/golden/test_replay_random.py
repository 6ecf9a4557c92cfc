"""Random recordings: the engine agrees with the plain, list-based transcription of vLLM's rules, and only with that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.golden.comparing import HERE, Steps, differences, played, read
from tests.oracles.rules import MUTANTS
from tests.oracles.sarathi import Oracle as SarathiOracle
from tests.oracles.scenarios import random_recording, random_sarathi_recording, recordings
from tests.oracles.vllm_v1 import run

FEATURES: dict[str, dict[str, bool]] = {
    "fcfs": {"priority": False, "caching": False, "async_": False, "threshold": False},
    "priority": {"priority": True, "caching": False, "async_": False},
    "threshold": {"threshold": True, "caching": False, "async_": False},
    "aborts": {"aborts": True, "caching": False, "async_": False},
    "caching": {"caching": True, "async_": False},
    "async": {"async_": True, "caching": False},
    "everything": {},
}
QUICK = 120
SLOW = 6000
MUTANT_SCENARIOS = 1500  # the rarest mutant shows in one of some six hundred


def agree(seed: int, features: dict[str, bool]) -> None:
    """One random recording, ours against the oracle's; the message replays it."""
    recording = random_recording(seed, **features)
    found = differences(played(recording), run(recording))
    assert found == [], f"random_recording({seed}, **{features}): {found[:3]}"


@pytest.mark.parametrize("name", FEATURES)
def test_engine_agrees_with_the_plain_rules(name: str) -> None:
    """120 random scenarios a feature, with tiny pools, one-token blocks, budgets of 2 and stuck ends."""
    for seed in range(QUICK):
        agree(seed, FEATURES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", FEATURES)
def test_engine_agrees_with_the_plain_rules_at_length(name: str) -> None:
    """6,000 more a feature: `pytest -m slow tests/golden`."""
    for seed in range(QUICK, QUICK + SLOW):
        agree(seed, FEATURES[name])


@settings(max_examples=80, deadline=None)
@given(recording=recordings(caching=False, async_=False))
def test_engine_agrees_with_the_plain_rules_shrinking(recording: dict[str, Any]) -> None:
    """The same with hypothesis, which shrinks what fails."""
    assert differences(played(recording), run(recording)) == []


@pytest.mark.parametrize("policy", ["faster_transformer", "sarathi", "orca", "vllm"])
def test_sarathi_serves_policies_agree(policy: str) -> None:
    """The policies of sarathi-serve on 60 random scenarios, each against its transcription."""
    for seed in range(60):
        recording = random_sarathi_recording(seed, policy)
        found = differences(played(recording), SarathiOracle(recording).run(), apart=True)
        assert found == [], f"random_sarathi_recording({seed}, {policy!r}): {found[:3]}"


@pytest.fixture(scope="module")
def known() -> list[tuple[dict[str, Any], Steps]]:
    """Recordings with our steps; random ones join as they are needed."""
    return [(recording, played(recording)) for recording in map(read, sorted((HERE / "vllm-v1").glob("*.json")))]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name: str, known: list[tuple[dict[str, Any], Steps]]) -> None:
    """With one rule of vLLM broken in the oracle, the comparison with our engine finds a difference."""
    for place in range(MUTANT_SCENARIOS):
        if place == len(known):
            recording = random_recording(place)
            known.append((recording, played(recording)))
        recording, ours = known[place]
        if differences(ours, run(recording, MUTANTS[name])):
            return
    pytest.fail(f"{name} goes unnoticed in {MUTANT_SCENARIOS} scenarios")
