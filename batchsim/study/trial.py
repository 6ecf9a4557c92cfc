"""One size of a fleet tried on one seed's requests, and what of the run a plan keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.metrics import throughput
from batchsim.metrics.latency import completed, submitted
from batchsim.metrics.stable import stability
from batchsim.metrics.throughput import span_of
from batchsim.report.console import figure_words
from batchsim.scenario.resolve import Resolved, resolve
from batchsim.scenario.scenario import Scenario
from batchsim.simulation import Run, simulate
from batchsim.study.bounds import RESOURCES, budget_of, seats_of
from batchsim.study.noise import Longer
from batchsim.study.targets import Figure, Goal, figures_of
from batchsim.study.traffic import faster
from batchsim.workload.columns import Workload


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of one size says.

    pressure: share of the busy time in which requests waited for each resource (`RESOURCES`; compute: nothing else
    was short).
    """

    figures: tuple[Figure, ...]
    requests: int
    stable: bool | None
    seconds: float
    completed: int
    submitted: int
    input_tokens: int
    output_tokens: int
    busy_fraction: float
    kv_peak_fraction: float
    kv_mean_fraction: float
    mean_running: float
    mean_e2e_s: float | None
    preemptions: int
    extrapolated: float | None
    pressure: Mapping[str, float]

    @property
    def passes(self) -> bool:
        """Whether every target is met."""
        return all(figure.passes for figure in self.figures)

    @property
    def settled(self) -> bool:
        """Whether that is further from turning than the run's own noise reaches: one clear miss is enough."""
        missed = [figure for figure in self.figures if not figure.passes]
        return any(figure.settled for figure in missed) if missed else all(figure.settled for figure in self.figures)

    @property
    def tightness(self) -> float:
        """The largest figure over its limit; infinite where one is."""
        ratios = [figure.ratio for figure in self.figures]
        return max((float("inf") if ratio is None else ratio for ratio in ratios), default=0.0)


class Fleet:
    """One option of a plan: sizes of it are simulated when asked for, each size, rate and seed once.

    longer: where a seed's requests are continued from when they do not settle a verdict. From then on that seed's runs
    at the rate asked for are the longer ones, at every size; runs at other rates stay with the requests given.
    """

    def __init__(
        self, scenario: Scenario, goals: Sequence[Goal], workloads: Mapping[int, Workload], longer: Longer | None = None
    ) -> None:
        self.scenario = scenario
        self.goals = tuple(goals)
        self.workloads = dict(workloads)  # by seed
        self.runs = 0
        self._given = dict(workloads)
        self._longer = longer
        self._times = dict.fromkeys(workloads, 1)
        self._sizes: dict[int, Resolved] = {}
        self._known: dict[tuple[int, float, int], Outcome] = {}

    @property
    def seeds(self) -> list[int]:
        """The seeds, the same for every size."""
        return list(self.workloads)

    def resolved(self, replicas: int) -> Resolved:
        """The parts of a run of that many replicas. Raises `DoesNotFit`."""
        if replicas not in self._sizes:
            self._sizes[replicas] = resolve(self.scenario.replace({"replicas": replicas}))
        return self._sizes[replicas]

    def outcome(self, replicas: int, seed: int, factor: float = 1.0) -> Outcome:
        """What happens with that many replicas when requests come `factor` times as fast."""
        key = (replicas, factor, seed)
        workload = self.workloads[seed] if factor == 1 else faster(self._given[seed], factor)
        if key not in self._known or self._known[key].requests != len(workload):
            self.runs += 1
            self._known[key] = outcome_of(simulate(self.resolved(replicas), workload=workload), self.goals)
        return self._known[key]

    def outcomes(self, replicas: int, factor: float = 1.0) -> list[Outcome]:
        """One a seed."""
        return [self.outcome(replicas, seed, factor) for seed in self.seeds]

    def passes(self, replicas: int, factor: float = 1.0) -> bool:
        """Whether every seed meets every target; the first that does not ends the search, so the tightest go first."""
        return all(self._judged(replicas, seed, factor).passes for seed in self._tightest_first(replicas))

    def _judged(self, replicas: int, seed: int, factor: float) -> Outcome:
        """The run of a seed; at the rate asked for on as many more requests as settle it, as far as there are."""
        found = self.outcome(replicas, seed, factor)
        while factor == 1 and not found.settled and self._lengthen(seed):
            found = self.outcome(replicas, seed)
        return found

    def _lengthen(self, seed: int) -> bool:
        """Twice the requests of a seed, if there are."""
        more = None if self._longer is None else self._longer(seed, 2 * self._times[seed])
        if more is None:
            return False
        self._times[seed] *= 2
        self.workloads[seed] = more
        return True

    def _tightest_first(self, replicas: int) -> list[int]:
        """The seeds, those furthest above their limits at the rate asked for in front, as far as they were run."""
        known = self.known(replicas)
        return sorted(self.seeds, key=lambda seed: -known[seed].tightness if seed in known else 0.0)

    def known(self, replicas: int) -> dict[int, Outcome]:
        """The runs of a size at the rate asked for, by seed."""
        return {seed: self._known[replicas, 1.0, seed] for seed in self.seeds if (replicas, 1.0, seed) in self._known}

    def lengthened(self) -> list[int]:
        """The seeds whose requests did not do and were continued."""
        return [seed for seed in self.seeds if self._times[seed] > 1]

    def broken(self) -> list[Outcome]:
        """The runs at a higher rate than asked for that miss a target."""
        return [run for (_, factor, _), run in self._known.items() if factor > 1 and not run.passes]

    def tried(self) -> list[int]:
        """Sizes that were simulated at the rate asked for, smallest first."""
        return sorted({replicas for replicas, factor, _ in self._known if factor == 1.0})


