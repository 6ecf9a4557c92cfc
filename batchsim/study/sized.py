"""One option of a plan: the smallest fleet of it, or which of three walls it ran into, with the evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from batchsim.errors import DoesNotFit, InvalidInput, Problem
from batchsim.metrics.latency import NS_PER_S
from batchsim.report.console import duration, figure_words
from batchsim.scenario.resolve import Resolved
from batchsim.scenario.scenario import Scenario
from batchsim.study import bounds, noise, targets
from batchsim.study.concurrency import InUse, Room
from batchsim.study.grid import Point
from batchsim.study.sizing import largest_factor, smallest_settled
from batchsim.study.targets import Figure, Goal
from batchsim.study.traffic import (
    Windows,
    nominal_rate_per_s,
    rows,
    slice_warning,
    varies,
    window_of,
    windows,
)
from batchsim.study.trial import Fleet, Outcome, binding, helps, narrow
from batchsim.study.work import drawn
from batchsim.workload.columns import Workload

RANDOM = ("random", "power_of_two")
"""Routers that draw: with one of them a seed matters even where the requests are fixed."""
STATUSES = ("plan", "over_max_replicas", "infeasible", "does_not_fit")


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests that a size is tried on, by seed, and where they come from.

    rate_per_s: what is offered to the fleet, of the busiest window where the rate varies.  windows: of the whole
    traffic, by the first seed.  whole: the first seed's requests before the cut.
    """

    workloads: dict[int, Workload]
    rate_per_s: float | None
    windows: Windows | None
    whole: Workload
    warnings: tuple[str, ...]


@dataclass(slots=True)
class Sized:
    """What the search found for one option. `status`: plan, over_max_replicas, infeasible or does_not_fit."""

    point: Point
    scenario: Scenario
    goals: tuple[Goal, ...]
    status: str
    reason: str = ""
    fleet: Fleet | None = None
    traffic: Traffic | None = None
    work: bounds.Work | None = None
    floor: tuple[Figure, ...] = ()
    replicas: int | None = None
    shown: int | None = None  # the size that figures are of: the plan's, else the largest tried
    max_factor: float | None = None
    lost_factor: float | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def resolved(self) -> Resolved:
        """The parts of the size shown."""
        assert self.fleet is not None
        return self.fleet.resolved(self.shown or 1)

    @property
    def outcomes(self) -> list[Outcome]:
        """The runs of the size shown, one a seed."""
        assert self.fleet is not None
        return self.fleet.outcomes(self.shown) if self.shown is not None else []

    @property
    def cost_per_hour(self) -> float | None:
        """Money an hour of all GPUs of the plan, busy or idle; None without a price or a plan."""
        price = self.scenario.price
        return None if price is None or self.replicas is None else self.resolved.gpus * price.gpu_hour

    def cost_per_million(self, tokens_of: str) -> float | None:
        """Money for a million output (`output`) or prompt and output (`total`) tokens, idle GPUs paid for.

        Over the runs; where the rate varies, over the whole traffic on the fleet that its peak needs.
        """
        if self.cost_per_hour is None or self.traffic is None:
            return None
        hours, tokens = self._spent(tokens_of)
        return self.cost_per_hour * hours / tokens * 1e6 if tokens else None

    def _spent(self, tokens_of: str) -> tuple[float, int]:
        assert self.traffic is not None
        if self.traffic.windows is not None:
            whole = self.traffic.whole
            tokens = int(whole.output_tokens.sum()) + (int(whole.prompt_tokens.sum()) if tokens_of == "total" else 0)
            return float(self.traffic.windows.seconds.sum()) / 3600, tokens
        tokens = sum(run.output_tokens + (run.input_tokens if tokens_of == "total" else 0) for run in self.outcomes)
        return sum(run.seconds for run in self.outcomes) / 3600, tokens

    def figures(self) -> dict[str, Any]:
        """The targets' figures of the size shown: limit, one value a seed, the worst."""
        found = targets.to_dict([run.figures for run in self.outcomes])
        for place, entry in enumerate(found.values()):
            values = entry["per_seed"]
            attained = self.outcomes[0].figures[place].name.rpartition(".")[2] == "attainment"
            entry["worst"] = None if None in values else (min(values) if attained else max(values))
        return found


