"""One run of a study: what it is asked, the key it is stored under, and the row of figures that it leaves.

A task is plain data, so that any worker, in any process, turns it into the same row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchsim.errors import DoesNotFit, InvalidInput, Problem
from batchsim.metrics.latency import NS_PER_S
from batchsim.metrics.throughput import span_of
from batchsim.metrics.windows import Window, window_section
from batchsim.scenario.check import build_any, plain_value
from batchsim.scenario.resolve import resolve
from batchsim.scenario.scenario import Scenario, check
from batchsim.simulation import Run, simulate, versions
from batchsim.workload.columns import Workload
from batchsim.workload.description import WorkloadDescription
from batchsim.workload.draw import draw

Row = dict[str, Any]
UNFIT = "does_not_fit"
"""The column that says why a run has no figures: the model does not fit on the GPUs of that combination."""


@dataclass(frozen=True, slots=True)
class Part:
    """The named part of a run that steady figures come from: shares of the time over which requests arrive.

    0.1 to 1: what arrives while an empty system fills is warm-up and left out, and so is the drain behind the last
    arrival.
    """

    start: float = 0.1
    end: float = 1.0
    name: str = "arrivals without warm-up and drain"

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end <= 1:
            rule = "must be START:END, shares of the arrivals with 0 ≤ START < END ≤ 1"
            raise InvalidInput([Problem("--window", rule, f"{self.start:g}:{self.end:g}")])

    def of(self, workload: Workload) -> Window:
        """The same part in seconds of one workload."""
        first, last = int(workload.arrival_ns.min()), int(workload.arrival_ns.max())
        length = last - first
        return Window((first + self.start * length) / NS_PER_S, (first + self.end * length) / NS_PER_S, name=self.name)


class Task(NamedTuple):
    """One run as plain data: the scenario as JSON, where its files are, the keys changed, the seed, the part."""

    scenario: str
    folder: str
    changes: str
    seed: int
    part: tuple[float, float, str] | None


def run_task(task: Task) -> Row:
    """The row of a task, the same in every process."""
    scenario = changed(task)
    try:
        resolved = resolve(scenario)
    except DoesNotFit as error:
        return {UNFIT: "; ".join(map(str, error.problems))}
    workload = drawn(scenario)
    run = simulate(resolved, workload=workload)
    part = None if task.part is None else Part(*task.part)
    return row_of(run, part)


def changed(task: Task) -> Scenario:
    """The scenario that a task means. Raises `InvalidInput`."""
    return _point(task.scenario, task.folder, task.changes).with_seed(task.seed)


@lru_cache(maxsize=16)
def _point(text: str, folder: str, changes: str) -> Scenario:
    """A point of the grid: checked once for all seeds."""
    return _base(text, folder).replace(json.loads(changes))


@lru_cache(maxsize=4)
def _base(text: str, folder: str) -> Scenario:
    return check(json.loads(text), folder=Path(folder))


def drawn(scenario: Scenario) -> Workload:
    """A scenario's requests; scenarios that describe the same ones share them (common random numbers)."""
    description = json.dumps(plain_value(scenario.workload))
    return _drawn(description, scenario.settings.seed, str(scenario.folder.absolute()))


@lru_cache(maxsize=8)
def _drawn(description: str, seed: int, folder: str) -> Workload:
    return draw(build_any(WorkloadDescription, json.loads(description), "workload"), seed, Path(folder))


def row_of(run: Run, part: Part | None) -> Row:
    """The scalar figures of a run, the targets' shares one by one, and those of the named part behind `window.`."""
    summary = run.summary
    row = {key: value for key, value in summary.items() if _is_scalar(value)}
    each = summary.get("slo_attainment_by_target") or {}
    row |= {f"slo_attainment.{name}": share for name, share in each.items()}
    if part is not None and len(run.records.requests):
        section = window_section(run.records, part.of(run.records.workload), span_of(run.records))
        row |= {f"window.{key}": value for key, value in section.items() if key not in ("name", "rule")}
    return {key: _finite(value) for key, value in row.items()}


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


class Keys:
    """The keys that rows are stored under: what was run, the files that it reads, and the version that ran it."""

    def __init__(self, part: Part | None) -> None:
        self._part = None if part is None else [part.start, part.end]
        self._files: dict[Path, str] = {}
        self._versions = versions()

    def of(self, scenario: Scenario) -> str:
        """64 hexadecimal digits: equal runs have equal keys, whichever grid they stand in."""
        files = [self._digest(scenario.folder / name) for name in _texts(scenario.given)]
        parts = [scenario.digest(), [found for found in files if found], self._part, self._versions]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _digest(self, file: Path) -> str:
        """Of a file's contents; empty where the text names no file."""
        if file not in self._files:
            try:
                self._files[file] = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
            except (OSError, ValueError):  # a text that is no path, or a file that is not ours to read
                self._files[file] = ""
        return self._files[file]


def _texts(value: Any) -> list[str]:
    """Every text of a scenario that could be a file's name, in order."""
    if isinstance(value, Mapping):
        return [text for child in value.values() for text in _texts(child)]
    if isinstance(value, list):
        return [text for child in value for text in _texts(child)] if len(value) <= 100 else []
    return [value] if isinstance(value, str) and 0 < len(value) < 1000 else []
