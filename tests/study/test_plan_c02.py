"""Case C02: how many replicas of one request at a time a tail of the wait needs, on every seed, short runs or long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from batchsim.metrics.latency import ttft_ns
from batchsim.scenario import Scenario, resolve
from batchsim.simulation import simulate
from batchsim.study import bounds, plan
from batchsim.study.noise import TIMES, longer, settled
from batchsim.study.sizing import smallest, smallest_settled
from batchsim.study.targets import goals_of, judged
from batchsim.study.trial import Fleet, Outcome
from batchsim.study.work import drawn
from tests.study.given import one_at_a_time, one_step


@pytest.mark.parametrize(("wait_ms", "replicas"), [(1300, 12), (450, 14)])
def test_c02_the_size_that_a_tail_of_the_wait_needs(wait_ms: int, replicas: int) -> None:
    """M/D/c at 10 req/s and 1 s of service: p99 wait ≤ 1.3 s takes 12, ≤ 0.45 s takes 14, one fewer fails; the bound
    by work is 10."""
    case = one_step(1000 + wait_ms)
    work = drawn(case)
    fleet = Fleet(case, goals_of(case), {1: work})
    bound = bounds.work(resolve(case), work, 10.0).replicas()
    assert bound == 10
    assert smallest(fleet, bound, 20) == replicas
    assert not fleet.outcome(replicas - 1, 1).passes


def test_c02_what_a_plan_prints_beside_the_size() -> None:
    """Utilisation is load over size, the rate that the plan breaks at lies between today's and the fleet's capacity, a
    replica lost means less than today's; the same seeds stand at every size."""
    whole = plan(one_step(2300, requests=3_000), max_replicas=20, seeds=1).to_dict()
    size = whole["replicas"]
    sizes = {entry["replicas"]: entry for entry in whole["evidence"]}
    assert (sizes[size]["passes"], sizes[size - 1]["passes"]) == (True, False)
    assert sizes[size]["seeds"] == sizes[size - 1]["seeds"] == [1]
    assert whole["utilisation"] == pytest.approx(10 / size)
    assert whole["binding"] == "seats"
    assert 10 <= whole["max_rate_per_s"] < size
    assert whole["headroom"] == pytest.approx(whole["max_rate_per_s"] / 10 - 1)
    assert whole["one_replica_lost"]["replicas"] == size - 1
    assert whole["one_replica_lost"]["max_rate_per_s"] < 10


def waits_ns(arrival_ns: Any, replicas: int, service_ns: int = 10**9) -> Any:
    """Waits of round robin over replicas that serve one request at a time, each as long: Lindley's recursion, exact."""
    waits = np.empty_like(arrival_ns)
    for replica in range(replicas):
        came = arrival_ns[replica::replicas]
        turns = service_ns * np.arange(len(came))
        waits[replica::replicas] = np.maximum.accumulate(came - turns) + turns - came
    return waits


@pytest.mark.parametrize("replicas", [11, 14])
def test_c02_the_engine_waits_as_the_recursion_says(replicas: int) -> None:
    """On the same requests every TTFT is the recursion's wait and 10 ms, to the nanosecond."""
    case = one_at_a_time(1_500).replace({"replicas": replicas})
    run = simulate(case)
    expected = waits_ns(run.records.workload.arrival_ns, replicas) + 10_000_000
    assert (ttft_ns(run.records.requests) == expected).all()


class Recursion(Fleet):
    """A fleet of case C02 that asks the recursion, not the engine: forty seeds in a moment."""

    def outcome(self, replicas: int, seed: int, factor: float = 1.0) -> Outcome:
        arrival_ns = self.workloads[seed].arrival_ns
        key = (replicas, len(arrival_ns))
        if key not in self.seen:
            values = waits_ns(arrival_ns, replicas).astype(np.float64) + 10_000_000
            everyone = np.ones(len(values), bool)
            figures = judged(self.goals, {"ttft_ms": values}, {"": everyone}, everyone)
            self.seen[key] = replace(NOTHING, figures=figures, requests=len(values))
        return self.seen[key]

    def __init__(self, case: Scenario, seed: int, times: int) -> None:
        work = drawn(case.replace({"seed": seed}))
        super().__init__(case, goals_of(case), {seed: work}, longer(case, times))
        self.seen: dict[tuple[int, int], Outcome] = {}


NOTHING = Outcome((), 0, None, 0.0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, None, 0, None, {})


@pytest.mark.parametrize("requests", [20_000, 200_000])
@pytest.mark.parametrize(("ttft_ms", "size"), [(1310.0, 12), (460.0, 14)])
def test_c02_on_every_one_of_forty_seeds(ttft_ms: float, size: int, requests: int) -> None:
    """p99 wait ≤ 1.3 s takes 12 and 11 fail, ≤ 0.45 s takes 14 and 13 fail, on each of 40 seeds, at both lengths."""
    case = one_at_a_time(requests, ttft_ms=ttft_ms)
    for seed in range(1, 41):
        fleet = Recursion(case, seed, TIMES)
        assert smallest_settled(fleet, 10, 20) == size, seed
        assert fleet.outcome(size, seed).requests == fleet.outcome(size - 1, seed).requests
        assert not fleet.outcome(size - 1, seed).passes


