"""Cases about who goes first: B01, B03, B05, B22, B25; those of other engines run as soon as their kind is built."""

from __future__ import annotations

import pytest

from batchsim.records import Status
from tests.cases.running import PLAIN, listed, ms, run, text

VLLM = f"kind: vllm, max_num_seqs: 256, {PLAIN}"
B01 = listed([("A", 0, 100, 1000), ("B", 1000, 8192, 8)])


@pytest.mark.parametrize(
    ("scheduler", "gap", "ttft"),
    [
        ("kind: vllm_v0, max_num_seqs: 256, max_num_batched_tokens: 8192", 841.2, 839.2),
        (f"{VLLM}, max_num_batched_tokens: 512", 62.1, 1016.2),
    ],
)
def test_b01_a_long_prompt_freezes_the_streams(scheduler: str, gap: float, ttft: float) -> None:
    """B01: prefill first opens a gap of 841.2 ms in a stream of 11 ms, chunks of 512 one of 62.1; medians hide both."""
    found = run(text(B01, scheduler=scheduler))
    assert ms(found, "max_itl_ms")["A"] == pytest.approx(gap)
    assert ms(found, "ttft_ms")["B"] == pytest.approx(ttft)
    assert found.summary["median_itl_ms"] == pytest.approx(11)
    assert found.summary["max_itl_ms"] == pytest.approx(gap)


@pytest.mark.parametrize("budget", [64, 256, 512, 2048])
def test_b01_no_gap_is_longer_than_the_budget_allows(budget: int) -> None:
    """With chunks no gap exceeds base + price of the budget + the decodes."""
    found = run(text(B01, scheduler=f"{VLLM.replace('256', '32')}, max_num_batched_tokens: {budget}"))
    assert found.summary["max_itl_ms"] <= 10 + 0.1 * budget + 2 * 1.0


@pytest.mark.parametrize(
    ("cap", "at", "short", "long"), [("", 1, 995.6, 979.2), (", long_prefill_token_threshold: 256", 1, 102.2, 1008.6),
                                     (", long_prefill_token_threshold: 256", 0, 42.0, 1008.6)]
)  # fmt: skip
def test_b03_a_short_prompt_behind_a_long_one(cap: str, at: int, short: float, long: float) -> None:
    """B03: first come takes the whole budget; a cap on chunks lets the short one in and costs the long one little."""
    found = run(
        text(listed([("L", 0, 8192, 4), ("S", at, 64, 4)]), scheduler=f"{VLLM}, max_num_batched_tokens: 512{cap}"),
        step_log=True,
    )
    assert ms(found, "ttft_ms") == pytest.approx({"L": long, "S": short})
    assert found.records.step_log is not None
    assert sum(tokens for step in found.records.step_log for _, tokens, _ in step["sched"]) == 8192 + 64 + 3 + 3
    if cap and at:
        chunks = [
            tokens for step in found.records.step_log for name, tokens, _ in step["sched"] if name == "L" and tokens > 1
        ]
        assert chunks == [512] + 4 * [256] + 13 * [512]


def b05(urgent: int) -> str:
    """Two long requests of priority 1 and a third that comes later."""
    rows = listed([("r0", 0, 100, 1000), ("r1", 0, 100, 1000), ("r2", 1000, 100, 10)], keys=", priority: 1")
    head, _, tail = rows.rpartition("priority: 1")
    return f"{head}priority: {urgent}{tail}"


@pytest.mark.parametrize(
    ("scheduler", "ttft"),
    [
        (f"{VLLM.replace('256', '2')}, max_num_batched_tokens: 8192, policy: priority", 11038),
        ("kind: priority, preemptive: true, max_num_seqs: 2, max_num_batched_tokens: 8192", 23),
        ("kind: vllm_v0, policy: priority, max_num_seqs: 2, max_num_batched_tokens: 8192", 33),
    ],
)
def test_b05_urgent_behind_a_full_house(scheduler: str, ttft: float) -> None:
    """B05: V1 preempts for memory alone: the urgent one waits 11 s; preemptive policies evict once: 23 or 33 ms."""
    found = run(text(b05(0), scheduler=scheduler))
    assert ms(found, "ttft_ms")["r2"] == pytest.approx(ttft)
    assert found.summary["preemptions"] == (0 if ttft > 1000 else 1)


