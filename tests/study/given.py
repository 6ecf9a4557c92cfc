"""Scenarios of the tests of studies, small enough to know their answers."""

from __future__ import annotations

from typing import Any

from batchsim.scenario import Scenario, scenario

LINEAR = {"kind": "linear", "base_ms": 10, "prefill_token_ms": 0.1, "decode_seq_ms": 1.0}


def given(**changes: Any) -> dict[str, Any]:
    """A plain continuous batcher on textbook costs; keys changed as given."""
    values: dict[str, Any] = {
        "name": "study",
        "seed": 1,
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "engine": {"overhead_ms": 0},
        "cost_model": LINEAR,
        "kv_cache": {"block_size": 16, "num_blocks": 100_000},
        "scheduler": {
            "kind": "vllm", "max_num_seqs": 256, "max_num_batched_tokens": 8192, "enable_prefix_caching": False,
            "async_scheduling": False,
        },
        "workload": {
            "requests": 300,
            "arrivals": {"kind": "poisson", "rate_per_s": 4},
            "prompt_tokens": {"kind": "fixed", "tokens": 100},
            "output_tokens": {"kind": "fixed", "tokens": 10},
        },
    }  # fmt: skip
    return values | changes


def small(**changes: Any) -> Scenario:
    """The same, checked."""
    return scenario(given(**changes))


def one_at_a_time(requests: int = 2_000, rate_per_s: float = 10.0, ttft_ms: float = 1310.0, **changes: Any) -> Scenario:
    """Case C02: replicas that serve one request a second, one at a time (100 steps of 10 ms)."""
    values = given(
        cost_model={"kind": "linear", "base_ms": 10, "prefill_token_ms": 0, "decode_seq_ms": 0},
        slo={"ttft_ms": ttft_ms, "percentile": 99},
        price={"gpu_hour": 2.0},
        workload={
            "requests": requests,
            "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s},
            "prompt_tokens": {"kind": "fixed", "tokens": 1},
            "output_tokens": {"kind": "fixed", "tokens": 100},
        },
        **changes,
    )
    values["scheduler"]["max_num_seqs"] = 1
    return scenario(values)


def one_step(ttft_ms: float, rate_per_s: float = 10.0, requests: int = 20_000, **workload: Any) -> Scenario:
    """Case C02 in one step a request: service takes exactly 1 s, so TTFT is the wait and 1,000 ms."""
    values = given(
        cost_model={"kind": "linear", "base_ms": 1000, "prefill_token_ms": 0, "decode_seq_ms": 0},
        slo={"ttft_ms": ttft_ms, "percentile": 99},
        workload={
            "requests": requests,
            "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s},
            "prompt_tokens": {"kind": "fixed", "tokens": 1},
            "output_tokens": {"kind": "fixed", "tokens": 1},
        }
        | workload,
    )
    values["scheduler"]["max_num_seqs"] = 1
    return scenario(values)
