"""The laws of `laws.py` on every scheduler that there is, and on plug-ins from outside, over random scenarios."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchsim.errors import NoProgress
from batchsim.simulation import simulate
from tests.laws.laws import EVERY_RUN, same_results
from tests.laws.scenarios import SCHEDULERS, scenarios

PLUGINS = [f"tests.laws.outside:{name}" for name in ("Naive", "LargestFirst", "EveryOther", "Holder", "TurnsAway")]
KINDS = SCHEDULERS + PLUGINS
QUICK = settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck), print_blob=True)
LONG = settings(QUICK, max_examples=3000)


def check(kind: str, data: st.DataObject) -> None:
    """One random scenario: the laws on its step log, and the same results however it is run."""
    scenario = data.draw(scenarios(kind))
    try:
        logged = simulate(scenario, step_log=True)
    except NoProgress:
        if getattr(scenario.scheduler, "early_release", False):  # those releases did hang on an evicted request that
            return  # had grown beyond the watermark; that the run says so is all that can be asked
        raise
    assert logged.records.stuck is None or getattr(scenario.scheduler, "early_release", False)
    for law in EVERY_RUN:
        law(logged)
    plain = simulate(scenario)
    same_results(plain, logged)
    same_results(plain, simulate(scenario, stepwise=True))


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
