"""What each router does, where it can be told by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from batchsim.request import Request
from batchsim.router import Load, Outlook
from batchsim.scenario import scenario
from batchsim.simulation import Run, simulate
from tests.fleet.fleets import base, listed


def run(router: dict[str, Any], workload: dict[str, Any] | None = None, **changes: Any) -> Run:
    """A run of three replicas."""
    given = base(replicas=3, router=router, **changes)
    return simulate(scenario(given if workload is None else given | {"workload": workload}))


def test_round_robin_takes_turns() -> None:
    """Requests 0, 1, 2, 3 … go to replicas 0, 1, 2, 0 …"""
    replica = run({"kind": "round_robin"}).records.requests.replica
    assert np.array_equal(replica, np.arange(100) % 3)


@pytest.mark.parametrize("kind", ["random", "power_of_two"])
def test_random_routers_use_all_replicas_and_hang_on_the_seed(kind: str) -> None:
    """Every replica gets some; another seed deals otherwise, but draws the same requests."""
    one = run({"kind": kind}).records
    other = run({"kind": kind}, seed=1).records
    assert set(one.requests.replica.tolist()) == {0, 1, 2}
    assert not np.array_equal(one.requests.replica, other.requests.replica)


def test_a_random_router_moves_no_request() -> None:
    """The router draws from a stream of its own: the requests are the same under every router."""
    one, other = run({"kind": "random"}).records.workload, run({"kind": "round_robin"}).records.workload
    assert np.array_equal(one.arrival_ns, other.arrival_ns)
    assert np.array_equal(one.output_tokens, other.output_tokens)


def test_least_requests_passes_the_busy_by() -> None:
    """Two long answers hold replicas 0 and 1; the short ones that follow go to replica 2: each is gone by then."""
    rows = [(0, 10, 100), (0, 10, 100), (1, 10, 1), (21, 10, 1), (41, 10, 1)]
    assert run({"kind": "least_requests"}, listed(rows)).records.requests.replica.tolist() == [0, 1, 2, 2, 2]


def test_least_tokens_weighs_what_requests_are() -> None:
    """One request of 1,000 tokens weighs more than two of 10: least_requests would send the last to replica 0."""
    rows = [(0, 1000, 50), (0, 10, 50), (0, 10, 50), (1, 10, 5), (2, 10, 5), (3, 10, 5)]
    chosen = run({"kind": "least_tokens"}, listed(rows)).records.requests.replica.tolist()
    assert chosen == [0, 1, 2, 1, 2, 1]
    assert run({"kind": "least_requests"}, listed(rows)).records.requests.replica.tolist()[3] == 0


def test_least_tokens_counts_what_was_generated() -> None:
    """Prompts of 20 and 40 started together: after 30 tokens each the first is still lighter; a fresh 45 is not."""
    rows = [(0, 20, 200), (0, 40, 200), (0, 55, 200), (305, 1, 1)]
    assert run({"kind": "least_tokens"}, listed(rows)).records.requests.replica.tolist() == [0, 1, 2, 0]
    late = [(0, 20, 200), (0, 40, 200), (300, 30, 200), (305, 1, 1)]  # 20 + 30 generated against 30
    assert run({"kind": "least_tokens"}, listed(late)).records.requests.replica.tolist() == [0, 1, 2, 2]


def test_a_full_replica_rejects_or_another_is_tried() -> None:
    """max_queue 1: of five at once, round robin drops two; with retry 2 the others' queues are tried first."""
    scheduler = {"kind": "priority", "max_num_seqs": 1, "max_queue": 1}
    rows = [(0, 10, 100)] * 3 + [(1, 10, 1)] * 5
    alone = run({"kind": "round_robin"}, listed(rows), scheduler=scheduler)
    again = run({"kind": "round_robin", "retry": 2}, listed(rows), scheduler=scheduler)
    assert alone.summary["rejected"] == again.summary["rejected"] == 2
    assert alone.summary["retries"] == 0
    assert again.summary["retries"] == 4  # two requests, two further replicas each
    one = listed([(0, 10, 100), (0, 10, 1), (0, 10, 1), (15, 10, 1), (16, 10, 100), (17, 10, 1), (18, 10, 1)])
    assert run({"kind": "round_robin"}, one, scheduler=scheduler).summary["rejected"] == 1
    assert run({"kind": "round_robin", "retry": 1}, one, scheduler=scheduler).summary["rejected"] == 0


def test_central_queue_leaves_nobody_waiting_beside_a_free_seat() -> None:
    """Requests wait until a replica could take them: round robin queues the last behind a long one, one queue not."""
    scheduler = {"kind": "vllm", "max_num_seqs": 1}
    rows = [(0, 10, 100), (0, 10, 5), (0, 10, 5), (1, 10, 1)]
    waits = [
        run({"kind": kind}, listed(rows), scheduler=scheduler).requests["queue_ms"].tolist()[3]
        for kind in ("round_robin", "central_queue")
    ]
    assert waits == [999.0, 49.0]


def test_central_queue_does_not_crowd_a_small_pool() -> None:
    """A pool for one prompt at a time: three replicas hold three, the fourth waits for the first that is free."""
    rows = [(0, 150, 2), (0, 150, 2), (0, 150, 2), (1, 150, 2)]
    made = run({"kind": "central_queue"}, listed(rows), kv_cache={"num_blocks": 12})
    assert made.records.requests.replica.tolist() == [0, 1, 2, 0]
    assert made.requests["queue_ms"].tolist() == [0, 0, 0, 19.0]


