"""A run ends or says why not: schedulers that stand still are found out, honest thrashing is left alone."""

from __future__ import annotations

import pytest

from batchsim.errors import NoProgress
from batchsim.scenario import scenario
from batchsim.simulation import simulate
from tests.laws.scenarios import FLAT, base, listed

STANDSTILL = ["NeverAdmits", "WaitsForever", "WaitsForNow", "ForgetsTheRunning", "EvictsForever", "EvictsAtOnce"]


@pytest.mark.parametrize("name", STANDSTILL)
@pytest.mark.parametrize("stepwise", [False, True])
def test_no_progress_is_found_out(name: str, stepwise: bool) -> None:
    """A scheduler that never admits, waits, forgets or evicts for ever ends the run with an error that names it."""
    kind = f"tests.laws.outside:{name}"
    given = base(scheduler={"kind": kind}, workload=listed([(0, 9, 3), (4, 9, 3)]), kv_cache={"num_blocks": 4})
    with pytest.raises(NoProgress, match=name):
        simulate(scenario(given), stepwise=stepwise)


@pytest.mark.parametrize("name", ["NeverAdmits", "WaitsForever", "ForgetsTheRunning"])
@pytest.mark.parametrize("stepwise", [False, True])
def test_standing_still_until_a_horizon_is_said(name: str, stepwise: bool) -> None:
    """With a horizon the run ends there, keeps who is left over, and warns that nothing was left to happen."""
    kind = f"tests.laws.outside:{name}"
    given = base(scheduler={"kind": kind}, workload=listed([(0, 9, 3), (4, 9, 3)]), horizon_s=5.0)
    found = simulate(scenario(given), stepwise=stepwise)
    assert found.summary["running_at_end"] + found.summary["waiting_at_end"] == 2
    assert any(text.startswith(f"no progress: scheduler '{kind}' stands still") for text in found.summary["warnings"])


@pytest.mark.parametrize("kind", ["static", "vllm"])
def test_a_run_that_a_horizon_cuts_is_not_called_stuck(kind: str) -> None:
    """Steps under way, and a batch that waits by the clock, are progress."""
    scheduler = {"kind": kind} | ({"batch_size": 8, "max_wait_ms": 1e5} if kind == "static" else {})
    given = base(scheduler=scheduler, workload=listed([(0, 9, 900), (4, 9, 900), (6000, 9, 3)]), horizon_s=0.05)
    found = simulate(scenario(given))
    assert found.records.stuck is None
    assert found.summary["running_at_end"] + found.summary["waiting_at_end"] == 2


def test_thrashing_beside_a_request_that_gets_on_is_progress() -> None:
    """A long prompt evicted again and again while an older request takes its tokens: vLLM does so, and ends.

    Pool 10,000 of block size 1; A decodes 4,900 tokens beside B, whose 6,000 never fit until A has left.
    """
    scheduler = {
        "kind": "vllm",
        "max_num_seqs": 8,
        "max_num_batched_tokens": 2048,
        "scheduler_reserve_full_isl": False,
        "enable_prefix_caching": False,
        "async_scheduling": False,
    }
    given = base(
        cost_model=dict(FLAT),
        kv_cache={"block_size": 1, "num_blocks": 10_000},
        scheduler=scheduler,
        workload=listed([(0, 5000, 4900), (1, 6000, 1)]),
    )
    found = simulate(scenario(given))
    assert found.summary["completed"] == 2
    assert found.summary["recomputed_tokens"] > 20 * 20_000


def test_a_replica_survives_a_thousand_evictions_at_one_instant() -> None:
    """Evicting many in one plan is one plan, however many they are."""
    given = base(
        kv_cache={"block_size": 1, "num_blocks": 2001},
        scheduler={"kind": "vllm", "max_num_seqs": 3000, "max_num_batched_tokens": 8192},
        workload=listed([(0, 1, 2)] * 2000),
    )
    found = simulate(scenario(given))
    assert found.summary["completed"] == 2000
    assert found.summary["preemptions"] > 900
