"""Real input: whole days of a public trace through the three schedulers, to the end, with nobody lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchsim.records import Status
from batchsim.scenario import scenario
from batchsim.simulation import Run, simulate

ROWS = {"conv": 19366, "code": 8819}
SCHEDULERS: dict[str, dict[str, Any]] = {
    "static": {"kind": "static", "batch_size": 32},
    "dynamic": {"kind": "dynamic", "max_batch_size": 32, "max_queue_delay_ms": 50},
    "vllm": {"kind": "vllm"},
}


def run(data: Path, trace: str, scheduler: dict[str, Any]) -> Run:
    """The Azure trace of 2023, llama-3.1-8b on one H100."""
    given = {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "scheduler": scheduler,
        "workload": {
            "kind": "trace",
            "path": str(data / "data" / "traces" / f"AzureLLMInferenceTrace_{trace}.csv"),
            "format": "azure",
        },
    }
    return simulate(scenario(given))


@pytest.mark.parametrize("trace", ROWS)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_whole_trace_runs_to_its_end(data: Path, trace: str, name: str) -> None:
    """Every request of the trace completes with its own tokens; times are in order; counts and tokens are conserved."""
    found = run(data, trace, SCHEDULERS[name])
    requests, summary = found.records.requests, found.summary
    assert len(requests) == ROWS[trace] == summary["submitted"] == summary["completed"]
    assert np.all(requests.status == Status.COMPLETED)
    assert np.array_equal(requests.emitted_tokens, requests.output_tokens)
    assert summary["total_output_tokens"] == int(requests.output_tokens.sum())
    assert summary["total_input_tokens"] == int(requests.prompt_tokens.sum())
    assert np.all(requests.arrival_ns <= requests.admitted_ns)
    assert np.all(requests.admitted_ns < requests.first_token_ns)
    assert np.all(requests.first_token_ns <= requests.finished_ns)
    assert summary["n_itl"] == int((requests.output_tokens - 1).sum())
    rows = found.records.iterations
    assert np.all(rows.kv_blocks_used <= found.records.kv_blocks_total)
    assert np.all(rows.start_ns[1:] >= rows.end_ns[:-1])


def test_continuous_batching_serves_the_conversations_and_the_others_do_not(data: Path) -> None:
    """On the conversation trace p99 TTFT is under a second with continuous batching, minutes with others."""
    p99_s = {name: run(data, "conv", scheduler).summary["p99_ttft_ms"] / 1e3 for name, scheduler in SCHEDULERS.items()}
    assert p99_s["vllm"] < 1
    assert p99_s["dynamic"] > 100 * p99_s["vllm"]
    assert p99_s["static"] > 100 * p99_s["vllm"]