def size_up(
    scenario: Scenario, point: Point, seeds: Sequence[int], max_replicas: int, window_s: float | None, times: int
) -> Sized:
    """The smallest fleet of one option, each verdict on up to `times` the requests.

    Raises `InvalidInput` for what cannot be planned at all.
    """
    scenario = _plannable(scenario)
    found = Sized(point, scenario, targets.goals_of(scenario), "plan", warnings=list(scenario.warnings))
    try:
        one = Fleet(scenario, found.goals, {}).resolved(1)
    except DoesNotFit as error:
        found.status, found.reason = "does_not_fit", "; ".join(str(problem) for problem in error.problems)
        return found
    found.traffic = traffic = traffic_of(scenario, one, seeds, window_s)
    found.warnings += [text for text in (*one.warnings, *traffic.warnings) if text not in found.warnings]
    more = noise.longer(scenario, times) if len(traffic.workloads) == len(seeds) else None
    found.fleet = fleet = Fleet(scenario, found.goals, traffic.workloads, more)
    first = next(iter(traffic.workloads.values()))
    found.work = bounds.work(one, first, traffic.rate_per_s)
    found.floor = _worst([bounds.floor(one, work, found.goals) for work in traffic.workloads.values()])
    if not all(figure.passes for figure in found.floor):
        found.status = "infeasible"
        found.reason = "; ".join(_floor_words(figure) for figure in found.floor if not figure.passes)
        return found
    found.replicas = found.shown = smallest_settled(fleet, found.work.replicas(), max_replicas)
    if found.replicas is None:
        found.status, found.shown = "over_max_replicas", max_replicas
        found.reason = (
            f"{max_replicas} replicas do not meet the targets; by work alone it takes {found.work.replicas()}"
        )
        fleet.outcomes(max_replicas)
    else:
        _complete(found, fleet, found.replicas)
    found.warnings += _warnings(found)
    return found


def traffic_of(scenario: Scenario, resolved: Resolved, seeds: Sequence[int], window_s: float | None) -> Traffic:
    """Each seed's requests: all of them, or those of the busiest window where the rate varies by design."""
    draws = {seed: _submitted(scenario, drawn(scenario.replace({"seed": seed}))) for seed in seeds}
    first = draws[seeds[0]]
    warnings: list[str] = []
    if len(draws) > 1 and _are_fixed(list(draws.values())) and scenario.kind("router") not in RANDOM:
        draws = {seeds[0]: first}
        warnings.append("the requests are the same for every seed (a trace or a list): one seed is used")
    if not varies(scenario):
        return Traffic(draws, nominal_rate_per_s(scenario, first), None, first, tuple(warnings))
    cost = bounds.work(resolved, first, None)
    cuts = {seed: windows(work, window_s, (cost.prompt_s, cost.output_s)) for seed, work in draws.items()}
    if (slice_text := slice_warning(scenario, first, window_s)) is not None:
        warnings.append(slice_text)
    peaks = {seed: window_of(work, cuts[seed]) for seed, work in draws.items()}
    return Traffic(peaks, cuts[seeds[0]].peak_per_s, cuts[seeds[0]], first, tuple(warnings))


def _plannable(scenario: Scenario) -> Scenario:
    """The scenario without its horizon; refused where there is no `replicas` to search."""
    for key in ("fleet", "disaggregation"):
        if scenario.given.get(key) is not None:
            rule = "a plan searches the size of one group of equal replicas; leave it out and use --vary to compare"
            raise InvalidInput([Problem(key, rule)])
    return scenario


def _submitted(scenario: Scenario, workload: Workload) -> Workload:
    """The requests before the horizon: a plan runs to the end of what was submitted."""
    horizon_s = scenario.settings.horizon_s
    if horizon_s is None or workload.clients is not None:
        return workload
    kept = np.flatnonzero(workload.arrival_ns < round(horizon_s * NS_PER_S))
    if not len(kept):
        raise InvalidInput([Problem("horizon_s", "no request arrives before it", f"{horizon_s:g}")])
    return workload if len(kept) == len(workload) else rows(workload, kept)


def _are_fixed(draws: Sequence[Workload]) -> bool:
    columns = ("arrival_ns", "prompt_tokens", "output_tokens", "traffic_class")
    return all(np.array_equal(getattr(draws[0], name), getattr(other, name)) for other in draws[1:] for name in columns)


def _worst(floors: Sequence[tuple[Figure, ...]]) -> tuple[Figure, ...]:
    """Of several seeds' floors, for each target one that fails, else the first."""
    return tuple(next((figure for figure in same if not figure.passes), same[0]) for same in zip(*floors, strict=True))


