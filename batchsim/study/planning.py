"""`plan`: the smallest fleet that meets the targets, of one option or of the best among several."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchsim.errors import InvalidInput, Problem
from batchsim.scenario.scenario import Scenario
from batchsim.simulation import versions
from batchsim.study import grid, sized
from batchsim.study.noise import TIMES
from batchsim.study.sized import STATUSES, Sized

if TYPE_CHECKING:
    import pandas as pd

    from batchsim.study.figures import PlanPlots

Progress = Callable[[str], None]
KEYS = (
    "status", "replicas", "gpus", "lower_bound_replicas", "binding", "max_rate_per_s", "headroom", "cost_per_hour",
    "cost_per_million_output_tokens", "cost_per_million_total_tokens", "floor", "evidence",
)  # fmt: skip
"""The keys that the outside contract fixes, first in `plan.json`."""


class Plan:
    """The answer, and everything that it rests on. `best` is the option that the answer is; `options` are all."""

    def __init__(self, options: Sequence[Sized], max_replicas: int, wall_s: float) -> None:
        self.options = list(options)
        self.max_replicas = max_replicas
        self.wall_s = wall_s
        self.best = min(self.options, key=_order)
        _mark(self.options)

    @property
    def status(self) -> str:
        """plan · over_max_replicas · infeasible · does_not_fit."""
        return self.best.status

    @property
    def replicas(self) -> int | None:
        """Replicas of the plan; None without one."""
        return self.best.replicas

    @cached_property
    def _dict(self) -> dict[str, Any]:
        entries = [sized.to_dict(option) for option in self.options]
        best = entries[self.options.index(self.best)]
        result = {key: best[key] for key in KEYS} | {key: best[key] for key in best if key not in KEYS}
        result["max_replicas"] = self.max_replicas
        if len(entries) > 1:
            front = pareto(entries)
            result["options"] = [_brief(entry) | {"pareto": place in front} for place, entry in enumerate(entries)]
        return result | {"versions": versions()}

    def to_dict(self) -> dict[str, Any]:
        """`plan.json`: the contract's keys first, then what a report needs."""
        return dict(self._dict)

    def table(self) -> pd.DataFrame:
        """One row a size tried of the best option; with several options one row an option."""
        import pandas as pd

        whole = self._dict
        if "options" in whole:
            return pd.DataFrame([{**entry["point"], **_flat(entry)} for entry in whole["options"]])
        return pd.DataFrame([_size_row(entry) for entry in whole["evidence"]])

    @property
    def plot(self) -> PlanPlots:
        """Figures of the plan, each a method that returns its Axes."""
        from batchsim.study.figures import PlanPlots

        return PlanPlots(self)

    def write(self, folder: Path) -> list[Path]:
        """plan.json, and plan.png where there is something to draw; their paths."""
        from batchsim.report.files import make_folder, write_atomically

        make_folder(folder)
        text = json.dumps(self._dict, indent=2, allow_nan=False, ensure_ascii=False)
        written = [write_atomically(folder / "plan.json", lambda stream: stream.write(text + "\n"))]
        if self.best.shown is not None:
            from batchsim.report.plots import write_figure

            written.append(write_figure(folder / "plan.png", self.plot.figure()))
        return written

    def _repr_html_(self) -> str:
        from batchsim.report.notebook import plan_html

        return plan_html(self)


