"""KV capacity: exact products, the two meanings of giga, and the sizes that real engines logged."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from batchsim import catalog
from batchsim.catalog import Gpu
from batchsim.errors import DoesNotFit, InvalidInput
from batchsim.kv.capacity import GIB, KvSettings, blocks_in, kv_capacity

MISSES = {
    "vllm#21348": "hybrid bookkeeping of a 235B in fp8: 1.1 % fewer blocks than its memory holds",
}


def test_a20_gib_against_gb() -> None:
    """A20 d: 16 GiB hold 131,072 tokens of 128 KiB, 8192 blocks; 16 GB 122,070 tokens by division, 7629 blocks."""
    assert blocks_in(16 * 2**30, 1, 131072) == 131072
    assert blocks_in(16 * 2**30, 16, 131072) == 8192
    assert blocks_in(16 * 10**9, 1, 131072) == 122070
    assert blocks_in(16 * 10**9, 16, 131072) == 7629


def test_a20_an_override_wins() -> None:
    """A20 e: 2588 blocks of 16 are 41,408 tokens, with an estimate beside it or without model and GPU."""
    settings = KvSettings(num_blocks=2588)
    alone = kv_capacity(None, None, settings=settings)
    beside = kv_capacity(catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm"), settings=settings)
    for capacity in (alone, beside):
        assert (capacity.source, capacity.blocks, capacity.tokens) == ("override", 2588, 41408)
    assert beside.kv_bytes == 41408 * 131072
    small = kv_capacity(catalog.model("llama-3.1-70b"), catalog.gpu("l4"), settings=settings)
    assert small.blocks == 2588


def test_the_estimate_adds_up() -> None:
    """Budget = weights + overhead + KV + less than one block; the default overhead is not zero."""
    capacity = kv_capacity(catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm"))
    assert capacity.source == "estimate"
    assert capacity.overhead_bytes == 1.5 * GIB
    assert capacity.weights_bytes == 2 * 8_029_995_008
    assert capacity.kv_bytes == capacity.blocks * 16 * 131072
    assert capacity.budget_bytes == int(round(79.2 * GIB) * 0.92)
    left = capacity.budget_bytes - capacity.weights_bytes - capacity.overhead_bytes - capacity.kv_bytes
    assert 0 <= left < 16 * 131072


def test_what_does_not_fit_is_refused_with_the_bytes() -> None:
    """70B in 16 bits on one 80 GB GPU: the refusal counts the weights, the overhead, the budget and what is left."""
    with pytest.raises(DoesNotFit) as refused:
        kv_capacity(catalog.model("llama-3.1-70b"), catalog.gpu("h100-sxm"))
    assert str(refused.value).startswith("model: llama-3.1-70b: does not fit on h100-sxm with tensor_parallel 1: ")
    assert f"{catalog.model('llama-3.1-70b').weights_bytes('bf16'):,} bytes of bf16 weights" in str(refused.value)
    shared = kv_capacity(catalog.model("llama-3.1-70b"), catalog.gpu("h100-sxm"), tensor_parallel=4)
    assert shared.bytes_per_token == 81920


def test_without_model_or_gpu_there_is_no_estimate() -> None:
    """Neither given: both are named, with num_blocks as the way out."""
    with pytest.raises(InvalidInput, match=r"model: missing.*num_blocks"):
        kv_capacity(None, None)


def test_fp8_kv_doubles_the_tokens() -> None:
    """fp8 KV takes half the bytes; fp8 weights alone leave the KV at 16 bits."""
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm")
    wide, narrow = (kv_capacity(model, gpu, settings=KvSettings(dtype=kind)) for kind in ("auto", "fp8"))
    assert narrow.blocks in (2 * wide.blocks, 2 * wide.blocks + 1)
    assert kv_capacity(model, gpu, dtype="fp8").bytes_per_token == 131072


def logged(data: Path, test: str) -> list[dict[str, str]]:
    with (data / "data/kernels/kv_capacity_tests.csv").open() as lines:
        return [row for row in csv.DictReader(lines) if row["test"].startswith(test)]


def test_blocks_from_logged_memory(data: Path) -> None:
    """Given the memory that an engine printed, the blocks are the logged ones, to the rounding of what it printed."""
    rows = logged(data, "A") + logged(data, "B")
    assert len(rows) == 17
    for row in rows:
        if row["source"] in MISSES:
            continue
        rounding = 0.005 if row["test"].startswith("A") else 0.0
        per_token, gib = int(row["bytes_per_token"]), float(row["in_gib"])
        low, high = (blocks_in(int((gib + sign * rounding) * GIB), 16, per_token) for sign in (-1, 1))
        assert low <= float(row["measured"]) <= high, row


T4 = Gpu(name="t4", bf16_dense_tflops=65, hbm_gb_per_s=320, memory_gib_cuda_visible=14.56)
END_TO_END = {
    # model, GPU as the log has it, tensor_parallel, dtype, error in % with the default overhead: the known misses
    ("Llama-3.1-8B", "RTX4090 23.517GiB .90"): ("rtx-4090", 1, "bf16", -7.5),
    ("Llama-3.1-70B w8a8", "80GB .98 TP1"): ("h100-sxm", 1, "fp8", None),
    ("Llama-2-7B", "H100 .90*"): ("h100-sxm", 1, "bf16", 0.0),
    ("Llama-3.1-70B", "4xH100 .90*"): ("h100-sxm", 4, "bf16", 0.0),
    ("Mistral-Nemo-12B", "H100 .90*"): ("h100-sxm", 1, "bf16", 0.0),
    ("Mistral-Nemo-12B", "2xH100 .90*"): ("h100-sxm", 2, "bf16", 0.0),
    ("Qwen2.5-7B", "H100 .90*"): ("h100-sxm", 1, "bf16", 0.0),
    ("Yi-34B", "2xH100 .90*"): ("h100-sxm", 2, "bf16", 0.0),
    ("Llama-3.1-8B FP8 on A40", "A40 .90"): ("a40", 1, "fp8", 17.5),
    ("Qwen2.5-3B", "T4 .90"): ("t4", 1, "bf16", 0.0),
}


def test_blocks_end_to_end(data: Path) -> None:
    """With the default overhead within 2 % of the logged blocks on large GPUs; the known misses miss as they did.

    The misses need another overhead: a 24 GB card that keeps 1.15 GiB for itself, and a V0 engine that profiled a
    131,072-token prompt and kept 6 GiB.
    """
    rows = logged(data, "C")
    assert len(rows) == len(END_TO_END)
    for row in rows:
        name, tp, dtype, known_miss = END_TO_END[row["model"], row["gpu"]]
        if known_miss is None:
            continue  # 8-bit 70B: 24 % off; which GPU it ran on, and at what size, was not logged
        model = catalog.model(row["model"].split()[0])
        gpu = T4 if name == "t4" else catalog.gpu(name)
        capacity = kv_capacity(
            model, gpu, dtype=dtype, tensor_parallel=tp, settings=KvSettings(gpu_memory_utilization=0.9)
        )
        assert capacity.bytes_per_token == int(row["bytes_per_token"])
        error = (capacity.blocks / float(row["measured"]) - 1) * 100
        assert error == pytest.approx(known_miss, abs=2.0), (row["model"], error)


def test_the_4090_is_exact_with_its_own_overhead() -> None:
    """2588 blocks were measured on an RTX 4090; 1.15 GiB of overhead give them within 0.5 %."""
    settings = KvSettings(gpu_memory_utilization=0.9, overhead_gib=1.15)
    blocks = kv_capacity(catalog.model("llama-3.1-8b"), catalog.gpu("rtx-4090"), settings=settings).blocks
    assert blocks == pytest.approx(2588, rel=5e-3)