def test_c02_twenty_thousand_requests_alone_are_a_draw() -> None:
    """The p99 wait of 14 replicas is 0.391 s with a standard deviation of 0.031 s over seeds of 20,000 requests: one in
    twenty-four is above 0.45 s, here 2 of 40, and a plan that never draws more buys a replica too many for them."""
    case = one_at_a_time(20_000, ttft_ms=460.0)
    found = [smallest_settled(Recursion(case, seed, 1), 10, 20) for seed in range(1, 41)]
    assert (found.count(14), found.count(15)) == (38, 2)
    p99_s = [
        np.percentile(waits_ns(drawn(case.replace({"seed": seed})).arrival_ns, 14), 99) / 1e9 for seed in range(1, 41)
    ]
    assert np.mean(p99_s) == pytest.approx(0.391, abs=3 * 0.0313 / 40**0.5)
    assert np.std(p99_s) == pytest.approx(0.0313, rel=0.35)


def test_a_target_at_the_percentile_itself_is_said_to_be_a_coin_toss() -> None:
    """p99 wait ≤ 0.944 s is what 12 replicas have: no length settles that, and the plan says so."""
    found = plan(one_at_a_time(2_000, ttft_ms=954.0), max_replicas=20, seeds=1, longer=2)
    assert any("by less than the noise of 4,000 requests" in text for text in found.to_dict()["warnings"])


def test_a_longer_run_begins_with_the_same_requests() -> None:
    """What a verdict is continued with is more of the same: arrivals begin alike, and `run` draws the same ones."""
    case = one_at_a_time(1_000)
    more = longer(case, 8)
    assert more is not None
    twice = more(1, 2)
    assert twice is not None
    assert len(twice) == 2_000
    assert (twice.arrival_ns[:1_000] == drawn(case).arrival_ns).all()
    assert more(1, 16) is None
    assert longer(case, 1) is None


@pytest.mark.parametrize(
    "workload",
    [{"arrivals": {"kind": "burst"}}, {"arrivals": {"kind": "poisson", "rate_per_s": float("inf")}}],
)
def test_what_has_no_more_of_it_is_not_made_longer(workload: dict[str, Any]) -> None:
    """A burst of more requests is another burst; a horizon is where the traffic ends."""
    assert longer(one_step(2300, requests=100, **workload), 8) is None
    assert longer(one_step(2300, requests=100).replace({"horizon_s": 5.0}), 8) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 41))
def test_c02_at_twenty_thousand_through_the_engine(seed: int) -> None:
    """The case's own scenario for the narrower target, planned from one seed: 14, and 13 shown to fail."""
    case = one_at_a_time(20_000, ttft_ms=460.0).replace({"seed": seed})
    fleet = Fleet(case, goals_of(case), {seed: drawn(case)}, longer(case, TIMES))
    assert smallest_settled(fleet, 13, 20) == 14


@pytest.mark.slow
@pytest.mark.parametrize(("ttft_ms", "size"), [(1310.0, 12), (460.0, 14)])
def test_c02_at_its_full_length(ttft_ms: float, size: int) -> None:
    """The case's own scenario, 200,000 requests, through the engine: the size passes, one fewer fails."""
    case = one_at_a_time(200_000, ttft_ms=ttft_ms)
    fleet = Fleet(case, goals_of(case), {1: drawn(case)})
    assert fleet.passes(size)
    assert not fleet.passes(size - 1)


@pytest.mark.slow
def test_c02_planned_as_it_stands() -> None:
    """The case's own scenario and the command's defaults: 12, on three seeds, with 11 shown to fail on all of them."""
    whole = plan(one_at_a_time(20_000), max_replicas=20).to_dict()
    below = next(entry for entry in whole["evidence"] if entry["replicas"] == 11)
    assert whole["replicas"] == 12
    assert below["seeds"] == [1, 2, 3]
    assert all(value > 1310 for value in below["targets"]["p99_ttft_ms"]["per_seed"])


def test_a_verdict_is_settled_beyond_two_standard_errors() -> None:
    """Of 10,000 independent requests 1 % may be late: one standard error is 0.1 %, so 79 or 121 late ones settle it and 85
    or 115 do not; in one lump the same 121 settle nothing; a share of none is settled either way."""

    def late(count: int) -> Any:
        mask = np.zeros(10_000, bool)
        mask[np.linspace(0, 9_999, count).astype(int)] = True
        return mask

    assert [settled(late(count), 0.01) for count in (79, 85, 100, 115, 121)] == [True, False, False, False, True]
    assert not settled(np.arange(10_000) < 121, 0.01)
    assert settled(late(1), 0.0)
    assert settled(np.zeros(0, bool), 0.01)


def test_c02_sizes_stay_in_order_where_verdicts_take_more_requests() -> None:
    """Along rising limits sizes never grow, along rising rates they never fall, at 20,000 requests and settled."""
    by_limit = [
        smallest_settled(Recursion(one_at_a_time(20_000, ttft_ms=10.0 + wait_ms), 3, TIMES), 10, 30)
        for wait_ms in (100, 200, 300, 380, 400, 450, 500, 560, 600, 800, 930, 1000, 1300, 1900, 2500)
    ]
    assert by_limit == sorted(by_limit, reverse=True)
    by_rate = [
        smallest_settled(Recursion(one_at_a_time(20_000, rate / 4, ttft_ms=460.0), 3, TIMES), rate // 4, 40)
        for rate in range(20, 60)
    ]
    assert by_rate == sorted(by_rate)
