"""The tables of static-dynamic-continuous.md: `python docs/explanation/static_dynamic_continuous.py` prints them.

The trace files lie in the folder `data/traces` of the one that BATCHSIM_DATA names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import batchsim as bs
from batchsim.report.console import duration, number, percent
from batchsim.scenario import scenario as checked
from batchsim.study.traffic import offered_rate_per_s
from batchsim.study.work import drawn

LEAVE = {"kind": "dynamic", "max_queue_delay_ms": 50, "run_to": "leave", "pad_prompts": False}
SCHEDULERS: dict[str, dict[str, Any]] = {
    "static, 32": {"kind": "static", "batch_size": 32},
    "static, 128": {"kind": "static", "batch_size": 128},
    "dynamic, 32, delay 50 ms": {"kind": "dynamic", "max_batch_size": 32, "max_queue_delay_ms": 50},
    "dynamic, 32, finished members leave, no padding": LEAVE | {"max_batch_size": 32},
    "dynamic, 256, finished members leave, no padding": LEAVE | {"max_batch_size": 256},
    "continuous (`vllm`)": {"kind": "vllm"},
    "continuous, budget 512": {"kind": "vllm", "max_num_batched_tokens": 512},
}
CODE = ("static, 32", "dynamic, 32, delay 50 ms", "continuous (`vllm`)")
Form = Callable[[Mapping[str, Any]], str]


def _time(key: str) -> Form:
    return lambda summary: duration(summary[key])


COMMON: dict[str, Form] = {
    "TTFT p50": _time("p50_ttft_ms"), "TTFT p99": _time("p99_ttft_ms"),
    "TPOT p50": _time("p50_tpot_ms"), "TPOT p99": _time("p99_tpot_ms"), "longest gap": _time("max_itl_ms"),
    "E2E p50": _time("p50_e2el_ms"), "req/s": lambda summary: number(summary["request_throughput"]),
    "mean running": lambda summary: number(summary["mean_running"]),
    "GPU busy": lambda summary: percent(summary["gpu_busy_fraction"]),
    "computed for nobody": lambda summary: percent(summary.get("padded_fraction") or 0.0),
    "keeps up": lambda summary: "yes" if summary["stable"] else "no",
}  # fmt: skip


def scenario(trace: str, scheduler: Mapping[str, Any]) -> bs.Scenario:
    """A whole trace through one scheduler."""
    path = Path(os.environ["BATCHSIM_DATA"], "data", "traces", f"AzureLLMInferenceTrace_{trace}.csv")
    return checked({
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "scheduler": dict(scheduler),
        "workload": {"kind": "trace", "path": str(path), "format": "azure"},
    })  # fmt: skip


@cache
def summary(trace: str, name: str) -> Mapping[str, Any]:
    """What a run of the trace says."""
    found: Mapping[str, Any] = bs.simulate(scenario(trace, SCHEDULERS[name])).summary
    assert found["completed"] == found["submitted"]
    return found


def _table(trace: str, names: tuple[str, ...]) -> str:
    lines = ["| scheduler | " + " | ".join(COMMON) + " |\n", "|---" * (len(COMMON) + 1) + "|\n"]
    for name in names:
        found = summary(trace, name)
        lines.append(f"| {name} | " + " | ".join(form(found) for form in COMMON.values()) + " |\n")
    return "".join(lines)


def conversations() -> str:
    """Seven schedulers on the conversations."""
    return _table("conv", tuple(SCHEDULERS))


def code() -> str:
    """Three on the code completions."""
    return _table("code", CODE)


def traffic() -> str:
    """What the two traces are."""
    lines = [
        "| trace | requests | minutes | req/s | prompt tokens, mean | output tokens, mean |\n",
        "|---|---|---|---|---|---|\n",
    ]
    for name, trace in (("conversations", "conv"), ("code completions", "code")):
        work = drawn(scenario(trace, {"kind": "vllm"}))
        rate = offered_rate_per_s(work)
        minutes = float(work.arrival_ns.max() - work.arrival_ns.min()) / 60e9
        means = " | ".join(f"{lengths.mean():,.0f}" for lengths in (work.prompt_tokens, work.output_tokens))
        lines.append(f"| {name} | {len(work):,} | {minutes:.0f} | {number(rate)} | {means} |\n")
    return "".join(lines)


TABLES = {"traffic": traffic, "conversations": conversations, "code": code}

if __name__ == "__main__":
    for name, table in TABLES.items():
        print(f"{name}\n{table()}")  # noqa: T201 - a script
