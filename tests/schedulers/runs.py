"""Small scenarios for tests of schedulers: a list of requests on a textbook cost model, and what becomes of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from batchsim.scenario.scenario import Scenario, scenario
from batchsim.simulation import Run, simulate

LIN = {"kind": "linear", "base_ms": 10, "prefill_token_ms": 0.1, "decode_seq_ms": 1.0}
TICK = {"kind": "linear", "base_ms": 1}
Row = dict[str, Any]


def listed(
    scheduler: Mapping[str, Any], requests: Sequence[Row], *, blocks: int = 100_000, block_size: int = 16,
    cost: Mapping[str, Any] = LIN, max_model_len: int | None = None,
) -> Scenario:  # fmt: skip
    """A scenario of requests written out; ids that are missing are r0, r1, …"""
    rows = [{"id": f"r{place}", "arrival_ms": 0, **row} for place, row in enumerate(requests)]
    given: dict[str, Any] = {
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "engine": {"overhead_ms": 0}, "cost_model": dict(cost),
        "kv_cache": {"block_size": block_size, "num_blocks": blocks}, "scheduler": dict(scheduler),
        "workload": {"kind": "list", "requests": rows},
    }  # fmt: skip
    return scenario(given if max_model_len is None else {**given, "max_model_len": max_model_len})


def row(prompt: int, output: int, **more: Any) -> Row:
    """A request that declares just what it generates, unless `more` says otherwise."""
    return {"prompt_tokens": prompt, "output_tokens": output, "max_tokens": output, **more}


def ttft_ms(run: Run, place: int) -> float:
    """Time to first token of a request, ms."""
    requests = run.records.requests
    return float(requests.first_token_ns[place] - requests.arrival_ns[place]) / 1e6


def e2e_ms(run: Run, place: int) -> float:
    """From arrival to the last token, ms."""
    requests = run.records.requests
    return float(requests.finished_ns[place] - requests.arrival_ns[place]) / 1e6


def story(run: Run) -> list[dict[str, Any]]:
    """The step log without times."""
    keys = ("sched", "preempted", "finished", "running", "waiting", "free_blocks")
    return [{key: step[key] for key in keys} for step in run.records.step_log or []]


def random_case(seed: int, scheduler: Mapping[str, Any]) -> dict[str, Any]:
    """A random scenario for the oracles on `steps.Server`, one step a millisecond; small pool, long answers."""
    rng = random.Random(seed)
    block = rng.choice([1, 2, 4, 8, 16])
    blocks = rng.choice([rng.randint(3, 12), rng.randint(8, 30), rng.randint(30, 80)])
    span = rng.choice([0, 5, 20, 60])
    rows = []
    for place in range(rng.randint(1, 16)):
        prompt = rng.randint(1, max(1, min(blocks * block // rng.choice([1, 2, 4]), 60)))
        output = rng.randint(1, max(1, min(blocks * block + 1 - prompt, rng.choice([5, 20, 40]))))
        declared = output + (rng.randint(0, 20) if rng.random() < 0.3 else 0)
        arrival = rng.randint(0, span)
        rows.append({"id": f"r{place}", "arrival_ms": arrival, "prompt_tokens": prompt, "output_tokens": output,
                     "max_tokens": min(declared, max(output, blocks * block + 1 - prompt))})  # fmt: skip
    rows.sort(key=lambda each: each["arrival_ms"])
    return {"scheduler": dict(scheduler), "block_size": block, "num_blocks": blocks, "requests": rows}


def play(case: Mapping[str, Any], *, stepwise: bool = True) -> Run:
    """The run of a random case."""
    return simulate(
        listed(
            case["scheduler"], case["requests"], blocks=case["num_blocks"], block_size=case["block_size"], cost=TICK
        ),
        step_log=stepwise,
    )


def rejected(run: Run) -> set[str]:
    """Ids of the requests that were turned away."""
    records = run.records
    return {records.workload.id_of(index) for index in records.requests.reasons}


def check_collapsed(run: Run, case: Mapping[str, Any]) -> None:
    """Runs of equal steps taken as one event give every request the same times, evictions and lost work."""
    collapsed = play(case, stepwise=False).records.requests
    for column in ("status", "admitted_ns", "first_token_ns", "finished_ns", "preemptions", "recomputed_tokens"):
        assert (getattr(collapsed, column) == getattr(run.records.requests, column)).all(), column
