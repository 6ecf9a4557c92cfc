"""Queues with known answers: waits, batch service and bounds, inside 99 % intervals from replications."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.theory.queueing import (
    Interval,
    batch_latency,
    inoue,
    interval,
    mean_latency_s,
    mean_wait_s,
    mg1_wait,
    served,
)

LOADS = (0.5, 0.8, 0.9)
REQUESTS = {0.5: 3000, 0.8: 6000, 0.9: 10000}
"""Long enough that the empty start does not show beside the interval."""

# output lengths with mean 100 tokens, so 1 s of service, and the mean of the square of the service time
CONSTANT: tuple[dict[str, Any], float] = ({"kind": "fixed", "tokens": 100}, 1.0)
GEOMETRIC: tuple[dict[str, Any], float] = ({"kind": "geometric", "mean": 100}, (2 - 0.01) / 0.01**2 / 100**2)
UNIFORM: tuple[dict[str, Any], float] = (
    {"kind": "uniform", "mean": 100, "range_ratio": 0.9},
    float(np.mean((np.arange(10, 191) / 100) ** 2)),
)
SERVICES = {"M/D/1": CONSTANT, "M/M/1": GEOMETRIC, "M/G/1": UNIFORM}


def replicate(load: float, output: dict[str, Any], runs: int, times: int = 1) -> Interval:
    """The interval of the mean wait at this load, mean service 1 s."""
    return interval(mean_wait_s(served(load, times * REQUESTS[load], seed, output)) for seed in range(runs))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("queue", SERVICES)
def test_mean_wait(queue: str, load: float) -> None:
    """Pollaczek and Khinchine's wait for constant, geometric (M/M/1 on a grid of 10 ms) and uniform service."""
    output, second_moment = SERVICES[queue]
    expected = mg1_wait(load, 1.0, second_moment)
    found = replicate(load, output, runs=6)
    assert expected in found, f"{queue} at {load}: {found}, theory {expected:.4f} s"
    assert found.high - found.low < expected, "too wide to tell anything"


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("queue", SERVICES)
def test_mean_wait_to_a_few_percent(queue: str, load: float) -> None:
    """The same with 30 longer replications, intervals of a few percent: `pytest -m slow tests/theory`."""
    output, second_moment = SERVICES[queue]
    expected = mg1_wait(load, 1.0, second_moment)
    found = replicate(load, output, runs=30, times=8)
    assert expected in found, f"{queue} at {load}: {found}, theory {expected:.4f} s"
    assert found.high - found.low < 0.2 * expected


def test_geometric_service_is_close_to_exponential() -> None:
    """The grid of 10 ms makes the textbook's M/M/1 wait 0.5 % shorter, no more."""
    assert mg1_wait(0.8, 1.0, GEOMETRIC[1]) == pytest.approx(0.8 / (1 - 0.8), rel=0.006)


def batched(kind: str, rate: float, seed: int, count: int, **parameters: Any) -> float:
    """Mean latency, s, of a batch server with one step of 1 s a batch of at most 8."""
    run = served(
        rate,
        count,
        seed,
        {"kind": "fixed", "tokens": 1},
        cost_model={"kind": "linear", "base_ms": 1000},
        scheduler={"kind": kind, "pad_prompts": False} | parameters,
    )
    return mean_latency_s(run)


@pytest.mark.parametrize("rate", [1.0, 4.0, 6.4])
def test_dynamic_batches_of_one_to_eight(rate: float) -> None:
    """M/D[1..8]/1: whoever waits, up to eight, goes when the server is free."""
    expected = batch_latency(rate, lambda _: 1.0, 8)
    found = interval(batched("dynamic", rate, seed, 4000, max_batch_size=8) for seed in range(10))
    assert expected in found, f"{found}, theory {expected:.4f} s"


@pytest.mark.parametrize("rate", [1.0, 4.0, 6.4])
def test_static_batches_of_eight(rate: float) -> None:
    """M/D[8,8]/1: full batches only, so the wait for company counts: longest where traffic is lightest."""
    expected = batch_latency(rate, lambda _: 1.0, 8, least=8)
    found = interval(batched("static", rate, seed, 4000, batch_size=8) for seed in range(10))
    assert expected in found, f"{found}, theory {expected:.4f} s"


def test_the_chain_knows_published_values() -> None:
    """The numerical solution gives the values of an independent one, and M/D/1 for batches of one."""
    assert batch_latency(4.0, lambda _: 1.0, 8) == pytest.approx(1.50705, rel=1e-4)
    assert batch_latency(4.0, lambda _: 1.0, 8, least=8) == pytest.approx(1.88432, rel=1e-4)
    assert batch_latency(0.5, lambda _: 1.0, 1) == pytest.approx(1 + mg1_wait(0.5, 1.0, 1.0), rel=1e-6)


@pytest.mark.parametrize("rate", [50.0, 300.0, 500.0])
def test_dynamic_batching_stays_under_inoues_bound(rate: float) -> None:
    """Service 20 ms + 1 ms a member, no limit: the mean latency is the exact one, and below the closed bound."""
    expected = batch_latency(rate, lambda b: 0.02 + 0.001 * b, 10**6)
    means = []
    for seed in range(6):
        run = served(
            rate,
            4000,
            seed,
            {"kind": "fixed", "tokens": 1},
            cost_model={"kind": "linear", "base_ms": 20, "prefill_token_ms": 1},
            scheduler={"kind": "dynamic", "max_batch_size": 10_000, "pad_prompts": False},
        )
        means.append(mean_latency_s(run))
    found = interval(means)
    assert expected in found, f"{found}, theory {expected:.5f} s"
    assert found.low < inoue(rate, 0.001, 0.02) * 1.001
    assert expected <= inoue(rate, 0.001, 0.02) * (1 + 1e-6)


def test_littles_law() -> None:
    """mean waiting = rate x mean wait and mean running = rate x mean service, exactly over the run's own span."""
    run = served(0.8, 5000, 3, {"kind": "geometric", "mean": 100})
    summary, requests = run.summary, run.records.requests
    rate = summary["completed"] / summary["duration"]
    assert summary["mean_waiting"] == pytest.approx(rate * mean_wait_s(run, cut=0), rel=1e-9)
    service_s = float((requests.finished_ns - requests.admitted_ns).mean()) / 1e9
    assert summary["mean_running"] == pytest.approx(rate * service_s, rel=1e-9)
    assert summary["gpu_busy_fraction"] == pytest.approx(summary["mean_running"], rel=1e-9)


@pytest.mark.parametrize("shape", [0.25, 0.5, 1.0, 4.0])
def test_burstiness_is_the_coefficient_of_variation(shape: float) -> None:
    """Gaps of gamma arrivals vary by 1/sqrt(burstiness), and their mean is the rate's."""
    variations, means = [], []
    for seed in range(6):
        run = served(
            10,
            4000,
            seed,
            {"kind": "fixed", "tokens": 1},
            workload={
                "requests": 4000,
                "arrivals": {"kind": "gamma", "rate_per_s": 10, "burstiness": shape},
                "prompt_tokens": {"kind": "fixed", "tokens": 1},
                "output_tokens": {"kind": "fixed", "tokens": 1},
            },
        )
        gaps = np.diff(run.records.requests.arrival_ns) / 1e9
        variations.append(float(gaps.std() / gaps.mean()))
        means.append(float(gaps.mean()))
    assert interval(variations).low <= shape**-0.5 * 1.01
    assert interval(variations).high >= shape**-0.5 * 0.99
    assert 0.1 in interval(means)
