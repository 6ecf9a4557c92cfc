"""What a plan's answer hangs on: its latency at other rates and sizes, and under other lengths, burstiness, prefix
hits and step times.

An error of the cost model needs no runs of its own: steps that take (1 + e) times as long, under the same arrivals, are
the same schedule as today's steps under arrivals (1 + e) times as fast, on a clock that runs (1 + e) times as slow. So
a latency at rate r becomes (1 + e) times the one at rate (1 + e) r. (Times that a scheduler waits by the clock, such as
a batching delay, are taken to stretch too.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchsim.scenario.scenario import Scenario
from batchsim.study.sized import Sized
from batchsim.study.targets import Figure
from batchsim.study.traffic import faster
from batchsim.study.trial import Fleet, outcome_of
from batchsim.workload.columns import Prefixes, Workload

ERROR = 0.10
"""Of step times, where the cost model does not say how well it is known."""
CHANGE = 0.2
"""Of lengths."""
GROUP = 4
"""Requests that come together in the burstier variant."""
SHARED = 0.5
"""Of the mean prompt, shared by all prompts in the variant with prefix hits."""
POINTS = 8
MORE = 3
"""Replicas more than the plan that are tried for a variant that breaks it."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A size's figures by offered rate. figures: by target, one value a rate, None where infinitely late."""

    replicas: int
    rates_per_s: list[float]
    figures: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class Variant:
    """The plan's fleet under something else than was assumed. needs: replicas that hold it, None: more than tried."""

    name: str
    figures: tuple[Figure, ...]
    needs: int | None

    @property
    def passes(self) -> bool:
        """Whether the plan's own size meets the targets."""
        return all(figure.passes for figure in self.figures)


def error_of(found: Sized) -> tuple[float, bool]:
    """(relative error of step times, whether the cost model itself states it)."""
    known = found.resolved.cost.describe().get("mape_percent")
    return (ERROR, False) if known is None else (float(known) / 100, True)


def sizes_of(found: Sized) -> list[int]:
    """Sizes worth a curve: the plan's, one more, and up to two fewer."""
    shown = found.shown or 1
    return sorted({max(1, shown - 2), max(1, shown - 1), shown, shown + 1})


def curves(found: Sized) -> list[Curve]:
    """Latency against offered rate for the sizes around the plan, on the first seed's requests; [] without a rate."""
    if found.fleet is None or found.traffic is None or found.traffic.rate_per_s is None or found.shown is None:
        return []
    seed, rate = found.fleet.seeds[0], found.traffic.rate_per_s
    broken = (found.max_factor or 1.0) / found.shown
    factors = np.geomspace(0.25, 1.15 * max(1.0, broken * (found.shown + 1)), POINTS)
    factors[np.argmin(np.abs(factors - 1.0))] = 1.0
    return [_curve(found.fleet, size, seed, rate, sorted(set(factors.tolist()))) for size in sizes_of(found)]


def _curve(fleet: Fleet, size: int, seed: int, rate: float, factors: list[float]) -> Curve:
    rates: list[float] = []
    values: dict[str, list[float | None]] = {}
    for factor in factors:
        figures = fleet.outcome(size, seed, factor).figures
        rates.append(rate * factor)
        for figure in figures:
            values.setdefault(figure.name, []).append(figure.value)
        if all(figure.ratio is None or figure.ratio > 30 for figure in figures):
            break  # far beyond every target: the rest of the curve says nothing more
    return Curve(size, rates, values)


def slowed(curve: Curve, name: str, error: float) -> tuple[list[float], list[float]]:
    """(rates, a latency target's values) of a curve, had every step taken (1 + error) times as long."""
    known = [(rate, value) for rate, value in zip(curve.rates_per_s, curve.figures[name], strict=True) if value]
    return [rate / (1 + error) for rate, _ in known], [value * (1 + error) for _, value in known]


def variants(found: Sized) -> list[Variant]:
    """The plan's fleet under other traffic and other step times, on every seed; [] without a plan."""
    if found.fleet is None or found.traffic is None or found.replicas is None:
        return []
    made = [
        _tried(found, name, found.scenario, {seed: change(work) for seed, work in found.fleet.workloads.items()})
        for name, change in _changes(found).items()
    ]
    made += _prefix_variants(found)
    error, _ = error_of(found)
    made += [
        _stretched(found, f"steps {100 * error:.3g} % {word}", factor)
        for word, factor in (("slower", 1 + error), ("faster", 1 - error))
    ]
    return made


def _changes(found: Sized) -> Mapping[str, Any]:
    longer, shorter, percent = 1 + CHANGE, 1 - CHANGE, f"{100 * CHANGE:.0f} %"
    changes = {
        f"prompts {percent} longer": lambda work: _lengths(found, work, longer, 1.0),
        f"prompts {percent} shorter": lambda work: _lengths(found, work, shorter, 1.0),
        f"answers {percent} longer": lambda work: _lengths(found, work, 1.0, longer),
        f"answers {percent} shorter": lambda work: _lengths(found, work, 1.0, shorter),
    }
    traffic = found.traffic
    if traffic is not None and traffic.rate_per_s is not None:
        changes[f"burstier: requests in groups of {GROUP}"] = in_groups
        changes[f"{percent} more requests"] = lambda work: faster(work, longer)
    return changes


