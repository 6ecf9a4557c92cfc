"""Draws the timelines of the scheduler pages: `python docs/schedulers/plot_timelines.py [kind …]` writes images/<kind>.png.

All kinds serve the same fourteen requests with four seats, 256 tokens a step and 42 KV blocks of 16, as far as they have
such limits: two long prompts, some long answers, two tenants, two urgent requests; each declares twice what it
generates. A step takes 10 ms, 0.1 ms a prompt token and 1 ms a decode.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from batchsim.records import Records
from batchsim.report.plots import timeline
from batchsim.scenario import kinds
from batchsim.scenario.scenario import scenario
from batchsim.simulation import simulate

IMAGES = Path(__file__).parent / "images"
REQUESTS = (  # arrival ms, prompt, output, tenant, priority
    (0, 60, 90, "a", 1), (20, 40, 60, "a", 1), (40, 500, 20, "a", 1), (60, 30, 120, "a", 1), (80, 50, 15, "a", 1),
    (300, 40, 80, "a", 1), (320, 60, 10, "b", 1), (340, 30, 100, "a", 1), (600, 400, 30, "a", 1), (700, 40, 12, "b", 0),
    (720, 60, 70, "a", 1), (1000, 30, 8, "b", 1), (1300, 50, 60, "a", 1), (1500, 40, 10, "b", 0),
)  # fmt: skip
POLICY = {"max_num_seqs": 4, "max_num_batched_tokens": 256}
KEYS: Mapping[str, Mapping[str, Any]] = {
    "deadline": POLICY | {"ttft_ms": 400, "tpot_ms": 20},
    "dynamic": {"max_batch_size": 4, "max_queue_delay_ms": 30},
    "mlfq": POLICY | {"quanta": [8, 32, 128]},
    "orca": {"max_num_seqs": 4},
    "priority": POLICY | {"preemptive": True},
    "round_robin": POLICY,
    "sarathi": {"max_num_seqs": 4, "chunk_size": 256},
    "sglang": {"max_running_requests": 4, "chunked_prefill_size": 256, "disable_overlap_schedule": True},
    "sjf": POLICY,
    "static": {"batch_size": 4},
    "tensorrt_llm": {"max_batch_size": 4, "max_num_tokens": 256, "enable_chunked_prefill": True},
    "tgi": {"prefill_chunking": False, "max_batch_size": 4, "waiting_served_ratio": 0.5},
    "vllm": POLICY,
    "vllm_v0": {"max_num_seqs": 4, "max_num_batched_tokens": 1024},
    "vtc": POLICY,
}
"""A scheduler that is not named here runs with its defaults."""


def run(kind: str) -> Records:
    """The fourteen requests under a scheduler."""
    rows = [
        {"id": f"r{place}", "arrival_ms": arrival, "prompt_tokens": prompt, "output_tokens": output,
         "max_tokens": 2 * output, "tenant": tenant, "priority": priority}
        for place, (arrival, prompt, output, tenant, priority) in enumerate(REQUESTS)
    ]  # fmt: skip
    return simulate(scenario({
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "engine": {"overhead_ms": 0},
        "cost_model": {"kind": "linear", "base_ms": 10, "prefill_token_ms": 0.1, "decode_seq_ms": 1},
        "kv_cache": {"block_size": 16, "num_blocks": 42},
        "scheduler": {"kind": kind, **KEYS.get(kind, {})}, "workload": {"kind": "list", "requests": rows},
    })).records  # fmt: skip


def figure(kind: str) -> Figure:
    """Who ran when; rows marked with the tenant b and the urgent."""
    made = Figure(figsize=(7.4, 3.1), layout="constrained")
    axes = timeline(run(kind), 0.0, 5.8, ax=made.add_subplot())
    labels = [f"{tenant}{' urgent' if priority == 0 else ''}" for *_, tenant, priority in REQUESTS]
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_ylabel("requests, by arrival")
    axes.set_title(f"{kind}: {axes.get_title(loc='left')}", loc="left", fontsize=10)
    axes.legend(loc="upper right", frameon=False, fontsize=8, handlelength=1)  # where no row reaches
    return made


def main(wanted: Iterable[str]) -> None:
    """Draw the kinds asked for, or all."""
    IMAGES.mkdir(exist_ok=True)
    for kind in list(wanted) or kinds.available("scheduler"):
        figure(kind).savefig(IMAGES / f"{kind}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(sys.argv[1:])