def outcome_of(run: Run, goals: Sequence[Goal]) -> Outcome:
    """What a plan keeps of a run."""
    records, requests = run.records, run.records.requests
    span = span_of(records)
    done = completed(requests)
    stay = requests.finished_ns[done] - requests.arrival_ns[done]
    return Outcome(
        figures=figures_of(records, goals),
        requests=len(records.workload),
        stable=stability(records).stable,
        seconds=span.ns / 1e9,
        completed=int(done.sum()),
        submitted=int(submitted(requests).sum()),
        input_tokens=throughput.input_tokens(records),
        output_tokens=int(requests.emitted_tokens.sum()),
        busy_fraction=throughput.gpu_busy_fraction(records, span) or 0.0,
        kv_peak_fraction=throughput.kv_peak_fraction(records) or 0.0,
        kv_mean_fraction=throughput.kv_mean_fraction(records, span) or 0.0,
        mean_running=throughput.mean_running(records, span) or 0.0,
        mean_e2e_s=float(stay.mean()) / 1e9 if len(stay) else None,
        preemptions=int(requests.preemptions.sum()),
        extrapolated=run.extrapolated(),
        pressure=pressure(run),
    )


def pressure(run: Run) -> dict[str, float]:
    """Share of the busy time that each resource held requests back, by the state that steps leave.

    seats: all taken, so that whoever comes has to wait.  kv: someone waits, or was evicted, for want of blocks.
    token_budget: a step as large as the budget allows.  compute: the rest of the busy time.
    """
    rows, seats, budget = run.records.iterations, seats_of(run.resolved), budget_of(run.resolved)
    took = (rows.end_ns - rows.start_ns).astype(np.float64)
    total = float(took.sum())
    if total <= 0:
        return dict.fromkeys(RESOURCES, 0.0)
    waits = rows.waiting > 0
    full = rows.running >= seats if seats is not None else np.zeros(len(rows), bool)
    tokens = rows.prefill_tokens + rows.decode_seqs
    spent = (tokens >= budget) & ~full if budget is not None else np.zeros(len(rows), bool)
    short = (rows.preempted > 0) | (waits & (rows.kv_blocks_used >= 0.9 * run.records.kv_blocks_total))
    short = short & ~full & ~spent

    def share(mask: NDArray[np.bool_]) -> float:
        return float(took[mask].sum()) / total

    found = {"kv": share(short), "token_budget": share(spent), "seats": share(full)}
    return {"compute": max(0.0, 1.0 - sum(found.values()))} | found


def binding(outcomes: Sequence[Outcome]) -> str:
    """What holds a fleet back: seats, KV memory or the token budget where one of them did for a quarter of the busy
    time or more, else compute."""
    mean = {name: float(np.mean([outcome.pressure[name] for outcome in outcomes])) for name in RESOURCES}
    tight = max(("kv", "token_budget", "seats"), key=lambda name: mean[name])
    return tight if mean[tight] >= 0.25 else "compute"


def helps(name: str, resolved: Resolved) -> str:
    """What would help most, in one sentence."""
    seats, budget = seats_of(resolved), budget_of(resolved)
    said: dict[str, Any] = {
        "compute": "steps themselves take the time: a faster GPU, tensor_parallel, a smaller dtype, or more replicas",
        "kv": f"the KV pool of {resolved.capacity.tokens:,} tokens is full: more memory, fp8 KV or tensor_parallel",
        "token_budget": f"steps fill their budget of {budget:,} tokens: raise it, if the gaps between tokens allow it"
        if budget is not None
        else "",
        "seats": f"all {seats:,} seats are taken: raise the scheduler's limit, if the gaps between tokens allow it"
        if seats is not None
        else "",
    }
    return str(said[name])


def narrow(replicas: int, outcomes: Sequence[Outcome]) -> list[str]:
    """A sentence where more requests could turn what these runs of a size, one a seed, say; else none."""
    missed = [run for run in outcomes if not run.passes]
    if any(run.settled for run in missed) or all(run.settled for run in outcomes):
        return []
    close = [one for run in missed or outcomes for one in run.figures if not one.settled and one.passes != bool(missed)]
    names = list(dict.fromkeys(figure_words(one.name) for one in close))
    many = max(run.requests for run in outcomes)
    verb = ("miss" if missed else "meet") + ("" if len(names) > 1 else "es" if missed else "s")
    whose = "its target" if len(names) == 1 else "their targets"
    return [
        f"{replicas:,} replica{'s' * (replicas != 1)}: {' and '.join(names)} {verb} {whose} by less than the noise of "
        f"{many:,} requests: others of the same kind could turn the answer"
    ]
