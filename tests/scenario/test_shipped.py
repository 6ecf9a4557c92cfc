"""The scenarios that ship: each opens with its question, runs as it stands, and shows what its comment says.

They run here with fewer requests; the direction of each effect, and roughly its size, must stay.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from batchsim import load, plan, simulate

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))
NOT_RUN = ("plan-conversations",)
Summary = Mapping[str, Any]


@functools.cache
def run(name: str, requests: int, *changes: str) -> Summary:
    """The summary of a scenario's run with that many requests."""
    return simulate(load(FOLDER / f"{name}.yaml", [f"workload.requests={requests}", *changes])).summary


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_opens_with_its_question_and_has_its_files_name(file: Path) -> None:
    """The question ends in the first two lines, and every command in the comment is of this file."""
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    comment = [line for line in lines if line.startswith("#")]
    assert "?" in " ".join(comment[:2]) or file.stem == "quickstart"
    for line in comment:
        if line.startswith("#   batchsim"):
            assert f"scenarios/{file.name}" in line
    assert load(file).settings.name == file.stem


@pytest.mark.parametrize("file", [file for file in FILES if file.stem not in NOT_RUN], ids=lambda file: file.stem)
def test_a_scenario_runs(file: Path) -> None:
    """A hundred requests of it all complete."""
    summary = run(file.stem, 100)
    assert summary["completed"] == 100


def test_static_tail_waste() -> None:
    """Two thirds of the tokens are for nobody and the queue grows; when members leave, nothing is wasted."""
    held = run("static-tail-waste", 800)
    left = run("static-tail-waste", 800, "scheduler.run_to=leave", "scheduler.pad_prompts=false")
    assert held["padded_fraction"] > 0.6
    assert left["padded_fraction"] == 0
    assert held["p50_ttft_ms"] > 2 * left["p50_ttft_ms"]
    assert held["request_throughput"] < left["request_throughput"]


def test_dynamic_delay_at_low_load() -> None:
    """Nearly the whole delay of 100 ms is added to the median time to the first token."""
    waits, goes = run("dynamic-delay-low", 300), run("dynamic-delay-low", 300, "scheduler.max_queue_delay_ms=0")
    assert 90 < waits["p50_ttft_ms"] - goes["p50_ttft_ms"] <= 100


def test_dynamic_delay_at_high_load() -> None:
    """The delay changes throughput and median wait by less than a tenth: batches are full anyway."""
    waits, goes = run("dynamic-delay-high", 1000), run("dynamic-delay-high", 1000, "scheduler.max_queue_delay_ms=0")
    assert waits["mean_waiting"] > 32
    for key in ("request_throughput", "p50_ttft_ms"):
        assert waits[key] == pytest.approx(goes[key], rel=0.1)


def test_continuous() -> None:
    """Against request-level batching: more served, fewer running, the median wait a hundredth."""
    joined, formed = run("continuous", 800), run("continuous", 800, "scheduler.kind=dynamic")
    assert joined["request_throughput"] > formed["request_throughput"]
    assert joined["mean_running"] < formed["mean_running"]
    assert joined["p50_ttft_ms"] < formed["p50_ttft_ms"] / 100


def test_prefill_stalls() -> None:
    """Chunks of 512 shorten the longest gap more than five times; long prompts wait longer for their first token."""
    whole, chunked = run("prefill-stalls", 400), run("prefill-stalls", 400, "scheduler.max_num_batched_tokens=512")
    assert whole["max_itl_ms"] > 5 * chunked["max_itl_ms"]
    assert whole["classes"]["document"]["p50_ttft_ms"] < chunked["classes"]["document"]["p50_ttft_ms"]


def test_kv_ceiling() -> None:
    """The cache is full with about a dozen running of 256 seats; half the bytes let nearly twice as many run."""
    bf16, fp8 = run("kv-ceiling", 60), run("kv-ceiling", 60, "kv_cache.dtype=fp8")
    assert bf16["kv_peak_fraction"] > 0.95
    assert bf16["mean_running"] < 16
    assert bf16["mean_waiting"] > 10
    assert fp8["mean_running"] > 1.5 * bf16["mean_running"]


