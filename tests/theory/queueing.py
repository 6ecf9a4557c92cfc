"""Queueing formulas, a batch queue solved numerically, and intervals from replications."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from batchsim.scenario import scenario
from batchsim.simulation import Run, simulate

FLAT_MS = 10
"""Time of a step in these runs, whatever the batch: a request of n tokens is served for 10 n ms."""


def mg1_wait(rate: float, mean: float, second_moment: float) -> float:
    """Mean wait of M/G/1 (Pollaczek and Khinchine), in the unit of `mean`."""
    return rate * second_moment / (2 * (1 - rate * mean))


def batch_latency(rate: float, service: Callable[[int], float], most: int, least: int = 1, states: int = 400) -> float:
    """Mean latency of a queue served in batches of `least` to `most`, Poisson arrivals, times fixed by batch size.

    The chain of queue lengths at ends of service, solved directly; the latency by Little's law over a cycle.
    """
    taken = [min(max(q, least), most) for q in range(states)]
    left = [max(q - b, 0) for q, b in zip(range(states), taken, strict=True)]
    counts = np.arange(states)
    chain = np.zeros((states, states))
    for q, (b, rest) in enumerate(zip(taken, left, strict=True)):
        chain[q, rest:] = stats.poisson.pmf(counts[: states - rest], rate * service(b))
        chain[q, -1] += 1 - chain[q].sum()
    balance = chain.T - np.eye(states)
    balance[-1] = 1
    share = np.linalg.solve(balance, np.eye(states)[-1])
    length = present = 0.0
    for q, b in enumerate(taken):
        time = service(b)
        missing = range(q, least)
        length += share[q] * (len(missing) / rate + time)
        present += share[q] * (sum(missing) / rate + max(q, least) * time + rate * time * time / 2)
    return present / length / rate


def inoue(rate: float, per_member: float, fixed: float) -> float:
    """Inoue's bound on the mean latency of dynamic batching without a limit, service fixed + per_member * batch."""
    load = rate * per_member
    low = (per_member + fixed) / (2 * (1 - load)) * (1 + 2 * rate * fixed + (1 - rate * fixed) / (1 + load))
    high = 1.5 * fixed / (1 - load) + per_member / 2 * (load + 2) / (1 - load * load)
    return min(low, high)


class Interval(NamedTuple):
    """A 99 % confidence interval of a mean over independent replications."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, float) and self.low <= value <= self.high


def interval(values: Iterable[float]) -> Interval:
    """Student's 99 % interval."""
    sample = np.array(list(values))
    half = float(stats.t.ppf(0.995, len(sample) - 1) * sample.std(ddof=1) / math.sqrt(len(sample)))
    return Interval(float(sample.mean()) - half, float(sample.mean()) + half)


def served(rate_per_s: float, count: int, seed: int, output: dict[str, Any], **changes: Any) -> Run:
    """A run with Poisson arrivals and one-token prompts, a server of one seat with 10 ms a token unless changed."""
    given: dict[str, Any] = {
        "seed": seed,
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "cost_model": {"kind": "linear", "base_ms": FLAT_MS},
        "kv_cache": {"block_size": 16, "num_blocks": 1_000_000},
        "scheduler": {"kind": "vllm", "max_num_seqs": 1, "enable_prefix_caching": False, "async_scheduling": False},
        "workload": {
            "requests": count,
            "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s},
            "prompt_tokens": {"kind": "fixed", "tokens": 1},
            "output_tokens": output,
        },
    }
    return simulate(scenario(given | changes))


def mean_wait_s(run: Run, cut: float = 0.1) -> float:
    """Mean time from arrival to admission, seconds, the first tenth of the requests left out."""
    requests = run.records.requests
    waits = (requests.admitted_ns - requests.arrival_ns)[int(len(requests) * cut) :]
    return float(waits.mean()) / 1e9


def mean_latency_s(run: Run, cut: float = 0.1) -> float:
    """Mean time from arrival to the last token, seconds, the first tenth of the requests left out."""
    requests = run.records.requests
    stays = (requests.finished_ns - requests.arrival_ns)[int(len(requests) * cut) :]
    return float(stays.mean()) / 1e9
