"""The scenarios of published comparisons of schedulers, as batchsim describes them."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from statistics import fmean
from typing import Any

from batchsim.scenario.resolve import resolve
from batchsim.scenario.scenario import Scenario, scenario
from batchsim.simulation import Run, simulate

SEEDS = range(8)
OPT_13B_A100_40 = {
    "kind": "linear",
    "base_ms": 30.8,
    "prefill_token_ms": 0.1405,
    "decode_seq_ms": 0.0607,
    "context_token_ms": 0.00078,
}
BASE: dict[str, Any] = {"model": "opt-13b", "gpu": "a100-40-sxm", "engine": {"overhead_ms": 0}, "max_model_len": 2048}
SMALL_POOL = {"block_size": 16, "num_blocks": 981}


def runs(given: Mapping[str, Any], **changes: Any) -> list[Run]:
    """One run a seed."""
    return [simulate(scenario({**given, **changes, "seed": seed})) for seed in SEEDS]


def mean_of(many: list[Run], key: str) -> float:
    """A figure of the summary, averaged over the seeds."""
    return fmean(run.summary[key] for run in many)


def anyscale(cap: int) -> dict[str, Any]:
    """Anyscale 2023: 1,000 requests at once, outputs exponential up to `cap`."""
    return {
        **BASE,
        "cost_model": OPT_13B_A100_40,
        "kv_cache": SMALL_POOL,
        "workload": {
            "requests": 1000,
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "fixed", "tokens": 512},
            "output_tokens": {"kind": "exponential", "mean": 128, "min": 1, "max": cap},
        },
    }


def longest_output(given: Mapping[str, Any], seed: int) -> int:
    """The longest answer that a workload draws."""
    drawn: Scenario = scenario({**given, "scheduler": {"kind": "vllm"}, "seed": seed})
    return int(resolve(drawn).draw().output_tokens.max())


def paged_attention(scheduler: Mapping[str, Any]) -> dict[str, Any]:
    """PagedAttention 2023: lengths like ShareGPT's at 2 requests a second for half an hour."""
    return {
        **BASE,
        "cost_model": OPT_13B_A100_40,
        "kv_cache": SMALL_POOL,
        "horizon_s": 1800,
        "scheduler": dict(scheduler),
        "workload": {
            "duration_s": 1800,
            "arrivals": {"kind": "poisson", "rate_per_s": 2},
            "prompt_tokens": {"kind": "lognormal", "mean": 215, "sigma": 1.4, "min": 4, "max": 1024},
            "output_tokens": {"kind": "lognormal", "mean": 365, "sigma": 0.9, "min": 4, "max": 2040},
        },
    }


def sarathi_serve(scheduler: Mapping[str, Any]) -> dict[str, Any]:
    """Sarathi-Serve 2024: long prompts at one request a second."""
    return {
        **BASE,
        "max_model_len": 16384,
        "scheduler": dict(scheduler),
        "kv_cache": {"block_size": 16, "num_blocks": 20312},
        "cost_model": {
            "kind": "linear",
            "base_ms": 35,
            "prefill_token_ms": 0.17,
            "decode_seq_ms": 0.15,
            "context_token_ms": 0.0001,
        },
        "workload": {
            "requests": 128,
            "arrivals": {"kind": "poisson", "rate_per_s": 1},
            "prompt_tokens": {
                "kind": "lognormal",
                "mean": 1730 * exp(0.93**2 / 2),
                "sigma": 0.93,
                "min": 16,
                "max": 7168,
            },
            "output_tokens": {
                "kind": "lognormal",
                "mean": 415 * exp(0.545**2 / 2),
                "sigma": 0.545,
                "min": 2,
                "max": 1024,
            },
        },
    }


def stability(scheduler: Mapping[str, Any], rate_per_s: float) -> dict[str, Any]:
    """Steps of 10 ms whatever they hold, 64 tokens each: 100 requests a second of 16 + 48 tokens."""
    return {
        **BASE,
        "cost_model": {"kind": "linear", "base_ms": 10},
        "kv_cache": {"block_size": 16, "num_blocks": 100_000},
        "scheduler": dict(scheduler),
        "workload": {
            "requests": 15_000,
            "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s},
            "prompt_tokens": {"kind": "fixed", "tokens": 16},
            "output_tokens": {"kind": "geometric", "mean": 48},
        },
    }
