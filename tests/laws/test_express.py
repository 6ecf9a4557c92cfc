"""The express lane gives the records of the plain path, to the last number, however often it is entered and left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from batchsim.errors import NoProgress
from batchsim.express import Lane, LaneAhead, road
from batchsim.metrics.ticks import max_itl_ns
from batchsim.records import Iterations
from batchsim.simulation import simulate
from tests.laws.laws import same_results
from tests.laws.scenarios import COSTS, ENGINES, FLAT, base, build, listed, open_loops, traffic

QUICK = settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck), print_blob=True)
LONG = settings(QUICK, max_examples=5000)


def policy(scheduler: dict[str, Any]) -> dict[str, Any]:
    """The keys that a policy shares with vllm; memory only counts."""
    return {key: scheduler[key] for key in ("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill")}


@st.composite
def lists(draw: st.DrawFn, longest: int) -> dict[str, Any]:
    """Requests on a grid that ends of steps hit, in groups and apart."""
    time = st.sampled_from([0, 10, 20, 20.1, 21, 30, 55, 110, 300, 301.5, 900, 2000])
    one = st.tuples(time, st.integers(1, longest), st.integers(1, 30), st.sampled_from([None, 0, 3]))
    rows = draw(st.lists(one, min_size=1, max_size=25))
    found = listed([row[:3] for row in rows])
    for request, (*_, more) in zip(found["requests"], rows, strict=True):
        if more is not None:  # a declared limit: that it asks for, or some more
            request["max_tokens"] = request["output_tokens"] + more
    return found


@st.composite
def drawn(draw: st.DrawFn, longest: int) -> dict[str, Any]:
    """Arrivals of every open kind."""
    arrivals = draw(open_loops())
    size = {"duration_s": 1.0} if arrivals["kind"] == "piecewise" else {"requests": draw(st.integers(1, 60))}
    return size | {"arrivals": arrivals} | draw(traffic(longest, 30))


@st.composite
def lanes(draw: st.DrawFn, ahead: bool) -> dict[str, Any]:
    """Scenarios of one replica whose clients send by the clock; seats, budget and blocks often run short."""
    block = draw(st.sampled_from([1, 4, 16]))
    longest = draw(st.sampled_from([8, 60, 300]))
    seats = draw(st.sampled_from([2, 4, 16, 256]))
    budget = max(seats, draw(st.sampled_from([16, longest, longest + 2, 64, 512, 8192])))
    few = -(-(longest + 30) // block)
    watermark = draw(st.sampled_from([0.0, 0.0, 0.1]))
    scheduler = {
        "kind": "vllm", "max_num_seqs": seats, "max_num_batched_tokens": budget, "watermark": watermark,
        "enable_prefix_caching": draw(st.booleans()), "async_scheduling": ahead,
        "enable_chunked_prefill": draw(st.sampled_from([True, True, False])),
        "scheduler_reserve_full_isl": draw(st.sampled_from([True, True, False])),
        "policy": draw(st.sampled_from(["fcfs", "fcfs", "priority"])),
    }  # fmt: skip
    if not ahead and draw(st.integers(0, 2)) == 2:
        scheduler = {"kind": "sarathi", "max_num_seqs": seats, "chunk_size": budget, "watermark": watermark}
    elif not ahead and draw(st.integers(0, 3)) == 3:
        scheduler = {"kind": draw(st.sampled_from(["sjf", "priority"]))} | policy(scheduler)
    return base(
        engine=dict(draw(st.sampled_from(ENGINES))), cost_model=dict(draw(st.sampled_from(COSTS))), scheduler=scheduler,
        kv_cache={"block_size": block, "num_blocks": draw(st.sampled_from([few, few + 3, 3 * few, 5000]))},
        workload=draw(st.one_of(lists(longest), drawn(longest))),
        horizon_s=draw(st.sampled_from([None, None, None, 0.02, 0.3])),
        max_model_len=draw(st.sampled_from([None, None, longest + 5])),
    )  # fmt: skip


def compare(given: dict[str, Any], patience: int) -> int:
    """The same records with and without; returns how often the lane was taken."""
    scenario, taken = build(given), 0

    def counted(travel: Any) -> Any:
        def count(*args: Any) -> None:
            nonlocal taken
            taken += 1
            travel(*args)

        return count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(road, "AGAIN", patience)
        for kind in (Lane, LaneAhead):
            patch.setattr(kind, "_travel", counted(kind._travel))
        try:
            plain = simulate(scenario, stepwise=True)
        except NoProgress:  # an evicted request that has outgrown the budget, with chunked prefill off
            with pytest.raises(NoProgress):
                simulate(scenario)
            return taken
        fast = simulate(scenario)
    same_results(fast, plain)
    assert np.array_equal(max_itl_ns(fast.records), max_itl_ns(plain.records))
    rows_agree(fast.records.iterations, plain.records.iterations)
    return taken


def rows_agree(fast: Iterations, plain: Iterations) -> None:
    """Each row stands for whole steps, and its last step is that which ended then."""
    key = [f"{replica}@{end_ns}" for replica, end_ns in zip(plain.replica.tolist(), plain.end_ns.tolist(), strict=True)]
    place = {step: row for row, step in enumerate(key)}
    last = [place[f"{replica}@{end}"] for replica, end in zip(fast.replica.tolist(), fast.end_ns.tolist(), strict=True)]
    for name in ("running", "waiting", "kv_blocks_used", "decode_seqs", "prefill_tokens", "prefill_s2_x2"):
        assert np.array_equal(getattr(fast, name), getattr(plain, name)[last]), name
    assert np.array_equal(fast.preempted.cumsum(), plain.preempted.cumsum()[last])
    assert np.array_equal(fast.repeats.cumsum(), np.array(last) + 1)


@pytest.mark.parametrize("ahead", [False, True])
@QUICK
@given(data=st.data(), patience=st.sampled_from([0, 0, 3, 32]))
def test_express_is_the_plain_path(ahead: bool, data: st.DataObject, patience: int) -> None:
    """Every request's times and counts, every gap between tokens, every row, and the summary."""
    event(f"taken {min(compare(data.draw(lanes(ahead)), patience), 4)} times")


