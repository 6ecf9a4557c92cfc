"""Targets: which requests met theirs, goodput and attainment.

Equality passes, a TPOT or ITL target is vacuous for a one-token answer, a request is good when it meets all its targets
together, and what was submitted but not completed met none. Latencies count from the arrival at the server, not from a
capped client's schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchsim.metrics.latency import NS_PER_MS, completed, e2e_ns, submitted, ttft_ns
from batchsim.metrics.ticks import max_itl_ns
from batchsim.records import Records

Bools = NDArray[np.bool_]
TARGETS = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets of one class of traffic, ms; None: no target. `itl_ms` bounds the longest gap of a request."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None

    def targets(self) -> dict[str, float]:
        """The targets that are set, by name."""
        return {name: value for name in TARGETS if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Per request: whether its class has targets, whether it met all, and for each target who has it and who met it."""

    judged: Bools  # submitted, of a class with targets
    good: Bools
    targets: dict[str, tuple[Bools, Bools]]

    def attainment(self, members: Bools | None = None) -> float | None:
        """Good over submitted of the classes that have targets; None without any."""
        judged = self.judged if members is None else self.judged & members
        total = int(judged.sum())
        return int((self.good & judged).sum()) / total if total else None

    def attainment_by_target(self, members: Bools | None = None) -> dict[str, float | None]:
        """Each target alone: met over submitted of the classes that have it."""
        result: dict[str, float | None] = {}
        for name, (has, met) in self.targets.items():
            mine = has if members is None else has & members
            result[name] = int((met & mine).sum()) / int(mine.sum()) if mine.any() else None
        return result


def judge(records: Records, slo: Mapping[str, Slo]) -> Verdict:
    """Holds every request to its class's targets; `slo` is by class name, a class left out has none."""
    workload, requests = records.workload, records.requests
    sent, done = submitted(requests), completed(requests)
    if not any(slo.get(name, Slo()).targets() for name in workload.classes):
        nobody = np.zeros(len(requests), dtype=bool)
        return Verdict(nobody, nobody, {})
    good, judged = done.copy(), np.zeros(len(requests), dtype=bool)
    targets: dict[str, tuple[Bools, Bools]] = {}
    for target in TARGETS:
        limits = [getattr(slo.get(name, Slo()), target) for name in workload.classes]
        if all(limit is None for limit in limits):
            continue
        has = np.array([limit is not None for limit in limits])[workload.traffic_class] & sent
        limit_ns = np.array([0 if limit is None else round(limit * NS_PER_MS) for limit in limits])
        met = done & _meets(records, target, limit_ns[workload.traffic_class])
        targets[target] = (has, met & has)
        judged |= has
        good &= met | ~has
    return Verdict(judged, good & judged, targets)


def _meets(records: Records, target: str, limit_ns: NDArray[np.int64]) -> Bools:
    """Whether completed requests are within a target, compared in whole nanoseconds (other entries mean nothing)."""
    requests = records.requests
    if target == "ttft_ms":
        return np.asarray(ttft_ns(requests) <= limit_ns)
    if target == "e2e_ms":
        return np.asarray(e2e_ns(requests) <= limit_ns)
    if target == "itl_ms":
        return np.asarray(max_itl_ns(records) <= limit_ns)
    gaps = requests.emitted_tokens - 1
    return np.asarray((gaps <= 0) | (requests.finished_ns - requests.first_token_ns <= limit_ns * gaps))
