"""Cases about KV memory and preemption: A01, A03, A05, A06, A07, A20."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchsim.catalog import gpu, model
from batchsim.cli import main
from batchsim.kv.capacity import KvSettings, kv_capacity
from batchsim.records import Status
from tests.cases.running import BUILT, FLAT, PLAIN, listed, ms, run, text

SMALL = f"kind: vllm, max_num_seqs: 256, max_num_batched_tokens: {{}}, {PLAIN}"


def test_a01_what_can_never_fit_is_rejected_with_both_numbers() -> None:
    """A01: 209 tokens need 14 blocks of 16, the cache has 10; the request behind it is served as if alone."""
    found = run(text(listed([("r0", 0, 200, 10), ("r1", 1, 32, 4)]), blocks=10))
    assert found.records.requests.status.tolist() == [Status.REJECTED, Status.COMPLETED]
    reason = found.records.requests.reasons[0]
    assert "14" in reason
    assert "10" in reason
    assert ms(found, "ttft_ms")["r1"] == pytest.approx(13.2)
    assert ms(found, "e2e_ms")["r1"] == pytest.approx(46.2)
    assert [found.summary[k] for k in ("submitted", "completed", "rejected", "failed")] == [2, 1, 1, 1]


@pytest.mark.parametrize("kind", BUILT)
def test_a01_for_every_scheduler(kind: str) -> None:
    """The kind behind A01: whoever schedules, the impossible request is turned away and the other served."""
    found = run(text(listed([("r0", 0, 200, 10), ("r1", 1, 32, 4)]), scheduler=f"kind: {kind}", blocks=10))
    assert found.records.requests.status.tolist() == [Status.REJECTED, Status.COMPLETED]


def test_a01_nothing_completed_is_a_full_report_and_exit_3(tmp_path: Path) -> None:
    """A01 with the impossible request alone: zero completions, undefined latencies are null, exit code 3."""
    path = tmp_path / "a01.yaml"
    path.write_text(text(listed([("r0", 0, 200, 10)]), blocks=10))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "--json", "--out", str(tmp_path / "out")])
    assert ended.value.code == 3
    written = json.loads((tmp_path / "out" / "summary.json").read_text())
    found = run(path.read_text()).summary
    assert found["completed"] == written["completed"] == 0
    assert written["rejected"] == 1
    for name in ("ttft", "tpot", "itl", "e2el"):
        assert found[f"mean_{name}_ms"] is found[f"p99_{name}_ms"] is written[f"mean_{name}_ms"] is None


def test_a03_small_cache_beyond_capacity() -> None:
    """A03: twice the capacity on 125 blocks: 85 preemptions, 23,942 tokens again, 4,625 steps, and an end."""
    rows = [(f"r{i}", 200 * i, 256, 128) for i in range(200)]
    found = run(text(listed(rows), scheduler=SMALL.format(2048), blocks=125), step_log=True)
    assert [found.summary[k] for k in ("completed", "preemptions", "recomputed_tokens", "iterations")] == [
        200,
        85,
        23942,
        4625,
    ]
    assert int(found.records.requests.preemptions.max()) == 2
    assert int(found.records.requests.finished_ns.max()) == 79_087_700_000
    assert found.records.step_log is not None
    assert found.records.step_log[-1]["free_blocks"] == 125
    assert len(found.summary["warnings"]) < 6  # counted, not one a failed attempt


@pytest.mark.parametrize("kind", BUILT)
def test_a03_for_every_scheduler(kind: str) -> None:
    """Whoever schedules: all complete, in fewer than 10,000 steps, with single digits of preemptions a request."""
    rows = [(f"r{i}", 200 * i, 256, 128) for i in range(200)]
    found = run(text(listed(rows), scheduler=f"kind: {kind}", blocks=125))
    assert found.summary["completed"] == 200
    assert found.summary["iterations"] < 10_000
    assert int(found.records.requests.preemptions.max()) < 10


def test_a03_with_the_prefix_cache() -> None:
    """A03 with caching on: the same evictions and steps, 78,202.9 ms."""
    rows = [(f"r{i}", 200 * i, 256, 128) for i in range(200)]
    scheduler = "kind: vllm, max_num_batched_tokens: 2048, enable_prefix_caching: true, async_scheduling: false"
    found = run(text(listed(rows), scheduler=scheduler, blocks=125))
    assert [found.summary[k] for k in ("preemptions", "iterations")] == [85, 4625]
    assert int(found.records.requests.finished_ns.max()) == 78_202_900_000


A05 = [(f"r{i}", 5 * i, 1 + 29 * i % 64, 1 + 43 * i % 64) for i in range(100)]


def test_a05_no_block_leaks() -> None:
    """A05: 100 odd lengths through 20 blocks; after every step what is held is what is stored, rounded up."""
    found = run(text(listed(A05), scheduler=SMALL.format(256), blocks=20), step_log=True)
    assert [found.summary[k] for k in ("completed", "preemptions", "recomputed_tokens", "iterations")] == [
        100,
        62,
        2138,
        659,
    ]
    assert int(found.records.requests.preemptions.max()) == 2
    assert int(found.records.requests.finished_ns.max()) == 10_071_800_000
    stored: dict[str, int] = {}
    assert found.records.step_log is not None
    for step in found.records.step_log:
        stored |= {name: before + tokens for name, tokens, before in step["sched"]}
        assert sum(-(-stored[name] // 16) for name in step["running"]) + step["free_blocks"] == 20
    assert found.records.step_log[-1]["free_blocks"] == 20


def test_a05_with_the_prefix_cache() -> None:
    """A05 with caching on: 62 evictions and 659 steps too, 9,977.8 ms, and every block free or idle at the end."""
    scheduler = "kind: vllm, max_num_batched_tokens: 256, enable_prefix_caching: true, async_scheduling: false"
    found = run(text(listed(A05), scheduler=scheduler, blocks=20), step_log=True)
    assert [found.summary[k] for k in ("preemptions", "iterations")] == [62, 659]
    assert int(found.records.requests.finished_ns.max()) == 9_977_800_000
    assert found.records.step_log is not None
    assert found.records.step_log[-1]["free_blocks"] == 20


def test_a06_the_half_filled_block_is_used() -> None:
    """A06: 48 tokens in two chunks of 24 fit three blocks of 16, without preemption (25 more: `test_contract`)."""
    scheduler = f"kind: vllm, max_num_seqs: 16, max_num_batched_tokens: 24, {PLAIN}"
    found = run(text(listed([("r0", 0, 48, 1)]), scheduler=scheduler, blocks=3))
    assert [found.summary[k] for k in ("iterations", "preemptions", "completed")] == [2, 0, 1]
    assert ms(found, "ttft_ms")["r0"] == pytest.approx(24.8)


@pytest.mark.parametrize("caching", [False, True])
def test_a07_an_eviction_keeps_the_books(caching: bool) -> None:
    """A07: the evicted request keeps its first token; its longest gap is 170 ms, and TTFT + gaps = E2E."""
    scheduler = f"kind: vllm, enable_prefix_caching: {str(caching).lower()}, async_scheduling: false"
    found = run(text(listed([("r0", 0, 32, 33), ("r1", 0, 32, 33)]), scheduler=scheduler, cost=FLAT, blocks=6))
    assert ms(found, "ttft_ms") == pytest.approx({"r0": 10, "r1": 10})
    assert ms(found, "e2e_ms") == pytest.approx({"r0": 330, "r1": 490})
    assert ms(found, "max_itl_ms") == pytest.approx({"r0": 10, "r1": 170})
    assert ms(found, "preemptions") == {"r0": 0, "r1": 1}
    assert ms(found, "recomputed_tokens") == {"r0": 0, "r1": 16 if caching else 48}
    assert found.summary["n_itl"] == 64
    assert found.summary["mean_itl_ms"] * 64 == pytest.approx(320 + 480)
    assert found.summary["prefix_hit_tokens"] == 0
    assert found.summary["resume_hit_tokens"] == (32 if caching else 0)
    assert found.summary["total_output_tokens"] == 66


@pytest.mark.parametrize(
    ("layers", "kv_heads", "head_dim", "expected"), [(32, 8, 128, 131072), (80, 8, 128, 327680), (36, 8, 128, 147456)]
)
def test_a20_bytes_of_a_token(layers: int, kv_heads: int, head_dim: int, expected: int) -> None:
    """A20 a, b, c: 2 x layers x KV heads x head_dim x 2 bytes, the head's own size where the model states it."""
    shape = {"name": "toy", "layers": layers, "heads": 32, "kv_heads": kv_heads, "head_dim": head_dim, "hidden": 2560}
    own = type(model("qwen3-8b")).model_validate(model("qwen3-8b").model_dump() | shape)
    found = kv_capacity(own, gpu("b200-sxm"), dtype="bf16", tensor_parallel=1, settings=KvSettings())
    assert found.bytes_per_token == expected


def test_a20_the_override_wins() -> None:
    """A20 e: num_blocks 2588 of 16 hold 41,408 tokens, whatever memory would say; the default overhead is not 0."""
    settings = KvSettings(num_blocks=2588)
    found = kv_capacity(model("llama-3.1-8b"), gpu("h100-sxm"), dtype="bf16", tensor_parallel=1, settings=settings)
    assert (found.blocks, found.tokens) == (2588, 41408)
    estimated = kv_capacity(
        model("llama-3.1-8b"), gpu("h100-sxm"), dtype="bf16", tensor_parallel=1, settings=KvSettings()
    )
    assert estimated.blocks != 2588
    assert KvSettings().overhead_gib > 0
    assert estimated.overhead_bytes
    assert estimated.weights_bytes
    assert estimated.kv_bytes
