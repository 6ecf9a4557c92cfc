"""KV occupancy over time: runs of equal steps count as the steps that they are."""

from __future__ import annotations

import pytest

from batchsim.metrics.throughput import kv_mean_fraction, span_of
from batchsim.scenario import load
from batchsim.simulation import simulate


def test_one_request_fills_its_blocks_evenly() -> None:
    """16 in, 161 out, 10 ms a step, blocks of 16, 100 of them: 1 block first, 11 at the end, 6 of 100 on average."""
    flat = "{kind: linear, base_ms: 10, prefill_token_ms: 0, decode_seq_ms: 0}"
    one = "{kind: list, requests: [{id: a, arrival_ms: 0, prompt_tokens: 16, output_tokens: 161}]}"
    changes = [f"cost_model={flat}", f"workload={one}", "kv_cache={block_size: 16, num_blocks: 100}", "engine=null"]
    records = simulate(load("quickstart", changes)).records
    assert records.iterations.repeats.tolist() == [1, 160]
    assert records.iterations.kv_blocks_first.tolist() == [1, 2]
    assert records.iterations.kv_blocks_used.tolist() == [1, 11]
    exact = (1 * 10 + sum(10 * 16 * blocks for blocks in range(2, 12))) / 1610 / 100
    assert kv_mean_fraction(records, span_of(records)) == pytest.approx((10 * 1 + 1600 * 6.5) / 1610 / 100)
    assert kv_mean_fraction(records, span_of(records)) == pytest.approx(exact, rel=0.001)


@pytest.mark.parametrize("blocks", [300, 4000])
def test_collapsed_runs_are_as_full_as_single_steps(blocks: int) -> None:
    """The mean of a run in which equal steps are one row is that of the same run in single steps, to one per cent."""
    pool = f"kv_cache={{block_size: 16, num_blocks: {blocks}}}"
    prompts = "workload.prompt_tokens={kind: fixed, tokens: 300}"
    changes = ["workload.requests=60", pool, prompts]
    together, single = (simulate(load("quickstart", changes), stepwise=step).records for step in (False, True))
    assert len(together.iterations) < len(single.iterations)
    found, exact = (kv_mean_fraction(records, span_of(records)) for records in (together, single))
    assert found == pytest.approx(exact, rel=0.01)
