"""The largest rate that a fleet keeps up with, and the largest value of a key that its targets allow."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from batchsim.errors import InvalidInput, Problem
from batchsim.metrics.stable import stability
from batchsim.scenario.resolve import resolve
from batchsim.scenario.scenario import Scenario
from batchsim.simulation import simulate
from batchsim.study import grid
from batchsim.study.sizing import TOLERANCE, largest_factor, largest_whole
from batchsim.study.targets import figures_of, goals_of
from batchsim.study.traffic import faster, nominal_rate_per_s, offered_rate_per_s
from batchsim.study.work import drawn

if TYPE_CHECKING:
    from batchsim.study.sweeping import Sweep


@dataclass(frozen=True, slots=True)
class Saturation:
    """The largest rate found stable on every seed and the smallest found not to be, requests a second.

    beyond_per_s None: everything tried was stable; rate_per_s 0: nothing was.
    """

    rate_per_s: float
    beyond_per_s: float | None
    seeds: tuple[int, ...]
    runs: int

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def saturation(scenario: Scenario, *, seeds: int = 1, tolerance: float = TOLERANCE) -> Saturation:
    """Bisects the rate at which the backlog starts to grow (`stable` of the summary), to `tolerance`, arrivals sped up
    in place.

    Raises `InvalidInput` where arrivals have no rate (burst, closed loop). Longer workloads give sharper answers.
    """
    resolved, all_seeds = resolve(scenario), grid.seeds_of(scenario.settings.seed, seeds)
    workloads = [drawn(scenario.replace({"seed": seed})) for seed in all_seeds]
    rate = nominal_rate_per_s(scenario, workloads[0])
    if rate is None or offered_rate_per_s(workloads[0]) is None:
        raise InvalidInput([Problem("workload.arrivals", "a burst and a closed loop have no rate to saturate")])
    runs = 0

    def holds(factor: float) -> bool:
        nonlocal runs
        for workload in workloads:
            runs += 1
            if stability(simulate(resolved, workload=faster(workload, factor)).records).stable is False:
                return False
        return True

    held, failed = largest_factor(holds, tolerance)
    return Saturation(rate * held, None if failed is None else rate * failed, tuple(all_seeds), runs)


def largest(scenario: Scenario, key: str, low: int, high: int, *, seeds: int = 1) -> int | None:
    """The largest whole value of a dotted key, from `low` to `high`, with which this very fleet meets its targets on
    every seed: the batch size that a TPOT target allows, say.

    Every value between a passing and a failing one is decided by bisection, none skipped by a coarse grid. None where
    `low` fails. Raises `InvalidInput`.
    """
    goals, all_seeds = goals_of(scenario), grid.seeds_of(scenario.settings.seed, seeds)

    def holds(value: int) -> bool:
        for seed in all_seeds:
            changed = scenario.replace({key: value, "seed": seed})
            figures = figures_of(simulate(changed, workload=drawn(changed)).records, goals)
            if not all(figure.passes for figure in figures):
                return False
        return True

    return largest_whole(holds, low, high)


def saturations(sweep: Sweep) -> dict[str, Saturation]:
    """The saturation rate of each line of a sweep (each combination of the keys other than the rate), on its seeds."""
    from batchsim.study.curves import RATE

    others = {key: values for key, values in sweep.over.items() if key != RATE}
    return {
        grid.label(point): saturation(
            sweep.scenario.replace(point) if point else sweep.scenario, seeds=len(sweep.seeds)
        )
        for point in grid.points(others)
    }