def plan(
    scenario: Scenario,
    *,
    max_replicas: int = 64,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 3,
    window_s: float | None = None,
    gpu_hours: Mapping[str, float] | None = None,
    longer: int = TIMES,
    progress: Progress | None = None,
) -> Plan:
    """The smallest number of replicas, up to `max_replicas`, that meets the scenario's targets on every seed.

    vary: dotted keys to values; every combination is an option, and the cheapest plan is the answer.
    seeds: how many, from the scenario's own on; the same for every size and option.
    window_s: where the rate varies (a trace, piecewise arrivals), the length of the windows of which the busiest is
    sized; by default a twelfth of the traffic, from a minute to an hour.
    gpu_hours: prices by GPU name, for options that differ in it.
    longer: a verdict that lies within the noise of its requests is made on more of the same traffic, twice as many at a
    time, up to so many times; 1: never.
    progress: called with a sentence before each option.
    Raises `InvalidInput`; a model that does not fit is a status of its own.
    """
    if max_replicas < 1:
        raise InvalidInput([Problem("--max-replicas", "must be at least 1", str(max_replicas))])
    if longer < 1:
        raise InvalidInput([Problem("--longer", "must be at least 1", str(longer))])
    if window_s is not None and not window_s > 0:
        raise InvalidInput([Problem("--window", "must be above 0 seconds", f"{window_s:g}")])
    began = time.perf_counter()
    points = grid.points(grid.checked(vary or {}, "--vary"))
    all_seeds = grid.seeds_of(scenario.settings.seed, seeds)
    scenarios = [_option(scenario, point, gpu_hours or {}) for point in points]
    options = []
    for number, (point, changed) in enumerate(zip(points, scenarios, strict=True), 1):
        if progress is not None:
            progress(f"option {number} of {len(points)}: {grid.label(point) or changed.settings.name}")
        options.append(sized.size_up(changed, point, all_seeds, max_replicas, window_s, longer))
    if vary and "gpu" in vary and not gpu_hours and scenario.price is not None:
        options[0].warnings.append("all GPUs are priced alike: give each its own with --gpu-hour NAME=PRICE")
    return Plan(options, max_replicas, time.perf_counter() - began)


def _option(scenario: Scenario, point: grid.Point, gpu_hours: Mapping[str, float]) -> Scenario:
    changed = scenario.replace(point) if point else scenario
    price = gpu_hours.get(changed.gpu.name)
    return changed if price is None else changed.replace({"price.gpu_hour": float(price)})


def _order(option: Sized) -> tuple[float, ...]:
    """Plans first, the cheapest (without prices: of fewest GPUs), then the one furthest below its targets."""
    if option.replicas is None:
        return (STATUSES.index(option.status), 0.0, 0.0)
    cost = option.cost_per_hour
    return (0, float(option.resolved.gpus) if cost is None else cost, _tightness(option))


def _tightness(option: Sized) -> float:
    """The largest figure over its limit, of all targets and seeds."""
    return max((run.tightness for run in option.outcomes), default=0.0)


def _mark(options: Sequence[Sized]) -> None:
    for option in options:
        option.warnings = list(dict.fromkeys(option.warnings))


def pareto(entries: Sequence[Mapping[str, Any]]) -> set[int]:
    """The places of the plans that no other beats: none costs less and is as fast in every target, or the reverse."""
    plans = {place: _coordinates(entry) for place, entry in enumerate(entries) if entry["status"] == "plan"}
    return {
        place
        for place, mine in plans.items()
        if not any(
            all(theirs[axis] <= mine[axis] for axis in mine) and any(theirs[axis] < mine[axis] for axis in mine)
            for theirs in plans.values()
            if theirs.keys() == mine.keys()
        )
    }


def _coordinates(entry: Mapping[str, Any]) -> dict[str, float]:
    """Cost (GPUs without prices) and each target's worst figure, less being better."""
    cost = entry["cost_per_hour"] if entry["cost_per_hour"] is not None else entry["gpus"]
    values = {"cost": float(cost)}
    for name, target in entry["targets"].items():
        worst = float("inf") if target["worst"] is None else float(target["worst"])
        values[name] = -worst if name.rpartition(".")[2] == "attainment" else worst
    return values


def _brief(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An option without what all of them share."""
    return {key: value for key, value in entry.items() if key not in ("scenario", "traffic", "concurrency", "warnings")}


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    names = ("status", "replicas", "gpus", "lower_bound_replicas", "binding", "max_rate_per_s", "headroom",
             "cost_per_hour", "cost_per_million_output_tokens", "pareto")  # fmt: skip
    worst = {name: target["worst"] for name, target in (entry["targets"] or {}).items()}
    return {name: entry[name] for name in names} | worst


def _size_row(entry: Mapping[str, Any]) -> dict[str, Any]:
    row = {"replicas": entry["replicas"], "gpus": entry["gpus"], "passes": entry["passes"]}
    for name, target in entry["targets"].items():
        for seed, value in zip(entry["seeds"], target["per_seed"], strict=True):
            row[f"{name}, seed {seed}"] = value
    return row | {"gpu_busy_fraction": entry["gpu_busy_fraction"]}
