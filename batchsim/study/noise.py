"""Whether a run is long enough for its verdict: a tail read from few requests is a draw of its own.

A percentile meets its limit when the share of late requests is at most what the percentile leaves. That share is a mean,
so its standard error follows from means of consecutive batches of the requests, which keep the queue's memory inside
them; it is never taken to be below that of independent requests. A verdict is settled when the share lies more than
`ERRORS` standard errors from what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from batchsim.scenario.scenario import Scenario
from batchsim.study.work import drawn
from batchsim.workload.arrivals import Closed, Constant, Gamma, Poisson, endless_rate
from batchsim.workload.columns import Workload
from batchsim.workload.description import Drawn, Mix

BATCHES = 20
ERRORS = 2.0
TIMES = 8
"""So many times the scenario's requests are drawn at most to settle a verdict."""
MOST_REQUESTS = 400_000
"""Runs are not made longer than this for it."""

Longer = Callable[[int, int], Workload | None]
"""(seed, times) -> so many times the requests of a seed, in the same traffic; None where there are no more."""


def settled(late: NDArray[np.bool_], allowed: float) -> bool:
    """Whether the share of late requests, in their order, is further from the share allowed than its noise reaches."""
    count = len(late)
    if not count or allowed <= 0:
        return True
    distance = abs(float(late.mean()) - allowed)
    error = np.sqrt(allowed * (1 - allowed) / count)
    if count >= 2 * BATCHES:
        means = late[: count // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
        error = max(error, float(means.std(ddof=1)) / np.sqrt(BATCHES))
    return bool(distance > ERRORS * error)


def longer(scenario: Scenario, times: int) -> Longer | None:
    """Where more requests of the same traffic come from, up to `times` as many; None for a trace, a list, a burst, rates
    that vary, and behind a horizon: those are what they are."""
    workload = scenario.workload
    if times <= 1 or scenario.settings.horizon_s is not None or not isinstance(workload, Drawn | Mix):
        return None
    if not isinstance(workload.arrivals, Poisson | Gamma | Constant | Closed) or endless_rate(workload.arrivals):
        return None
    key = "requests" if workload.requests is not None else "duration_s"
    base = getattr(workload, key)
    count = base if key == "requests" else base * getattr(workload.arrivals, "rate_per_s", 0.0)

    def more(seed: int, asked: int) -> Workload | None:
        if asked > times or asked * count > MOST_REQUESTS:
            return None
        return drawn(scenario.replace({"seed": seed, f"workload.{key}": base * asked}))

    return more
