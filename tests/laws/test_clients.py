"""Clients: giving up, thinking, waiting for a slot, and being turned away, at the edges."""

from __future__ import annotations

import pytest

from batchsim.records import Status
from batchsim.scenario import scenario
from batchsim.simulation import Run, simulate
from tests.laws.scenarios import FLAT, base, listed

STATIC = {"kind": "static", "batch_size": 4, "pad_prompts": False}


def run(**changes: object) -> Run:
    """A run of `base` with these sections."""
    return simulate(scenario(base(cost_model=dict(FLAT), **changes)))


def closed(count: int, concurrency: int, think_s: float, prompt: int = 1, output: int = 1) -> dict[str, object]:
    """A closed loop of equal requests."""
    return {
        "requests": count,
        "arrivals": {"kind": "closed", "concurrency": concurrency, "think_s": think_s},
        "prompt_tokens": {"kind": "fixed", "tokens": prompt},
        "output_tokens": {"kind": "fixed", "tokens": output},
    }


def test_a_client_that_is_always_turned_away_sends_all_its_requests() -> None:
    """5,000 rejections at one instant, each answered by the next request, are a loop and not a recursion."""
    found = run(kv_cache={"block_size": 16, "num_blocks": 2}, workload=closed(5000, 2, 0, prompt=100))
    assert found.summary["rejected"] == 5000
    assert found.summary["completed"] == 0


def test_a_cap_whose_requests_are_all_turned_away_lets_the_next_ones_out() -> None:
    """The same through a client's cap: a rejection gives the slot to the next in the client's queue."""
    rows = [(0, 100, 1)] * 3000 + [(0, 1, 1)]
    found = run(kv_cache={"block_size": 16, "num_blocks": 2}, workload=listed(rows, max_concurrency=1))
    assert (found.summary["rejected"], found.summary["completed"]) == (3000, 1)


def test_nobody_gives_up_at_the_horizon() -> None:
    """The horizon is exclusive: a client whose patience ends at that instant still waits, in a closed loop too."""
    scheduler = {"kind": "vllm", "max_num_seqs": 1}
    for more in ({}, {"arrivals": {"kind": "closed", "concurrency": 2}}):
        workload = listed([(0, 1, 100), (0, 1, 100)], **more)
        workload["requests"][1]["cancel_ms"] = 50
        found = run(scheduler=scheduler, workload=workload, horizon_s=0.05)
        assert found.records.requests.status.tolist() == [Status.RUNNING, Status.WAITING]
        found = run(scheduler=scheduler, workload=workload, horizon_s=0.0501)
        assert found.records.requests.status.tolist() == [Status.RUNNING, Status.CANCELLED]


def test_a_static_batch_waits_for_a_client_that_thinks() -> None:
    """A partial batch goes early only when no arrival is on its way: a client that thinks will send again."""
    rows = [(0.0, 1, 1), (0.0, 1, 1), (0.0, 1, 3), (0.0, 1, 1)] + [(0.0, 1, 1)] * 4
    workload = listed(rows, arrivals={"kind": "closed", "concurrency": 4, "think_s": 0.015})
    found = run(scheduler=STATIC | {"run_to": "leave"}, workload=workload)
    admitted = sorted(set(found.records.requests.admitted_ns.tolist()))
    assert admitted == [0, 45_000_000]  # the slow one's client sends at 30 + 15 ms, and completes the second batch


def test_a_static_batch_ends_with_the_member_that_gives_up() -> None:
    """Held seats are released when the last member that still generates is cancelled: no step runs for nobody."""
    rows = [(0.0, 1, 2), (0.0, 1, 50), (0.0, 1, 1), (0.0, 1, 1), (0.0, 1, 1)]
    workload = listed(rows)
    workload["requests"][1]["cancel_ms"] = 35
    found = run(scheduler=STATIC, workload=workload)
    assert found.records.requests.admitted_ns.tolist()[4] == 40_000_000
    assert found.summary["iterations"] == 5


@pytest.mark.parametrize("stepwise", [False, True])
def test_a_request_that_ends_at_the_moment_of_giving_up_is_complete(stepwise: bool) -> None:
    """A token that comes at the very instant of the client's patience still counts."""
    workload = listed([(0, 1, 3), (0, 1, 4)])
    for row in workload["requests"]:
        row["cancel_ms"] = 30
    found = simulate(scenario(base(cost_model=dict(FLAT), workload=workload)), stepwise=stepwise)
    assert found.records.requests.status.tolist() == [Status.COMPLETED, Status.CANCELLED]
    assert found.records.requests.emitted_tokens.tolist() == [3, 3]


def test_giving_up_before_anything_happens() -> None:
    """A patience of 0 ends in the instant of arrival: never admitted, never computed, counted."""
    workload = listed([(0, 1, 3), (5, 1, 3)])
    workload["requests"][1]["cancel_ms"] = 0
    found = run(workload=workload)
    assert found.records.requests.status.tolist() == [Status.COMPLETED, Status.CANCELLED]
    assert found.summary["submitted"] == 2
    assert found.summary["iterations"] == 3


def test_who_is_on_the_way_keeps_a_static_batch_waiting() -> None:
    """The last request needs 5 ms to the server: until then a batch of three that lacks one is not cut short."""
    rows = [(0, 10, 2), (1, 10, 2), (20, 10, 2)]
    given = base(engine={"ingress_ms": 5}, scheduler={"kind": "static", "batch_size": 3}, workload=listed(rows))
    assert simulate(scenario(given)).records.requests.admitted_ns.tolist() == [25_000_000] * 3


def test_a_full_cap_still_waits_for_who_is_on_the_way() -> None:
    """Two may be out, and both are: the second needs until 8 ms to the server, and the batch starts with it."""
    workload = listed([(0, 10, 2), (3, 10, 2), (4, 10, 2)], max_concurrency=2)
    given = base(engine={"ingress_ms": 5}, scheduler={"kind": "static", "batch_size": 3}, workload=workload)
    assert simulate(scenario(given)).records.requests.admitted_ns.tolist()[:2] == [8_000_000] * 2