def crowded(rng: np.random.Generator, ahead: bool) -> dict[str, Any]:
    """Forty requests that come faster than they are served, where seats, budget or blocks are short."""
    block, longest, seats = (int(rng.choice(values)) for values in ((1, 4, 16), (20, 60), (2, 5, 12, 64)))
    few = -(-(longest + 40) // block)
    budget = max(seats, int(rng.choice([longest // 3, longest + 3, 2 * longest, 8192])))
    watermark = float(rng.choice([0.0, 0.05, 0.3]))
    scheduler = {
        "kind": "vllm", "max_num_seqs": seats, "max_num_batched_tokens": budget, "watermark": watermark,
        "enable_prefix_caching": bool(rng.integers(2)), "async_scheduling": ahead,
        "enable_chunked_prefill": bool(rng.integers(3)), "scheduler_reserve_full_isl": bool(rng.integers(2)),
        "policy": str(rng.choice(["fcfs", "fcfs", "priority"])),
    }  # fmt: skip
    if not ahead and not rng.integers(3):
        scheduler = {"kind": "sarathi", "max_num_seqs": seats, "chunk_size": budget, "watermark": watermark}
    elif not ahead and not rng.integers(3):
        scheduler = {"kind": str(rng.choice(["sjf", "priority"]))} | policy(scheduler)
    times = np.cumsum(rng.exponential(float(rng.choice([5, 30, 120])), 40)).round(1)
    workload = listed([(float(at), int(rng.integers(1, longest)), int(rng.integers(1, 40))) for at in times])
    for request in workload["requests"]:
        if rng.integers(2):
            request["max_tokens"] = request["output_tokens"] + int(rng.integers(4))
        request["priority"] = int(rng.integers(3))
    blocks = int(rng.choice([few, few + few // 3, 2 * few, 6 * few, 5000]))
    cost = dict(COSTS[int(rng.integers(len(COSTS)))])
    return base(
        scheduler=scheduler, workload=workload, cost_model=cost, kv_cache={"block_size": block, "num_blocks": blocks}
    )


@pytest.mark.parametrize("ahead", [False, True])
def test_express_in_a_crowd(ahead: bool) -> None:
    """Where rules bite, some hundred times: every exception to go by has happened."""
    rng = np.random.default_rng(7)
    for _ in range(300):
        compare(crowded(rng, ahead), int(rng.choice([0, 0, 3])))


def remembered(seed: int) -> dict[str, Any]:
    """A small pool that remembers: what was let go stands in line before what an evicted request computed."""
    rng = np.random.default_rng(seed)
    few, block = int(rng.integers(12, 40)), int(rng.choice([1, 4]))
    most = max(2, few * block * 2 // 3 // 2)
    scheduler = {
        "kind": "vllm", "max_num_seqs": int(rng.choice([2, 3, 6])), "max_num_batched_tokens": int(rng.choice([64, 8192])),
        "enable_prefix_caching": True,
    }  # fmt: skip
    times = np.cumsum(rng.exponential(60, 30)).round(1)
    workload = listed([(float(at), int(rng.integers(1, most)), int(rng.integers(1, most))) for at in times])
    return base(
        scheduler=scheduler, workload=workload, cost_model=dict(FLAT), kv_cache={"block_size": block, "num_blocks": few}
    )


@pytest.mark.parametrize("seed", [283, 350])
def test_what_express_lets_go_stays_in_line(seed: int) -> None:
    """Blocks are evicted in the order in which they were let go, on either path: in these two, one block less or more
    changes what an evicted request must compute again."""
    assert compare(remembered(seed), 0) >= 1


def test_a_hopeless_prompt_is_refused_on_its_arrival() -> None:
    """Eight blocks and a watermark of three do not fit in ten: Sarathi-Serve's rule, which the lane leaves to it."""
    scheduler = {"kind": "sarathi", "watermark": 0.3, "chunk_size": 512}
    rows = [(0.0, 10, 9), (25.0, 120, 3), (30.0, 10, 3), (200.0, 20, 2)]
    given = base(scheduler=scheduler, workload=listed(rows), kv_cache={"block_size": 16, "num_blocks": 10})
    assert compare(given, 0) > 1
    assert simulate(build(given)).summary["rejected"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
@LONG
@given(data=st.data(), patience=st.sampled_from([0, 0, 3, 32]))
def test_express_is_the_plain_path_at_length(ahead: bool, data: st.DataObject, patience: int) -> None:
    """The same thousands of times: `pytest -m slow tests/laws/test_express.py`."""
    compare(data.draw(lanes(ahead)), patience)


@pytest.mark.parametrize("ahead", [False, True])
def test_the_lane_carries_an_uncontended_run_whole(ahead: bool) -> None:
    """Taken once, at the first arrival, and left when the last request has its last token."""
    given = base(scheduler={"kind": "vllm", "async_scheduling": ahead}, workload={
        "requests": 300, "arrivals": {"kind": "poisson", "rate_per_s": 20},
        "prompt_tokens": {"kind": "fixed", "tokens": 100}, "output_tokens": {"kind": "geometric", "mean": 30},
    })  # fmt: skip
    assert compare(given, 32) == 1


def test_where_memory_is_short_it_is_seldom_tried() -> None:
    """Evicted again and again: each try that carries few doubles the wait for the next."""
    given = base(
        kv_cache={"block_size": 16, "num_blocks": 60},
        workload={
            "requests": 400, "arrivals": {"kind": "poisson", "rate_per_s": 2},
            "prompt_tokens": {"kind": "uniform", "mean": 60, "range_ratio": 0.9}, "output_tokens": {"kind": "fixed", "tokens": 150},
        },
    )  # fmt: skip
    assert simulate(build(given)).summary["preemptions"] > 100
    assert 1 < compare(given, 32) < 40


def test_who_hears_of_answers_keeps_it_closed() -> None:
    """Clients with a cap on what they have out, or whose routers look at the replicas, go the plain way."""
    rows = [(0, 10, 3), (5, 10, 3)]
    capped = base(workload=listed(rows, max_concurrency=1))
    fleet = base(workload=listed(rows), replicas=2, router={"kind": "least_requests"})
    assert [compare(given, 0) for given in (capped, fleet)] == [0, 0]