def shared(**arrivals: Any) -> dict[str, Any]:
    """Eight classes of traffic, each with a system prompt of its own."""
    classes = [{"name": f"c{n}", "share": 0.125, "shared_prefix_tokens": 640} for n in range(8)]
    lengths = {"prompt_tokens": {"kind": "fixed", "tokens": 704}, "output_tokens": {"kind": "fixed", "tokens": 8}}
    return {"requests": 400, "arrivals": arrivals, "mix": [entry | lengths for entry in classes]}


@pytest.mark.parametrize(("mode", "factor"), [("threshold", 1.5), ("cost", 1.1)])
def test_prefix_affinity_raises_hits(mode: str, factor: float) -> None:
    """Eight prefixes over three replicas whose caches hold three: affinity finds far more than taking turns."""
    options = {"scheduler": {"kind": "vllm", "enable_prefix_caching": True}, "kv_cache": {"num_blocks": 180}}
    workload = shared(kind="poisson", rate_per_s=10)
    turns = run({"kind": "round_robin"}, workload, **options).summary["prefix_hit_tokens"]
    affine = run({"kind": "prefix_affinity", "mode": mode}, workload, **options).summary["prefix_hit_tokens"]
    assert affine > factor * turns > 0


def test_prefix_affinity_gives_way_to_load() -> None:
    """One prefix, far too much traffic: beyond balance_abs_threshold the others help; below it they do not."""
    workload = shared(kind="constant", rate_per_s=400)
    workload = workload | {"mix": [workload["mix"][0] | {"share": 1}]}
    options = {"scheduler": {"kind": "vllm", "max_num_seqs": 4, "enable_prefix_caching": True}}
    strict = {"kind": "prefix_affinity", "balance_abs_threshold": 1000}
    ready = {"kind": "prefix_affinity", "balance_abs_threshold": 8}
    assert set(run(strict, workload, **options).records.requests.replica.tolist()) == {0}
    assert set(run(ready, workload, **options).records.requests.replica.tolist()) == {0, 1, 2}


def sessions(count: int) -> dict[str, Any]:
    """One request of each of `count` sessions."""
    rows = [
        {"id": f"r{n}", "arrival_ms": n, "prompt_tokens": 5, "output_tokens": 1, "session": f"s{n}"}
        for n in range(count)
    ]
    return {"kind": "list", "requests": rows}


def test_session_moves_few_when_a_replica_is_added() -> None:
    """From 8 to 9 replicas about a ninth of 2,000 sessions move, all of them to the new one."""
    before, after = (
        simulate(
            scenario(base(replicas=n, router={"kind": "session"}, workload=sessions(2000)))
        ).records.requests.replica
        for n in (8, 9)
    )
    moved = before != after
    assert 0.06 < moved.mean() < 0.17
    assert set(after[moved].tolist()) == {8}
    assert np.bincount(before).min() > 100


def test_session_stays_with_its_replica() -> None:
    """All requests of a session, and without sessions all of a tenant, go to one replica."""
    rows = [
        {"id": f"{n}", "arrival_ms": n, "prompt_tokens": 5, "output_tokens": 1, "tenant": f"t{n % 7}"}
        for n in range(70)
    ]
    replica = run({"kind": "session"}, {"kind": "list", "requests": rows}).records.requests.replica
    assert all(len(set(replica[n::7].tolist())) == 1 for n in range(7))
    assert len(set(replica.tolist())) > 1


def test_requests_go_where_they_fit() -> None:
    """Unlike groups: a prompt too large for the small replica goes to the large one, whatever the turn."""
    groups = [{"name": "small", "kv_cache": {"num_blocks": 10}}, {"name": "large", "kv_cache": {"num_blocks": 100}}]
    rows = [(n * 100.0, 300, 5) for n in range(4)]
    made = simulate(scenario(base(fleet=groups, workload=listed(rows))))
    assert made.records.requests.replica.tolist() == [1, 1, 1, 1]
    assert made.summary["rejected"] == 0


def test_answers_of_an_instant_are_seen_by_every_plan_of_it() -> None:
    """Two clients' answers end together: what both send next starts in that instant, on either replica."""
    workload = {
        "requests": 8,
        "arrivals": {"kind": "closed", "concurrency": 2, "think_s": 0},
        "prompt_tokens": {"kind": "fixed", "tokens": 5},
        "output_tokens": {"kind": "fixed", "tokens": 3},
    }
    requests = simulate(scenario(base(replicas=2, workload=workload))).records.requests
    assert np.array_equal(requests.admitted_ns, requests.arrival_ns)
    assert requests.arrival_ns.tolist() == [30_000_000 * (n // 2) for n in range(8)]


@dataclass
class LastOne:
    """Everything goes to the last replica."""

    def begin(self, outlook: Outlook) -> None:
        """It remembers nothing."""

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """The last."""
        return replicas[-1]


def test_a_router_of_ones_own() -> None:
    """`router: {kind: module:Class}` takes any dataclass with `begin` and `route`."""
    made = run({"kind": "tests.fleet.test_routers:LastOne"})
    assert set(made.records.requests.replica.tolist()) == {2}
