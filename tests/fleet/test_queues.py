"""Fleets with known answers: M/M/c and M/D/c behind a central queue, and routers in the order that theory gives."""

from __future__ import annotations

import json
from heapq import heapreplace
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from batchsim.records import Requests
from batchsim.scenario import scenario
from batchsim.simulation import simulate
from tests.fleet.fleets import base

STEP_MS = 1
"""Time of a step, so that a request of n tokens is served for n ms, alone in the only seat of its replica."""

MEAN_TOKENS = 1000
"""Mean service is 1 s."""


def served(rate_per_s: float, servers: int, router: str, seed: int, requests: int, output: dict[str, Any]) -> Requests:
    """The requests of a run with one seat a replica."""
    given = base(
        seed=seed,
        replicas=servers,
        router={"kind": router},
        cost_model={"kind": "linear", "base_ms": STEP_MS},
        scheduler={"kind": "vllm", "max_num_seqs": 1, "enable_prefix_caching": False},
        workload={
            "requests": requests,
            "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s},
            "prompt_tokens": {"kind": "fixed", "tokens": 1},
            "output_tokens": output,
        },
    )
    return simulate(scenario(given)).records.requests


def mean_wait_s(requests: Requests) -> float:
    """Mean time before the first step, after the first tenth of the run."""
    wait_ns = requests.admitted_ns - requests.arrival_ns
    return float(wait_ns[len(wait_ns) // 10 :].mean()) / 1e9


def mmc_wait(rate: float, servers: int) -> float:
    """Mean wait of M/M/c with mean service 1 (Erlang C)."""
    load = rate / servers
    waits = rate**servers / factorial(servers) / (1 - load)
    return waits / (sum(rate**k / factorial(k) for k in range(servers)) + waits) / (servers - rate)


def mdc_wait(rate: float, servers: int, states: int = 600) -> float:
    """Mean wait of M/D/c with service 1: who is here a service time later is who had no server, and who arrived."""
    here = np.arange(states)
    chain = np.zeros((states, states))
    for n in here:
        left = max(n - servers, 0)
        chain[n, left:] = stats.poisson.pmf(here[: states - left], rate)
        chain[n, -1] += 1 - chain[n].sum()
    balance = chain.T - np.eye(states)
    balance[-1] = 1
    share = np.linalg.solve(balance, np.eye(states)[-1])
    return float(share @ here - rate) / rate


EXPONENTIAL = {"kind": "geometric", "mean": MEAN_TOKENS}
CONSTANT = {"kind": "fixed", "tokens": MEAN_TOKENS}
QUEUES = {"M/M/c": (EXPONENTIAL, mmc_wait), "M/D/c": (CONSTANT, mdc_wait)}


@pytest.mark.parametrize(("rate", "servers"), [(1.6, 2), (3.2, 4), pytest.param(7.2, 8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("queue", QUEUES)
def test_central_queue_is_one_queue_before_many_servers(queue: str, rate: float, servers: int) -> None:
    """The mean wait behind a central queue is that of the formula, within a 99 % interval from 8 replications."""
    output, formula = QUEUES[queue]
    waits = [mean_wait_s(served(rate, servers, "central_queue", seed, 6000, output)) for seed in range(8)]
    half = stats.t.ppf(0.995, len(waits) - 1) * np.std(waits, ddof=1) / len(waits) ** 0.5
    expected = formula(rate, servers)
    assert abs(np.mean(waits) - expected) <= half, f"{np.mean(waits):.4f} ± {half:.4f} s, theory {expected:.4f} s"
    assert half < 0.3 * expected, "too wide to tell anything"


@pytest.mark.parametrize("servers", [2, 8])
def test_central_queue_is_kiefer_and_wolfowitz_s_recursion(servers: int) -> None:
    """To the nanosecond: each request starts when it has come and the first of the servers is free."""
    requests = served(0.9 * servers, servers, "central_queue", 5, 4000, EXPONENTIAL)
    free_ns = [0] * servers
    for arrival_ns, tokens, admitted_ns in zip(
        requests.arrival_ns.tolist(), requests.output_tokens.tolist(), requests.admitted_ns.tolist(), strict=True
    ):
        start_ns = max(arrival_ns, free_ns[0])
        assert admitted_ns == start_ns
        heapreplace(free_ns, start_ns + tokens * STEP_MS * 1_000_000)


def test_formulas_are_the_shared_ones(data: Path) -> None:
    """Erlang's C as computed here gives the waits of the shared oracle."""
    shared = json.loads((data / "queueing" / "oracles.json").read_text())["mmc"]
    for key, answer in shared.items():
        values = dict(part.split("=") for part in key.split(","))
        assert mmc_wait(float(values["lam"]), int(values["c"])) == pytest.approx(answer["Wq"])


def test_round_robin_is_a_central_queue_for_constant_service() -> None:
    """With constant service, taking turns serves everybody at the very instant at which one queue would."""
    turns = served(3.2, 4, "round_robin", 3, 3000, CONSTANT)
    central = served(3.2, 4, "central_queue", 3, 3000, CONSTANT)
    assert np.array_equal(turns.admitted_ns, central.admitted_ns)
    assert np.array_equal(turns.finished_ns, central.finished_ns)
    assert len(np.unique(turns.admitted_ns - turns.arrival_ns)) > 1000


def test_routers_stand_in_the_order_of_theory() -> None:
    """Exponential service at load 0.8 on 8 servers: central < least requests < power of two < round robin < random."""
    order = ("central_queue", "least_requests", "power_of_two", "round_robin", "random")
    waits = [
        np.mean([mean_wait_s(served(6.4, 8, router, seed, 3000, EXPONENTIAL)) for seed in range(3)]) for router in order
    ]
    assert waits == sorted(waits), dict(zip(order, waits, strict=True))
    assert waits[2] < 0.5 * waits[4], "two choices are far better than one"
