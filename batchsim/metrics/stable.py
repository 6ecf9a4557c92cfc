"""Does the queue keep up? The slope of the backlog over the arrivals, against the offered rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchsim.metrics.latency import NS_PER_S, submitted
from batchsim.records import NEVER, Records, Status
from batchsim.workload.columns import ABSENT

CUT = 0.1
"""Share of the arrivals that is left out at the start: an empty system always fills first."""
LIMIT = 0.02
"""Slope of the backlog, as a share of the offered rate, from which a queue counts as growing."""
FEWEST = 10
"""With fewer arrivals than this the slope says nothing."""


@dataclass(frozen=True, slots=True)
class Stability:
    """Rates in requests per second while requests arrived; None where they mean nothing (burst, closed loop)."""

    stable: bool | None
    offered_per_s: float | None
    served_per_s: float | None


def stability(records: Records) -> Stability:
    """`stable` is false when the backlog's slope, the first 10 % of arrivals cut, exceeds 2 % of the offered rate."""
    requests, workload = records.requests, records.workload
    sent = submitted(requests)
    arrivals = np.sort(requests.arrival_ns[sent], kind="stable")
    if not workload.open_loop or workload.clients is not None or len(arrivals) < FEWEST or arrivals[0] == arrivals[-1]:
        return Stability(None, None, None)
    period_s = float(arrivals[-1] - arrivals[0]) / NS_PER_S
    offered = (len(arrivals) - 1) / period_s
    left = requests.finished_ns.copy()
    cancelled = (requests.status == Status.CANCELLED) & (left == NEVER) & (workload.cancel_ns != ABSENT)
    left[cancelled] = (requests.arrival_ns + workload.cancel_ns)[cancelled]
    queued = sent & (requests.status != Status.REJECTED)
    departures = np.sort(left[queued & (left != NEVER)])
    ended = np.sort(requests.finished_ns[requests.status == Status.COMPLETED])
    served = int(np.searchsorted(ended, arrivals[-1], side="right")) / period_s
    came = np.sort(requests.arrival_ns[queued])
    seen = came[int(len(came) * CUT) :]
    if len(seen) < 2 or seen[0] == seen[-1]:
        return Stability(None, offered, served)
    backlog = np.searchsorted(came, seen, side="right") - np.searchsorted(departures, seen, side="right")
    time_s = (seen - seen[0]) / NS_PER_S
    away = time_s - time_s.mean()
    slope = float((away * (backlog - backlog.mean())).sum() / (away**2).sum())
    return Stability(slope <= LIMIT * offered, offered, served)
