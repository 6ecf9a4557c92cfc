"""`--set key=value`: changes to the plain values of a scenario, before they are checked.

A key is a dotted path, list entries by number (`workload.mix.0.share` or `workload.mix[0].share`); a value is YAML
(`4`, `.inf`, `null`,
`{kind: static}`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from batchsim.errors import InvalidInput, Problem
from batchsim.scenario.check import plain_value, shown
from batchsim.scenario.text import parse

_STEP = re.compile(r"([^.\[\]]+)((?:\[\d{1,6}\])*)")
MAX_STEPS = 20
Assignment = tuple[str, Any]


def assignment(text: str) -> Assignment:
    """(key, value) of a `key=value`. Raises `InvalidInput`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidInput([Problem("--set", "must be KEY=VALUE", repr(text))])
    steps(key.strip())
    try:
        return key.strip(), parse(value)
    except InvalidInput as error:
        rules = "; ".join(found.rule for found in error.problems)
        raise InvalidInput([Problem(key.strip(), rules, repr(value))]) from error


def assignments(changes: Iterable[str | Mapping[str, Any]]) -> list[Assignment]:
    """The single changes in texts (`key=value`) and mappings (dotted key -> value), in order.

    A relative path in a file starts at the file's folder; given here it starts in the current one, and is made
    absolute.
    """
    pairs: list[Assignment] = []
    for change in changes:
        pairs += [assignment(change)] if isinstance(change, str) else list(change.items())
    return [(key, str(Path.cwd() / value) if _is_path(key, value) else value) for key, value in pairs]


def _is_path(key: str, value: Any) -> bool:
    return isinstance(value, str) and bool(value) and key.rpartition(".")[2] == "path"


def steps(key: str) -> list[str | int]:
    """The steps of a dotted path: names, and numbers of list entries."""
    found: list[str | int] = []
    for part in key.split("."):
        match = _STEP.fullmatch(part)
        if match is None:
            raise InvalidInput([Problem("--set", "must be a dotted key such as scheduler.max_num_seqs", repr(key))])
        name = match[1]
        found.append(int(name) if found and name.isdecimal() and len(name) <= 6 else name)
        found.extend(int(number) for number in re.findall(r"\d+", match[2]))
    if len(found) > MAX_STEPS:
        raise InvalidInput([Problem("--set", f"must have at most {MAX_STEPS} steps", shown(key))])
    return found


def apply(
    values: Mapping[str, Any],
    changes: list[Assignment],
    kind_keys: Callable[[str, Any], set[str] | None],
) -> tuple[dict[str, Any], list[str]]:
    """A changed copy of `values`, and a warning for each key that fell away.

    `kind_keys(section, kind)` names the keys that a section takes under a kind, None where kinds do not choose them
    or the kind is unknown:
    a change of `section.kind` drops the others, except those that `changes` set themselves.
    """
    changed: dict[str, Any] = plain_value(values)
    warnings: list[str] = []
    set_here = {".".join(map(str, steps(key))) for key, _ in changes}
    for key, value in changes:
        path = steps(key)
        old = _get(changed, path)
        _put(changed, path, plain_value(value), key)
        section = ".".join(map(str, path[:-1]))
        if path[-1] == "kind" and len(path) > 1 and value != old:
            warnings += _drop(_get(changed, path[:-1]), section, value, kind_keys(section, value), set_here)
    return changed, warnings


def _drop(there: Any, section: str, kind: Any, wanted: set[str] | None, set_here: set[str]) -> list[str]:
    if wanted is None or not isinstance(there, dict):
        return []
    gone = [key for key in there if key not in wanted and key != "kind" and f"{section}.{key}" not in set_here]
    for key in gone:
        del there[key]
    if not gone:
        return []
    return [f"{section}.kind: {kind} has no {', '.join(gone)}: left out"]


def _get(values: Any, path: list[str | int]) -> Any:
    for step in path:
        if isinstance(values, dict):
            values = values.get(str(step))
        elif isinstance(values, list) and isinstance(step, int) and step < len(values):
            values = values[step]
        else:
            return None
    return values


def _put(values: Any, path: list[str | int], value: Any, key: str) -> None:
    """Sets the value at `path`; mappings on the way are made, list entries must be there (or be the next one)."""
    for position, step in enumerate(path):
        last = position == len(path) - 1
        place = ".".join(map(str, path[:position]))
        if isinstance(values, list):
            if not isinstance(step, int) or step > len(values) or (step == len(values) and not last):
                raise InvalidInput([Problem(key, f"{place} is a list of {len(values)}: no entry {step}")])
            if last:
                values[step : step + 1] = [value]
            else:
                values = values[step]
        elif isinstance(values, dict):
            name = str(step)
            if last:
                values[name] = value
            elif values.get(name) is None:
                values[name] = values = {}
            else:
                values = values[name]
        else:
            raise InvalidInput([Problem(key, f"{place} is no mapping", shown(values))])