@pytest.mark.parametrize("kind", ["vllm", "priority", "vllm_v0"])
def test_b05_equals_never_swap(kind: str) -> None:
    """With equal priorities nobody is evicted, and the third waits for the first two."""
    more = {"vllm": f"policy: priority, {PLAIN}", "priority": "preemptive: true", "vllm_v0": "policy: priority"}[kind]
    found = run(text(b05(1), scheduler=f"kind: {kind}, max_num_seqs: 2, max_num_batched_tokens: 8192, {more}"))
    assert found.summary["preemptions"] == 0
    assert ms(found, "ttft_ms")["r2"] == pytest.approx(11038)


def test_b05_lower_is_more_urgent() -> None:
    """The sign: of two that wait, the one with the lower number is served first, though it came later."""
    rows = listed([("first", 0, 10, 50), ("low", 1, 10, 5), ("high", 2, 10, 5)], keys=", priority: 5")
    head, _, tail = rows.rpartition("priority: 5")
    found = run(text(f"{head}priority: -1{tail}", scheduler=f"{VLLM.replace('256', '1')}, policy: priority"))
    assert ms(found, "admitted_s")["high"] < ms(found, "admitted_s")["low"]


B22 = {
    "a": (0, [0, 1, 2, 3, 4], [100, 199, 198, 197, 196]),
    "b": (50, [0, 1000, 2000], [150, 150, 150]),
    "b without delay": (0, [0, 1000, 2000], [100, 100, 100]),
    "c": (50, [0] * 8, [100] * 8),
    "d": (50, [0, 30, 60], [150, 120, 190]),
}


@pytest.mark.parametrize("variant", B22)
def test_b22_dynamic_batches(variant: str) -> None:
    """B22: a delay counts from the oldest; a full batch goes at once; what waits while the device is busy joins up."""
    delay, arrivals, latencies = B22[variant]
    rows = [(f"r{i}", at, 1, 1) for i, at in enumerate(arrivals)]
    scheduler = f"kind: dynamic, max_batch_size: 8, max_queue_delay_ms: {delay}"
    found = run(text(listed(rows), scheduler=scheduler, cost="{kind: linear, base_ms: 100}"))
    assert list(ms(found, "e2e_ms").values()) == pytest.approx(latencies)
    if variant == "a":
        assert found.iterations["running"].tolist() == [1, 4]


@pytest.mark.parametrize("order", [(2049, 2048), (2048, 2049)])
def test_b25_a_prompt_over_the_budget_without_chunks(order: tuple[int, int]) -> None:
    """B25: with chunking off 2049 tokens never fit a budget of 2048: rejected, and nobody waits for it."""
    rows = [(f"p{prompt}", 0, prompt, 4) for prompt in order]
    scheduler = f"{VLLM}, max_num_batched_tokens: 2048, enable_chunked_prefill: false"
    found = run(text(listed(rows), scheduler=scheduler, more="max_model_len: 4096"))
    reason = found.records.requests.reasons[order.index(2049)]
    assert "2049" in reason
    assert "2048" in reason
    assert ms(found, "ttft_ms")["p2048"] == pytest.approx(214.8)
    assert ms(found, "e2e_ms")["p2048"] == pytest.approx(247.8)


def test_b25_one_token_over_max_model_len() -> None:
    """P + O over max_model_len by one is rejected, never cut; equal to it is served whole."""
    rows = [("over", 0, 4000, 97), ("fits", 0, 4000, 96)]
    found = run(text(listed(rows), more="max_model_len: 4096"))
    assert found.records.requests.status.tolist() == [Status.REJECTED, Status.COMPLETED]
    assert "4097" in found.records.requests.reasons[0]
    assert "4096" in found.records.requests.reasons[0]
    assert found.records.requests.emitted_tokens.tolist() == [0, 96]
