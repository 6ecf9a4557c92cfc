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
