"""The recordings of real schedulers, played through the engine that `run` uses, agree step by step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.comparing import COMPARED, HERE, differences, played, read

VLLM = sorted((HERE / "vllm-v1").glob("*.json"))
SARATHI = sorted((HERE / "sarathi-serve").glob("*.json"))


@pytest.mark.parametrize("path", VLLM, ids=lambda path: path.stem)
def test_vllm_step_by_step(path: Path) -> None:
    """vLLM 0.32: who computes how much in which order, evictions, finishes, both queues and the free blocks."""
    recording = read(path)
    assert differences(played(recording), recording["steps"]) == []


@pytest.mark.parametrize("path", SARATHI, ids=lambda path: path.stem)
def test_sarathi_serve_step_by_step(path: Path) -> None:
    """sarathi-serve 0.1.8, its static batches included; a step's prefills are listed before its decodes."""
    recording = read(path)
    assert differences(played(recording), recording["steps"], apart=True) == []


def test_the_recordings_are_all_here() -> None:
    """Both folders are full, so that an empty list of parameters cannot pass for agreement."""
    assert len(VLLM) >= 56
    assert sum("faster_transformer" in path.name for path in SARATHI) >= 6


@pytest.mark.parametrize("key", COMPARED)
def test_a_falsified_recording_is_noticed(key: str) -> None:
    """The comparison sees a change in any key of any step."""
    recording = read(HERE / "vllm-v1" / "23_thrash.json")
    steps = json.loads(json.dumps(recording["steps"]))
    changed = next(step for step in steps[5:] if step.get(key) not in (None, []))
    changed[key] = changed[key][:-1] if isinstance(changed[key], list) else changed[key] + 1
    assert differences(played(recording), steps) != []


def test_a_missing_step_is_noticed() -> None:
    """A play that goes on longer than the recording differs from it."""
    recording = read(HERE / "vllm-v1" / "01_fcfs_plain.json")
    assert differences(played(recording), recording["steps"][:-1]) != []
