"""Recordings against `batchsim.testing.replay`: what is compared, and which need a feature that is not built yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from batchsim.errors import InvalidInput
from batchsim.testing import replay

HERE = Path(__file__).parent
COMPARED = ("step", "sched", "preempted", "finished", "running", "waiting", "free")

Steps = list[dict[str, Any]]


def read(path: Path) -> dict[str, Any]:
    """A recording."""
    recording: dict[str, Any] = json.loads(path.read_text())
    return recording


def played(recording: Mapping[str, Any]) -> Steps:
    """Our steps; the test is skipped while replay says that something in it is not available."""
    try:
        return replay(recording)
    except InvalidInput as error:
        if "not available" in str(error):
            pytest.skip(str(error))
        raise


def differences(mine: Steps, theirs: Steps, *, apart: bool = False) -> list[str]:
    """Where two plays differ, one line each. apart: prefills and decodes of a step are compared each in its order."""
    found = []
    for ours, other in zip(mine, theirs, strict=False):
        for key in COMPARED:
            a, b = ours[key], other.get(key, [])
            if apart and key == "sched":
                a, b = _apart(a), _apart(b)
            if a != b:
                found.append(f"step {other['step']}, {key}: ours {a}, recorded {b}")
    if len(mine) != len(theirs):
        found.append(f"{len(mine)} steps, recorded {len(theirs)}")
    return found


def _apart(scheduled: list[list[Any]]) -> list[list[Any]]:
    return [entry for kind in "PD" for entry in scheduled if entry[2] == kind]