def _lengths(found: Sized, work: Workload, prompt: float, output: float) -> Workload:
    """The same requests with other lengths, within the model's context and their own limits."""
    longest = found.resolved.max_model_len
    prompts = np.maximum(np.rint(work.prompt_tokens * prompt).astype(np.int64), 1)
    outputs = np.maximum(np.rint(work.output_tokens * output).astype(np.int64), 1)
    prompts = np.minimum(prompts, np.maximum(longest - work.output_tokens, work.prompt_tokens))
    outputs = np.minimum(outputs, np.maximum(longest - prompts, work.output_tokens))
    limits = np.where(work.max_tokens >= 0, np.maximum(work.max_tokens, outputs), work.max_tokens)
    return replace(work, prompt_tokens=prompts, output_tokens=outputs, max_tokens=limits)


def in_groups(work: Workload) -> Workload:
    """The same requests at the same rate, `GROUP` at a time: each waits for the last of its group to come."""
    order = np.argsort(work.arrival_ns, kind="stable")
    arrivals = work.arrival_ns.copy()
    last = np.minimum((np.arange(len(order)) // GROUP + 1) * GROUP, len(order)) - 1
    arrivals[order] = work.arrival_ns[order][last]
    return replace(work, arrival_ns=arrivals)


def _prefix_variants(found: Sized) -> list[Variant]:
    """Without the prefix hits that the traffic has; with some where it has none and the scheduler can cache."""
    assert found.fleet is not None
    workloads = found.fleet.workloads
    if any(work.prefixes is not None for work in workloads.values()):
        cut = {seed: replace(work, prefixes=None) for seed, work in workloads.items()}
        return [_tried(found, "no prefix hits", found.scenario, cut)]
    if found.scenario.kind("scheduler") != "vllm":
        return []
    caching = found.scenario.replace({"scheduler.enable_prefix_caching": True})
    shared = {seed: _sharing(work) for seed, work in workloads.items()}
    tokens = round(SHARED * float(next(iter(workloads.values())).prompt_tokens.mean()))
    return [_tried(found, f"prefix cache, first {tokens:,} prompt tokens shared", caching, shared)]


def _sharing(work: Workload) -> Workload:
    """The same prompts beginning with the same tokens, as far as they are long enough."""
    tokens = round(SHARED * float(work.prompt_tokens.mean()))
    count = len(work)
    taken = np.minimum(work.prompt_tokens, max(tokens, 1))
    return replace(work, prefixes=Prefixes(np.arange(count + 1), np.zeros(count, np.int64), taken))


def _tried(found: Sized, name: str, scenario: Scenario, workloads: Mapping[int, Workload]) -> Variant:
    assert found.replicas is not None
    fleet = Fleet(scenario, found.goals, workloads)
    figures = _worst([run.figures for run in fleet.outcomes(found.replicas)])
    needs: int | None = found.replicas
    if not all(figure.passes for figure in figures):
        more = range(found.replicas + 1, found.replicas + 1 + MORE)
        needs = next((size for size in more if fleet.passes(size)), None)
    return Variant(name, figures, needs)


def _stretched(found: Sized, name: str, stretch: float) -> Variant:
    """The plan under steps that take `stretch` times as long, by the clock's rule (see above)."""
    assert found.fleet is not None
    assert found.replicas is not None
    goals = tuple(
        replace(goal, limits_ms={target: limit / stretch for target, limit in goal.limits_ms.items()})
        for goal in found.goals
    )

    def figures(size: int) -> tuple[Figure, ...]:
        assert found.fleet is not None
        runs = [_run(found.fleet, size, seed, stretch, goals) for seed in found.fleet.seeds]
        return tuple(_real(figure, stretch) for figure in _worst(runs))

    at_plan = figures(found.replicas)
    needs: int | None = found.replicas
    if not all(figure.passes for figure in at_plan):
        more = range(found.replicas + 1, found.replicas + 1 + MORE)
        needs = next((size for size in more if all(figure.passes for figure in figures(size))), None)
    return Variant(name, at_plan, needs)


def _run(fleet: Fleet, size: int, seed: int, stretch: float, goals: Any) -> tuple[Figure, ...]:
    from batchsim.simulation import simulate

    work = faster(fleet.workloads[seed], stretch)
    return outcome_of(simulate(fleet.resolved(size), workload=work), goals).figures


def _real(figure: Figure, stretch: float) -> Figure:
    """A figure of the stretched clock on the real one; shares stay."""
    if figure.name.rpartition(".")[2] == "attainment":
        return figure
    value = None if figure.value is None else figure.value * stretch
    return replace(figure, value=value, limit=figure.limit * stretch)


def _worst(runs: list[tuple[Figure, ...]]) -> tuple[Figure, ...]:
    """Each target's figure on the seed where it is worst."""
    return tuple(
        max(same, key=lambda figure: (not figure.passes, float("inf") if figure.ratio is None else figure.ratio))
        for same in zip(*runs, strict=True)
    )