def _floor_words(figure: Figure) -> str:
    name = figure_words(figure.name)
    if figure.name.rpartition(".")[2] == "attainment":
        most = f"at most {figure.value or 0:.4g} of the requests can meet their targets"
        return f"{name}: {most}, {figure.limit:g} are asked for"
    if figure.value is None:
        return f"{name}: requests that no replica can take are infinitely late"
    least, limit = duration(figure.value), duration(figure.limit)
    if least == limit:  # a narrow miss
        least, limit = f"{figure.value:.6g} ms", f"{figure.limit:g} ms"
    return f"{name}: at least {least} on an idle replica, {limit} asked for"


def _complete(found: Sized, fleet: Fleet, replicas: int) -> None:
    """The evidence around a plan: every seed of it and of one replica fewer, and the rates at which they break."""
    fleet.outcomes(replicas)
    if replicas > 1:
        fleet.outcomes(replicas - 1)
    if found.traffic is None or found.traffic.rate_per_s is None:
        return
    found.max_factor, failed = largest_factor(lambda factor: factor <= 1 or fleet.passes(replicas, factor))
    if failed is None:
        found.warnings.append(
            f"the plan holds {found.max_factor:g} times the rate and more: too few requests to find its limit"
        )
    if replicas > 1:
        start = min(1.0, found.max_factor * (replicas - 1) / replicas)
        lost = largest_factor(lambda factor: factor < 1 and fleet.passes(replicas - 1, factor), start=start)
        found.lost_factor = lost[0]


def _warnings(found: Sized) -> list[str]:
    assert found.fleet is not None
    said = []
    for goal in found.goals:
        fewest = min(int(goal.members(work).sum()) for work in found.fleet.workloads.values())
        if fewest < goal.samples_needed():
            name = figure_words(goal.figure_name(next(iter(goal.limits_ms))))
            said.append(f"{name} from {fewest:,} requests is not reliable: use at least {goal.samples_needed():,}")
    if found.replicas is not None and any(run.stable is False for run in found.outcomes):
        said.append("the targets are met although the queue still grows: use more requests, or a longer window")
    for size in [] if found.replicas is None else range(max(1, found.replicas - 1), found.replicas + 1):
        said += narrow(size, found.fleet.outcomes(size))
    return said


def evidence(found: Sized) -> list[dict[str, Any]]:
    """One entry a size tried, smallest first. A size that one seed has ruled out may not have met the others."""
    if found.fleet is None:
        return []
    entries = []
    for replicas in found.fleet.tried():
        known = found.fleet.known(replicas)
        entries.append({
            "replicas": replicas,
            "gpus": found.fleet.resolved(replicas).gpus,
            "passes": len(known) == len(found.fleet.seeds) and all(run.passes for run in known.values()),
            "seeds": list(known),
            "requests": [run.requests for run in known.values()],
            "targets": targets.to_dict([run.figures for run in known.values()]),
            "gpu_busy_fraction": float(np.mean([run.busy_fraction for run in known.values()])),
            "stable": [run.stable for run in known.values()],
        })  # fmt: skip
    return entries


def holding(found: Sized) -> tuple[str | None, list[Outcome]]:
    """(what binds, the runs that show it): of one replica fewer, else of the rate that breaks the plan."""
    if found.fleet is None or found.shown is None:
        return None, []
    if found.replicas is None:
        runs = found.outcomes
    elif found.replicas > 1:
        runs = found.fleet.outcomes(found.replicas - 1)
    else:
        runs = found.fleet.broken() or found.outcomes
    return binding(runs), runs


