"""The laws of `laws.py` on every scheduler that there is, and on plug-ins from outside, over random scenarios."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchsim.errors import NoProgress
from batchsim.records import Status
from batchsim.scenario import Scenario
from batchsim.simulation import Run, simulate
from tests.laws.laws import EVERY_RUN, same_results
from tests.laws.scenarios import SCHEDULERS, build, scenarios

PLUGINS = [f"tests.laws.outside:{name}" for name in ("Naive", "LargestFirst", "EveryOther", "Holder", "TurnsAway")]
KINDS = SCHEDULERS + PLUGINS
QUICK = settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck), print_blob=True)
LONG = settings(QUICK, max_examples=3000)


def check(kind: str, data: st.DataObject) -> None:
    """One random scenario."""
    hold(data.draw(scenarios(kind)))


def hold(scenario: Scenario) -> None:
    """The laws on the step log of a scenario, and the same results however it is run."""
    try:
        logged = simulate(scenario, step_log=True)
    except NoProgress:
        scenario = build(scenario.given | {"horizon_s": 1000})  # until then laws hold
        logged = simulate(scenario, step_log=True)
    assert logged.records.stuck is None or _may_stand_still(logged), logged.records.stuck
    for law in EVERY_RUN:
        law(logged)
    plain = simulate(scenario)
    same_results(plain, logged)
    same_results(plain, simulate(scenario, stepwise=True))


def _may_stand_still(run: Run) -> bool:
    """Whether the engine that the scheduler copies would hang as well: that the run says so is all that can be asked.

    The releases of `early_release` did, on an evicted request that had grown beyond the watermark. vLLM with chunking off does,
    on one that has grown beyond the token budget: it is never taken again and blocks all behind it, which is why vLLM refuses to
    start where the budget is less than max_model_len.
    """
    scheduler, requests = run.resolved.scheduler(), run.records.requests
    if getattr(scheduler, "early_release", False):
        return True
    if run.resolved.scheduler_kind != "vllm" or scheduler.enable_chunked_prefill:
        return False
    budget = min(scheduler.max_num_batched_tokens, scheduler.max_num_scheduled_tokens or 1 << 60)
    evicted = (requests.status == Status.WAITING) & (requests.preemptions > 0)
    known = run.records.workload.prompt_tokens + requests.emitted_tokens
    return bool((evicted & (known > budget)).any())


@pytest.mark.parametrize("kind", KINDS)
@QUICK
@given(data=st.data())
def test_every_run_keeps_the_laws(kind: str, data: st.DataObject) -> None:
    """Every law of a run holds, and stepped, collapsed and logged runs agree to the nanosecond."""
    check(kind, data)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@LONG
@given(data=st.data())
def test_every_run_keeps_the_laws_at_length(kind: str, data: st.DataObject) -> None:
    """The same over thousands of scenarios: `pytest -m slow tests/laws`."""
    check(kind, data)
