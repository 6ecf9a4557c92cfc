"""A fleet behind a router that looks at nothing runs as single replicas, each in a world of its own: nothing changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchsim import assembly
from batchsim.recorder import Recorder
from batchsim.scenario.resolve import resolve
from batchsim.simulation import Run, simulate
from tests.laws.laws import same_results
from tests.laws.scenarios import COSTS, ENGINES, SCHEDULERS, base, build, listed, open_loops, schedulers, traffic

QUICK = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck), print_blob=True)
ROUTERS = [{"kind": "round_robin"}, {"kind": "random"}]


def together(given: dict[str, Any]) -> Run:
    """The same run with all replicas on one clock, behind the router."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly._Build, "apart", lambda self: None)
        return simulate(build(given))


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Any]:
    """Two to four replicas of any scheduler, clients that send by the clock, some requests that nobody can serve."""
    time = st.sampled_from([0, 10, 20, 20.1, 30, 55, 110, 300])
    rows = st.lists(st.tuples(time, st.integers(1, 70), st.integers(1, 20)), min_size=1, max_size=25)
    arrivals = draw(open_loops())
    size = {"duration_s": 1.0} if arrivals["kind"] == "piecewise" else {"requests": draw(st.integers(1, 40))}
    return base(
        replicas=draw(st.integers(2, 4)), router=dict(draw(st.sampled_from(ROUTERS))),
        engine=dict(draw(st.sampled_from(ENGINES))), cost_model=dict(draw(st.sampled_from(COSTS))),
        scheduler=draw(schedulers(draw(st.sampled_from(SCHEDULERS)))),
        kv_cache={"block_size": 4, "num_blocks": draw(st.sampled_from([40, 60, 5000]))},
        workload=draw(st.one_of(rows.map(listed), st.just(size | {"arrivals": arrivals} | draw(traffic(60, 20))))),
        horizon_s=draw(st.sampled_from([None, None, 0.05, 0.3])),
        max_model_len=draw(st.sampled_from([None, 75])),
    )  # fmt: skip


@QUICK
@given(given=fleets())
def test_apart_is_together(given: dict[str, Any]) -> None:
    """Every request's times, counts and replica, and the summary."""
    run = simulate(build(given))
    same_results(run, together(given))
    assert run.records.requests.replica.max() < given["replicas"]


@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: router["kind"])
def test_where_they_go(router: dict[str, Any]) -> None:
    """By the thousand, the same replica for each; the rejected at the door are of nobody's turn."""
    rows = [(float(n), 80 if n % 7 == 3 else 10, 5) for n in range(1000)]
    given = base(replicas=3, router=router, workload=listed(rows), max_model_len=50)
    one, other = simulate(build(given)), together(given)
    assert np.array_equal(one.records.requests.replica, other.records.requests.replica)
    assert set(one.records.requests.replica.tolist()) == {0, 1, 2}
    assert one.summary["rejected"] == sum(prompt == 80 for _, prompt, _ in rows)


def test_a_static_batch_waits_for_arrivals_that_go_elsewhere() -> None:
    """No replica knows that the rest of the workload is not for it: its last batch is cut when the last arrival has come."""
    rows = [(0.0, 10, 2), (1.0, 10, 2), (2.0, 10, 2), (500.0, 10, 2)]
    given = base(replicas=2, scheduler={"kind": "static", "batch_size": 3}, workload=listed(rows))
    run = simulate(build(given))
    assert (run.records.requests.admitted_ns >= 500_000_000).all()
    same_results(run, together(given))


def test_who_listens_stays_together() -> None:
    """Clients that wait for answers, retries, and routers that look need all replicas on one clock."""
    rows = [(0.0, 10, 3), (5.0, 10, 3)]
    for more in (
        {"workload": listed(rows, max_concurrency=1)},
        {"workload": listed(rows), "router": {"kind": "round_robin", "retry": 1}},
        {"workload": listed(rows), "router": {"kind": "least_requests"}},
    ):
        resolved = resolve(build(base(replicas=2, **more)))
        made = assembly.assemble(resolved, resolved.draw(), Recorder(), stepwise=False)
        assert len(made.worlds) == 1
