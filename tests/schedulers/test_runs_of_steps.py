"""Runs of equal steps taken as one event end where single steps do, under every scheduler of this folder."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from batchsim.scenario.scenario import scenario
from batchsim.simulation import simulate

SCHEDULERS: dict[str, dict[str, Any]] = {
    "vllm_v0": {"kind": "vllm_v0", "max_num_batched_tokens": 2048, "max_num_seqs": 48},
    "vllm_v0 early": {"kind": "vllm_v0", "max_num_batched_tokens": 2048, "early_release": True},
    "vllm_v0 priority": {"kind": "vllm_v0", "max_num_batched_tokens": 2048, "policy": "priority"},
    "vllm_v0 delay": {"kind": "vllm_v0", "max_num_batched_tokens": 2048, "scheduler_delay_factor": 2.5},
    "sarathi": {"kind": "sarathi", "chunk_size": 128},
    "sarathi alternating": {"kind": "sarathi", "chunk_size": 128, "hybrid": False},
    "orca": {"kind": "orca"},
    "orca buddy": {"kind": "orca", "reserve": "pow2", "allocator": "buddy"},
    "tgi": {"kind": "tgi", "max_batch_prefill_tokens": 256},
    "tgi unchunked": {"kind": "tgi", "max_batch_prefill_tokens": 2048, "prefill_chunking": False},
    "no evict": {"kind": "tensorrt_llm", "max_num_tokens": 2048},
    "greedy": {"kind": "tensorrt_llm", "capacity_scheduler_policy": "MAX_UTILIZATION", "max_num_tokens": 2048},
    "greedy chunked": {
        "kind": "tensorrt_llm",
        "capacity_scheduler_policy": "MAX_UTILIZATION",
        "max_num_tokens": 256,
        "enable_chunked_prefill": True,
        "context_chunking_policy": "EQUAL_PROGRESS",
    },
    "static": {"kind": "tensorrt_llm", "capacity_scheduler_policy": "STATIC_BATCH", "max_num_tokens": 2048},
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_collapsed_equals_stepped(name: str) -> None:
    """Every column of every request is the same to the nanosecond, with memory short and contexts priced."""
    given = scenario(
        {
            "model": "opt-13b",
            "gpu": "a100-40-sxm",
            "seed": 3,
            "max_model_len": 1024,
            "scheduler": SCHEDULERS[name],
            "cost_model": {
                "kind": "linear",
                "base_ms": 7.3,
                "prefill_token_ms": 0.11,
                "decode_seq_ms": 0.37,
                "context_token_ms": 0.0013,
            },
            "kv_cache": {"block_size": 16, "num_blocks": 160},
            "workload": {
                "mix": [
                    {
                        "name": "a",
                        "share": 0.5,
                        "priority": 1,
                        "prompt_tokens": {"kind": "exponential", "mean": 90, "max": 500},
                        "output_tokens": {"kind": "geometric", "mean": 80, "max": 400},
                        "max_tokens": 400,
                    },
                    {
                        "name": "b",
                        "share": 0.5,
                        "prompt_tokens": {"kind": "fixed", "tokens": 40},
                        "output_tokens": {"kind": "geometric", "mean": 120, "max": 400},
                        "max_tokens": 400,
                    },
                ],
                "requests": 250,
                "arrivals": {"kind": "poisson", "rate_per_s": 4},
            },
        }
    )
    collapsed, stepped = simulate(given), simulate(given, stepwise=True)
    assert len(collapsed.records.iterations) < len(stepped.records.iterations)
    assert int(collapsed.records.iterations.repeats.sum()) == int(stepped.records.iterations.repeats.sum())
    for column in fields(collapsed.records.requests):
        mine, other = (getattr(run.records.requests, column.name) for run in (collapsed, stepped))
        assert np.array_equal(mine, other) if isinstance(mine, np.ndarray) else mine == other, column.name
    for figure in ("max_itl_ms", "p99_itl_ms", "mean_running", "mean_waiting"):
        assert collapsed.summary[figure] == pytest.approx(stepped.summary[figure], rel=1e-9)
