"""Cases of the issue on prefix caching, each with its number, and the kinds behind them."""

from __future__ import annotations

from typing import Any

import pytest

from batchsim.scenario import scenario
from batchsim.simulation import Run, simulate

LIN = {"kind": "linear", "base_ms": 10, "prefill_token_ms": 0.1, "decode_seq_ms": 1.0}


def run(requests: list[dict[str, Any]], *, blocks: int, block_size: int = 16, budget: int = 8192, **more: Any) -> Run:
    """A list of requests through vLLM with prefix caching on the textbook cost."""
    vllm = {"kind": "vllm", "max_num_seqs": 256, "max_num_batched_tokens": budget, "enable_prefix_caching": True}
    return simulate(scenario({
        "name": "case", "model": "llama-3.1-8b", "gpu": "h100-sxm", "cost_model": more.pop("cost", LIN),
        "kv_cache": {"block_size": block_size, "num_blocks": blocks}, "scheduler": vllm | more,
        "workload": {"kind": "list", "requests": requests},
    }))  # fmt: skip


def request(name: str, at_ms: float, prompt: int, output: int, **more: Any) -> dict[str, Any]:
    """One request with its limit declared."""
    own = {"id": name, "arrival_ms": at_ms, "prompt_tokens": prompt, "output_tokens": output, "max_tokens": output}
    return own | more


@pytest.mark.parametrize(("block_size", "hits", "lost"), [(16, 2160, 0), (128, 1152, 1008), (784, 0, 2160)])
def test_b10_only_whole_blocks_are_shared(block_size: int, hits: int, lost: int) -> None:
    """B10: ten prompts of 300 share 240 tokens: 2,160, 1,152 and 0 are hit at blocks of 16, 128, 784, and the rest is reported."""
    shared = [["sys", 240]]
    done = run(
        [request(f"r{i}", 10_000 * i, 300, 10, prefix=shared) for i in range(10)], blocks=5000, block_size=block_size
    )
    assert done.summary["prefix_hit_tokens"] == hits
    assert done.summary["shared_sub_block_tokens"] == lost


def test_a03_thrash_ends_and_resumes_hit() -> None:
    """A03 with caching: the same 85 preemptions and 4,625 iterations, over at 78,202.9 ms, nobody more than twice."""
    done = run([request(f"r{i}", 200 * i, 256, 128) for i in range(200)], blocks=125, budget=2048)
    assert done.summary["completed"] == 200
    assert (done.summary["preemptions"], done.summary["iterations"]) == (85, 4625)
    assert done.requests.finished_s.max() * 1000 == pytest.approx(78_202.9, abs=1e-6)
    assert done.requests.preemptions.max() <= 2


def test_a05_a_tiny_pool_leaks_nothing() -> None:
    """A05 with caching: 62 preemptions, 659 iterations, over at 9,977.8 ms."""
    requests = [request(f"r{i}", 5 * i, 1 + 29 * i % 64, 1 + 43 * i % 64) for i in range(100)]
    done = run(requests, blocks=20, budget=256)
    assert (done.summary["completed"], done.summary["preemptions"], done.summary["iterations"]) == (100, 62, 659)
    assert done.requests.finished_s.max() * 1000 == pytest.approx(9_977.8, abs=1e-6)


def test_a07_a_resumed_request_finds_its_own_blocks() -> None:
    """A07 with caching: times as without; B finds 32 of its own tokens and computes 16 of the lost 48 again."""
    flat = {"kind": "linear", "base_ms": 10}
    done = run([request("A", 0, 32, 33), request("B", 0, 32, 33)], blocks=6, cost=flat)
    table = done.requests.set_index("id")
    assert table.e2e_ms.to_dict() == {"A": 330, "B": 490}
    assert table.loc["B", ["preemptions", "recomputed_tokens", "max_itl_ms"]].tolist() == [1, 16, 170]
    assert (done.summary["prefix_hit_tokens"], done.summary["resume_hit_tokens"]) == (0, 32)


def test_a_fully_cached_prompt_recomputes_its_last_block() -> None:
    """A prompt of 64 tokens that is all in cache hits 48: its last token must be computed, and with it its block."""
    done = run([request(f"r{i}", 1000 * i, 64, 2, prefix=[["p", 64]]) for i in range(2)], blocks=100)
    assert done.requests.prefix_hit_tokens.tolist() == [0, 48]


def test_a_shared_prefix_is_held_once() -> None:
    """80 running requests share 160 tokens, 10 blocks, and have one block each to themselves: 90 blocks, not 880."""
    first = [request("first", 0, 161, 200, prefix=[["p", 160]])]
    others = [request(f"r{i}", 100, 161, 10, prefix=[["p", 160]]) for i in range(79)]
    done = run(first + others, blocks=1000)
    assert done.iterations.running.max() == 80
    at_the_start = done.iterations[done.iterations.running == 80].kv_blocks_used.iloc[0]
    assert at_the_start == 10 + 80