def to_dict(found: Sized) -> dict[str, Any]:
    """Everything about an option as plain values, under the names of `plan.json`."""
    traffic, work, resolved = found.traffic, found.work, found.resolved if found.fleet is not None else None
    rate = None if traffic is None else traffic.rate_per_s
    plan = found.replicas is not None
    what, runs = holding(found)
    outcomes = found.outcomes if found.fleet is not None else []
    busy = [run.busy_fraction for run in outcomes]
    bound = None if work is None else work.replicas()
    return {
        "status": found.status,
        "reason": found.reason or None,
        "point": found.point,
        "replicas": found.replicas,
        "gpus": resolved.gpus if plan and resolved is not None else None,
        "lower_bound_replicas": bound,
        "load_replicas": None if work is None else work.load,
        "utilisation": max(work.load.values()) / found.replicas if work and work.load and found.replicas else None,
        "gpu_busy_fraction": float(np.mean(busy)) if busy else None,
        "binding": what,
        "pressure": _mean_pressure(runs) if runs else None,
        "helps": helps(what, resolved) if what is not None and resolved is not None else None,
        "rate_per_s": rate,
        "max_rate_per_s": None if found.max_factor is None or rate is None else rate * found.max_factor,
        "headroom": None if found.max_factor is None else found.max_factor - 1,
        "one_replica_lost": _lost(found, rate),
        "cost_per_hour": found.cost_per_hour,
        "cost_per_million_output_tokens": found.cost_per_million("output"),
        "cost_per_million_total_tokens": found.cost_per_million("total"),
        "floor": {
            one.name: {"limit": one.limit, "value": one.value, "passes": one.passes} for one in found.floor
        },
        "targets": found.figures() if found.shown is not None else None,
        "kv_peak_fraction": max((run.kv_peak_fraction for run in outcomes), default=None),
        "preemptions": sum(run.preemptions for run in outcomes) if outcomes else None,
        "extrapolated": _extrapolated(found),
        "concurrency": concurrency(found),
        "traffic": over_time(found),
        "seeds": [] if found.fleet is None else found.fleet.seeds,
        "lengthened": [] if found.fleet is None else found.fleet.lengthened(),
        "evidence": evidence(found),
        "warnings": found.warnings,
        "scenario": found.scenario.to_dict(),
    }  # fmt: skip


def _mean_pressure(runs: Sequence[Outcome]) -> dict[str, float]:
    return {name: float(np.mean([run.pressure[name] for run in runs])) for name in bounds.RESOURCES}


def _lost(found: Sized, rate: float | None) -> dict[str, Any] | None:
    """What happens while one replica of the plan is out."""
    if found.fleet is None or found.replicas is None:
        return None
    if found.replicas == 1:
        return {"replicas": 0, "targets": None, "max_rate_per_s": 0.0}
    runs = found.fleet.outcomes(found.replicas - 1)
    held = None if rate is None or found.lost_factor is None else rate * found.lost_factor
    return {
        "replicas": found.replicas - 1,
        "targets": targets.to_dict([run.figures for run in runs]),
        "max_rate_per_s": held,
    }


def _extrapolated(found: Sized) -> float | None:
    shares = [run.extrapolated for run in found.outcomes] if found.fleet is not None else []
    known = [share for share in shares if share is not None]
    return max(known) if known else None


def concurrency(found: Sized) -> dict[str, Any] | None:
    """Room in a replica's KV pool and requests in the fleet: concurrency, both; neither is a rate."""
    if found.fleet is None or found.traffic is None:
        return None
    one, work = found.resolved, next(iter(found.fleet.workloads.values()))
    context = float((work.prompt_tokens + work.output_tokens / 2).mean())
    room = Room(one.capacity.tokens, one.max_model_len, context)
    stays = [run.mean_e2e_s for run in found.outcomes if run.mean_e2e_s is not None]
    result: dict[str, Any] = {"per_replica": room.to_dict(), "in_use": None}
    if found.replicas is not None and stays and found.traffic.rate_per_s is not None:
        size = one.capacity.bytes_per_token
        whole = None if size is None else size * one.gpus // found.replicas
        result["in_use"] = InUse(found.traffic.rate_per_s, float(np.mean(stays)), context, whole).to_dict()
    return result


def over_time(found: Sized) -> dict[str, Any] | None:
    """Rate by window, peak over mean, and replica-hours of the fixed fleet against one that follows the rate."""
    if found.traffic is None or found.traffic.windows is None:
        return None
    seen = found.traffic.windows
    result = seen.to_dict() | {"replica_hours_fixed": None, "replica_hours_ideal": None}
    if found.replicas is None or found.max_factor is None:
        return result
    each = seen.peak_per_s * found.max_factor / found.replicas
    wanted = [max(1, math.ceil(rate / each - 1e-9)) for rate in seen.rates_per_s.tolist()]
    hours = seen.seconds / 3600
    return result | {
        "capacity_per_replica_per_s": each,
        "replicas_ideal": wanted,
        "replica_hours_fixed": found.replicas * float(hours.sum()),
        "replica_hours_ideal": float(np.array(wanted) @ hours),
    }
