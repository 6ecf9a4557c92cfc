"""Random small fleets, and how two runs are compared."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from batchsim.records import Records
from batchsim.scenario import Scenario, scenario

Given = dict[str, Any]
ROUTERS = (
    "round_robin", "random", "least_requests", "least_tokens", "power_of_two", "prefix_affinity", "session",
    "central_queue",
)  # fmt: skip
POLICIES = ("priority", "vtc", "sjf", "deadline", "round_robin", "mlfq")
COSTS: tuple[Given, ...] = (
    {"kind": "linear", "base_ms": 10, "prefill_token_ms": 0.1, "decode_seq_ms": 1.0},
    {"kind": "linear", "base_ms": 10},
    {"kind": "linear", "base_ms": 7.3, "context_token_ms": 0.0137},
    {"kind": "calibrated"},
)


def base(**changes: Any) -> Given:
    """A scenario with exact step times and room for everybody; `changes` replace whole sections."""
    return {
        "name": "fleet",
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "cost_model": {"kind": "linear", "base_ms": 10},
        "kv_cache": {"block_size": 16, "num_blocks": 10_000},
        "scheduler": {"kind": "vllm", "enable_prefix_caching": False, "async_scheduling": False},
        "workload": {
            "requests": 100,
            "arrivals": {"kind": "poisson", "rate_per_s": 20},
            "prompt_tokens": {"kind": "uniform", "mean": 40, "range_ratio": 0.5},
            "output_tokens": {"kind": "uniform", "mean": 20, "range_ratio": 0.5},
        },
    } | changes


def listed(rows: list[tuple[float, int, int]], **more: Any) -> Given:
    """Requests written out as (arrival ms, prompt, output)."""
    keys = ("arrival_ms", "prompt_tokens", "output_tokens")
    return {"kind": "list", "requests": [dict(zip(keys, row, strict=True)) for row in rows]} | more


def apart(prefill: Given | None = None, decode: Given | None = None, **terms: Any) -> Given:
    """A disaggregation section with a fast link."""
    return {"prefill": prefill or {}, "decode": decode or {}, "link": {"gb_per_s": 50}} | terms


def drawn(seed: int, shape: str) -> Scenario:
    """A random fleet: `alike`, `unlike` groups, or the sides `apart`; tiny pools, ties, clients that give up."""
    rng = random.Random(seed)
    given = base(
        seed=seed,
        max_model_len=2048,
        workload=_workload(rng),
        scheduler=_scheduler(rng, formers=True),
        cost_model=rng.choice(COSTS),
        kv_cache={"block_size": rng.choice([1, 4, 16]), "num_blocks": rng.choice([40, 100, 1000])},
        router=_router(rng),
        replicas=rng.choice([1, 2, 3, 7]),
    )
    if rng.random() < 0.25:
        given["horizon_s"] = rng.choice([0.1, 0.5, 1.0])
    if shape == "unlike":
        given["fleet"] = [
            {"replicas": rng.randint(1, 3), "kv_cache": {"num_blocks": rng.choice([60, 500])}},
            {"name": "b", "gpu": "a100-80-sxm", "tensor_parallel": rng.choice([1, 2])},
        ]
    if shape == "apart":
        link = {
            "gb_per_s": rng.choice([1, 50]), "latency_ms": rng.choice([0, 1, 0.3]), "per_block_us": rng.choice([0, 100])
        }  # fmt: skip
        prefill: Given = {"replicas": rng.randint(1, 3)}
        if rng.random() < 0.6:
            prefill["scheduler"] = {"kind": "vllm"}
        decode = {"replicas": rng.randint(1, 3), "kv_cache": {"num_blocks": rng.choice([30, 60, 500])}}
        given["disaggregation"] = apart(prefill, decode, link=link, first_token=rng.choice(["prefill", "decode"]))
    return scenario(given)


def _workload(rng: random.Random) -> Given:
    workload: Given = {
        "requests": rng.randint(1, 60),
        "arrivals": {"kind": "poisson", "rate_per_s": rng.choice([5, 50, 200])},
        "prompt_tokens": {"kind": "uniform", "mean": rng.choice([1, 5, 40, 200]), "range_ratio": 0.8},
        "output_tokens": {"kind": "uniform", "mean": rng.choice([1, 3, 20, 60]), "range_ratio": 0.9},
    }
    if rng.random() < 0.4:
        workload["max_tokens"] = rng.choice([30, 100, 10])
    if rng.random() < 0.3:
        workload["shared_prefix_tokens"] = rng.choice([10, 33])
    if rng.random() < 0.4:
        workload["arrivals"] = {"kind": "closed", "concurrency": rng.randint(1, 8), "think_s": rng.choice([0, 0.05])}
    if rng.random() < 0.25:
        workload["cancel_ms"] = rng.choice([20, 100, 300])
    return workload


def _scheduler(rng: random.Random, *, formers: bool) -> Given:
    seats = rng.choice([1, 2, 5, 64])
    pick = rng.random()
    if formers and pick < 0.12:
        return {"kind": "static", "batch_size": rng.choice([1, 3, 8]), "run_to": rng.choice(["longest", "leave"])}
    if formers and pick < 0.24:
        return {"kind": "dynamic", "max_batch_size": rng.choice([1, 3, 8])}
    if pick < 0.36:
        return {"kind": rng.choice(POLICIES), "max_num_seqs": seats}
    scheduler: Given = {
        "kind": "vllm",
        "max_num_seqs": seats,
        "max_num_batched_tokens": max(seats, rng.choice([16, 64, 2048])),
        "enable_prefix_caching": rng.random() < 0.5,
        "async_scheduling": rng.random() < 0.4,
        "policy": rng.choice(["fcfs", "priority"]),
        "watermark": rng.choice([0, 0.05]),
        "long_prefill_token_threshold": rng.choice([0, 0, 8]),
    }
    if rng.random() < 0.2:
        scheduler["max_num_queued_reqs"] = rng.choice([1, 3])
    return scheduler


def _router(rng: random.Random) -> Given:
    kind = rng.choice(ROUTERS)
    router: Given = {"kind": kind}
    if kind != "central_queue" and rng.random() < 0.4:
        router["retry"] = rng.randint(0, 3)
    if kind == "prefix_affinity":
        router |= {
            "mode": rng.choice(["threshold", "cost"]),
            "temperature": rng.choice([0, 0.5]),
            "balance_abs_threshold": rng.choice([0, 64]),
        }
    if kind == "power_of_two":
        router["load"] = rng.choice(["requests", "tokens"])
    return router


def difference(one: Records, other: Records) -> str | None:
    """The first column of requests, or of hand-offs, in which two runs differ."""
    pairs: list[tuple[Any, Any]] = [(one.requests, other.requests), (one.handoffs, other.handoffs)]
    for mine, its in pairs:
        for name in getattr(mine, "__dataclass_fields__", {}):
            left, right = getattr(mine, name), getattr(its, name)
            if not (left == right if isinstance(left, dict) else np.array_equal(left, right)):
                return str(name)
    return None
