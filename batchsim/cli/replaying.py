"""Recordings of real schedulers against batchsim's: reading them, and the first step that differs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchsim.errors import InvalidInput, Problem

COMPARED = ("sched", "preempted", "finished", "running", "waiting", "free")
COLUMN = 46


def read(file: Path) -> dict[str, Any]:
    """A recording: a mapping with `config`, `requests` and `steps`. Raises `InvalidInput`."""
    try:
        recording = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput([Problem("file", f"cannot be read: {getattr(error, 'strerror', None) or error}")]) from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput([Problem("file", f"is not JSON: {error}")]) from error
    wanted = {"config": dict, "requests": list, "steps": list}
    found = recording if isinstance(recording, dict) else {}
    problems = [
        Problem(key, f"must be a {'mapping' if kind is dict else 'list'} of a recording")
        for key, kind in wanted.items()
        if not isinstance(found.get(key), kind)
    ]
    if problems:
        raise InvalidInput(problems)
    return found


def first_difference(recording: Mapping[str, Any]) -> str | None:
    """The first step that batchsim plays otherwise, recorded and played side by side; None where all agree."""
    from batchsim.testing import replay

    try:
        played = {step["step"]: step for step in replay(recording)}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InvalidInput([Problem("recording", f"is damaged: {type(error).__name__}: {error}")]) from error
    recorded = [step for step in recording["steps"] if not step.get("idle")]
    for step in recorded:
        ours = played.pop(step["step"], None)
        if ours is None or _key(step, step) != _key(ours, step):
            return f"step {step['step']} differs\n{_side_by_side(step, ours or {})}"
    left = [number for number, step in played.items() if step.get("sched")]
    return f"step {left[0]} is not in the recording\n{_side_by_side({}, played[left[0]])}" if left else None


def _key(step: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What of a step is compared: the keys that the recording has, entries of `sched` as far as it tells."""
    key = {name: step.get(name) for name in COMPARED if name in recorded}
    widths = {len(entry) for entry in recorded.get("sched", [])}
    if widths and max(widths) <= 3:  # sarathi-serve: [id, tokens, phase], prefills first whatever the order
        key["sched"] = sorted([entry[0], entry[1]] for entry in step.get("sched", []))
        key["preempted"] = [entry[0] if isinstance(entry, list) else entry for entry in step.get("preempted", [])]
    else:
        key["sched"] = [list(entry[:3]) for entry in step.get("sched", [])]
    return key


def _side_by_side(recorded: Mapping[str, Any], played: Mapping[str, Any]) -> str:
    lines = [f"    {'':<10}{'recorded':<{COLUMN}}batchsim"]
    for name in COMPARED:
        left, right = _cells(recorded.get(name)), _cells(played.get(name))
        for row in range(max(len(left), len(right))):
            one, other = (cells[row] if row < len(cells) else "" for cells in (left, right))
            mark = "≠" if one != other else " "
            lines.append(f"  {mark} {name if row == 0 else '':<10}{one:<{COLUMN}}{other}")
    return "\n".join(lines)


def _cells(value: Any) -> list[str]:
    """A step's entry in lines that fit a column, one request a line; of a schedule's what is compared and the
    phase."""
    if isinstance(value, list) or value is None:
        entries = [entry[:4] if isinstance(entry, list) else entry for entry in value or []]
        return [json.dumps(entry)[: COLUMN - 2] for entry in entries] or ["none"]
    return [str(value)]
