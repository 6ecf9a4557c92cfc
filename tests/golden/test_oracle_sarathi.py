"""The oracle of Sarathi-Serve's policies agrees with the recordings of the real schedulers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.sarathi import Oracle
from tests.oracles.scenarios import random_sarathi_recording

RECORDINGS = sorted((Path(__file__).parent / "sarathi-serve").glob("*.json"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_oracle_repeats_the_real_scheduler(path: Path) -> None:
    """Every step of a recording is repeated in every key, prefills listed before decodes, to the same end."""
    recording: dict[str, Any] = json.loads(path.read_text())
    oracle = Oracle(recording)
    for mine, recorded in zip(oracle.run(), recording["steps"], strict=True):
        assert mine == recorded
    assert oracle.end == recording["end"]
    assert oracle.watermark_blocks == recording["watermark_blocks"]


@pytest.mark.parametrize("policy", ["sarathi", "vllm", "orca", "faster_transformer"])
def test_every_request_gets_its_output(policy: str) -> None:
    """In 60 random scenarios whose pool holds any one request, all finish with their outputs and all blocks return."""
    preempting = 0
    for seed in range(60):
        oracle = Oracle(random_sarathi_recording(seed, policy))
        steps = oracle.run()
        ignored = {name for step in steps for name in step.get("ignored", [])}
        assert oracle.end == "all finished"
        assert oracle.free == oracle.num_blocks
        assert all(r.out == (0 if r.id in ignored else r.output) for r in oracle.requests)
        preempting += any("preempted" in step for step in steps)
    assert (preempting > 5) == (policy in ("sarathi", "vllm"))
