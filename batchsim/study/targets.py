"""What a plan must meet: each target of a class at its percentile, or the joint share of requests that meet them all.

What was submitted and not completed is infinitely late; a TPOT or ITL target says nothing of a one-token answer; a
figure equal to its limit passes. Classes without targets of their own share the scenario's and are judged as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.errors import InvalidInput, Problem
from batchsim.metrics.latency import NS_PER_MS, completed, e2e_ns, submitted, ttft_ns
from batchsim.metrics.percentiles import between, samples_needed
from batchsim.metrics.slo import TARGETS
from batchsim.metrics.ticks import max_itl_ns
from batchsim.records import Records
from batchsim.scenario.scenario import Scenario
from batchsim.study.noise import settled
from batchsim.workload.columns import Workload
from batchsim.workload.description import Mix, Slo

Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]
PERCENTILE = 99.0
"""The percentile of targets that name none."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The targets of some classes of traffic. name: the class, or "" for those that share the scenario's."""

    name: str
    classes: tuple[str, ...]
    limits_ms: dict[str, float]  # by target: ttft_ms …
    percentile: float | None  # None: attainment holds
    attainment: float | None

    def members(self, workload: Workload) -> Bools:
        """Which requests it is about."""
        wanted = np.array([name in self.classes for name in workload.classes])
        return np.asarray(wanted[workload.traffic_class])

    def figure_name(self, target: str) -> str:
        """`p99_ttft_ms`, `chat.p99_ttft_ms`, `attainment`."""
        name = "attainment" if self.percentile is None else f"p{self.percentile:g}_{target}"
        return f"{self.name}.{name}" if self.name else name

    def samples_needed(self) -> int:
        """Fewest requests that its tail can be read from."""
        return samples_needed(
            self.percentile if self.percentile is not None else 100 * min(self.attainment or 0, 0.9999)
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """One target's figure in one run. value None: infinitely late (a latency), or nobody to judge. settled: `passes` is
    further from turning than the noise of that many requests reaches."""

    name: str
    value: float | None
    limit: float
    passes: bool
    settled: bool = True

    @property
    def ratio(self) -> float | None:
        """Figure over limit, for attainment what is missed over what may be; None where infinite."""
        if self.value is None:
            return None
        if self.name.rpartition(".")[2] == "attainment":
            return (1 - self.value) / (1 - self.limit) if self.limit < 1 else (0.0 if self.passes else None)
        return self.value / self.limit


def goals_of(scenario: Scenario) -> tuple[Goal, ...]:
    """The goals of a scenario. Raises `InvalidInput` where it has no target."""
    general, workload = scenario.slo, scenario.workload
    own: list[tuple[str, Slo]] = []
    shared: tuple[str, ...] = ("default",)
    if isinstance(workload, Mix):
        own = [(entry.name, entry.slo) for entry in workload.mix if entry.slo is not None]
        shared = tuple(entry.name for entry in workload.mix if entry.slo is None)
    goals = [_goal(name, (name,), slo) for name, slo in own]
    if general is not None and shared:
        goals.append(_goal("", shared, general))
    if not goals:
        raise InvalidInput([Problem("slo", "missing: a plan needs a target, such as {ttft_ms: 500, percentile: 99}")])
    return tuple(goals)


def _goal(name: str, classes: tuple[str, ...], slo: Slo) -> Goal:
    limits = {target: value for target in TARGETS if (value := getattr(slo, target)) is not None}
    percentile = PERCENTILE if slo.percentile is None and slo.attainment is None else slo.percentile
    return Goal(name, classes, limits, percentile, slo.attainment)


def figures_of(records: Records, goals: Sequence[Goal]) -> tuple[Figure, ...]:
    """Every goal's figures in one run."""
    done, sent = completed(records.requests), submitted(records.requests)
    values = {target: _values_ns(records, target, done) for goal in goals for target in goal.limits_ms}
    gaps = records.workload.output_tokens > 1
    return judged(goals, values, {goal.name: goal.members(records.workload) & sent for goal in goals}, gaps)


def judged(
    goals: Sequence[Goal], values_ns: dict[str, Float64], members: dict[str, Bools], gaps: Bools
) -> tuple[Figure, ...]:
    """The figures of latencies in ns, infinite for what was not served. gaps: requests of two tokens or more."""
    found: list[Figure] = []
    for goal in goals:
        mine = members[goal.name]
        if goal.percentile is not None:
            for target, limit in goal.limits_ms.items():
                sample = values_ns[target][mine & gaps if target in ("tpot_ms", "itl_ms") else mine]
                value = percentile(sample, goal.percentile)
                most_ns = round(limit * NS_PER_MS)
                passes = value is None or value <= most_ns
                clear = settled(sample > most_ns, 1 - goal.percentile / 100)
                shown = None if value is None or np.isinf(value) else value / NS_PER_MS
                found.append(Figure(goal.figure_name(target), shown, limit, passes, clear))
        else:
            assert goal.attainment is not None
            good = mine.copy()
            for target, limit in goal.limits_ms.items():
                vacuous = ~gaps if target in ("tpot_ms", "itl_ms") else np.zeros(len(gaps), bool)
                late = values_ns[target] > round(limit * NS_PER_MS)
                good &= ~late | (vacuous & np.isfinite(values_ns[target]))
            total = int(mine.sum())
            share = int(good.sum()) / total if total else None
            passes = share is None or share >= goal.attainment
            clear = settled(~good[mine], 1 - goal.attainment)
            found.append(Figure(goal.figure_name(""), share, goal.attainment, passes, clear))
    return tuple(found)


def _values_ns(records: Records, target: str, done: Bools) -> Float64:
    """A latency of every request, infinite where it was not completed, 0 where a one-token answer has none."""
    requests = records.requests
    if target == "ttft_ms":
        values = ttft_ns(requests).astype(np.float64)
    elif target == "e2e_ms":
        values = e2e_ns(requests).astype(np.float64)
    elif target == "itl_ms":
        values = np.maximum(max_itl_ns(records), 0).astype(np.float64)
    else:
        gaps = np.maximum(requests.emitted_tokens - 1, 1)
        values = np.maximum(requests.finished_ns - requests.first_token_ns, 0) / gaps
    return np.where(done, values, np.inf)


def percentile(values: Float64, percent: float) -> float | None:
    """Linear interpolation where values may be infinite; None for an empty sample."""
    if not len(values):
        return None
    place = (len(values) - 1) * (percent / 100)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    parted = np.partition(values, [low, high])
    if place == low or parted[low] == parted[high]:
        return float(parted[low])
    return float("inf") if np.isinf(parted[high]) else between(float(parted[low]), float(parted[high]), place - low)


def to_dict(figures: Sequence[Sequence[Figure]]) -> dict[str, Any]:
    """Figures of several seeds as plain values: by name the limit, one value a seed (null: infinitely late), and whether
    that is further from the limit than its noise reaches."""
    return {
        figure.name: {
            "limit": figure.limit,
            "per_seed": [seed[place].value for seed in figures],
            "settled": [seed[place].settled for seed in figures],
        }
        for place, figure in enumerate(figures[0])
    }