def test_preemption_thrash() -> None:
    """Full seats compute much twice and stop streams for seconds; fewer never do, and serve less."""
    full, few = run("preemption-thrash", 120), run("preemption-thrash", 120, "scheduler.max_num_seqs=12")
    assert full["recomputed_fraction"] > 0.3
    assert full["max_itl_ms"] > 1000
    assert few["preemptions"] == 0
    assert few["max_itl_ms"] < 20
    assert few["request_throughput"] < full["request_throughput"]


def test_throughput_against_p99() -> None:
    """Up to 20 requests a second all is served while the share within targets falls; at 32 no more is served."""
    rates = [run("throughput-against-p99", 1000, f"workload.arrivals.rate_per_s={rate}") for rate in (8, 20, 32)]
    light, loaded, over = rates
    assert light["slo_attainment"] > 0.99 > 0.7 > loaded["slo_attainment"]
    assert loaded["request_throughput"] > 0.9 * 20
    assert over["request_throughput"] < 28
    assert over["request_goodput"] < light["request_goodput"]


def test_bursts() -> None:
    """Clumps at the same mean rate multiply the median and the 99th percentile of the wait."""
    clumps, even = run("bursts", 1500), run("bursts", 1500, "workload.arrivals.burstiness=1")
    assert clumps["p99_ttft_ms"] > 2.5 * even["p99_ttft_ms"]
    assert clumps["p50_ttft_ms"] > 2 * even["p50_ttft_ms"]


def test_tenants() -> None:
    """Fair shares cut the small tenant's median wait more than ten times; the large one's grows."""
    first, fair = run("tenants", 600), run("tenants", 600, "scheduler.kind=vtc")
    assert first["classes"]["small"]["p50_ttft_ms"] > 10 * fair["classes"]["small"]["p50_ttft_ms"]
    assert first["classes"]["large"]["p50_ttft_ms"] < fair["classes"]["large"]["p50_ttft_ms"]


def test_priority() -> None:
    """More than 95 % of the interactive requests are in time instead of fewer than 90 %; the job waits longer."""
    ranked, queued = run("priority", 1000), run("priority", 1000, "scheduler.policy=fcfs")
    assert queued["classes"]["interactive"]["slo_attainment"] < 0.9
    assert ranked["classes"]["interactive"]["slo_attainment"] > 0.95
    assert queued["classes"]["interactive"]["p99_ttft_ms"] > 2 * ranked["classes"]["interactive"]["p99_ttft_ms"]
    assert queued["classes"]["job"]["mean_ttft_ms"] < ranked["classes"]["job"]["mean_ttft_ms"]


def test_long_among_short() -> None:
    """Shortest first cuts the short ones' mean wait to less than half; the long ones wait longer."""
    order = run("long-among-short", 1000)
    short = run("long-among-short", 1000, "scheduler.kind=sjf", "scheduler.predictor=oracle")
    assert order["classes"]["short"]["mean_ttft_ms"] > 2 * short["classes"]["short"]["mean_ttft_ms"]
    assert order["classes"]["long"]["mean_ttft_ms"] < short["classes"]["long"]["mean_ttft_ms"]


def test_disaggregation() -> None:
    """No stream stalls behind a prompt: the longest gap falls several times against the same four GPUs together."""
    apart = run("disaggregation", 600)
    together = run("disaggregation", 600, "disaggregation=null", "replicas=4")
    assert together["max_itl_ms"] > 2.5 * apart["max_itl_ms"]


def test_plan_conversations() -> None:
    """One replica misses the targets at 20 requests a second; the plan is minimal and costs what its GPUs cost."""
    found = plan(load(FOLDER / "plan-conversations.yaml", ["workload.requests=600"]), max_replicas=8, seeds=1)
    whole = found.to_dict()
    assert found.status == "plan"
    assert found.replicas is not None
    assert found.replicas > 1
    assert {entry["replicas"]: entry["passes"] for entry in whole["evidence"]}[found.replicas - 1] is False
    assert whole["cost_per_hour"] == 2.0 * found.replicas
