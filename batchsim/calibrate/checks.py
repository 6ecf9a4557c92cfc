"""Measurements that cannot be: faster than the GPU's datasheet allows."""

from __future__ import annotations

from collections.abc import Sequence

from batchsim.calibrate.schema import Row
from batchsim.catalog import Gpu, model
from batchsim.errors import Problem, problem

TOLERANCE = 1.05
"""Clocks boost and timers round: this much faster than the peak is let through."""
CACHE_BYTES = 128 * 2**20
"""Reads below this may be served from the L2 cache, which is faster than memory: flagged, not refused."""


def impossible(rows: Sequence[Row], gpu: Gpu) -> tuple[list[Problem], list[Problem]]:
    """(refused, flagged): timings above the peak FLOP/s, or above the peak bandwidth.

    Flagged are those above the bandwidth whose bytes fit an L2 cache; they make a memory look too fast.
    """
    refused: list[Problem] = []
    flagged: list[Problem] = []
    for number, row in enumerate(rows, 1):
        rule, in_cache = too_fast(row, gpu)
        if rule:
            found = problem(f"row {number}: {row.op}", f"{row.time_ms} ms", rule)
            (flagged if in_cache else refused).append(found)
    return refused, flagged


def too_fast(row: Row, gpu: Gpu) -> tuple[str, bool]:
    """Why a timing cannot be ("" where it can), and whether a cache explains it."""
    flops, read = _work(row)
    seconds = row.time_ms * 1e-3
    peak = gpu.peak_flops(row.dtype if row.op in ("gemm", "moe", "iteration") else "bf16")
    if flops > seconds * peak * TOLERANCE:
        return f"{flops / seconds / 1e12:.0f} TFLOP/s, above the {peak / 1e12:.0f} of {gpu.name}", False
    if read > seconds * gpu.bytes_per_s * TOLERANCE:
        rule = f"{read / seconds / 1e9:.0f} GB/s, above the {gpu.hbm_gb_per_s:.0f} of {gpu.name}"
        return rule, read <= CACHE_BYTES
    return "", False


def _work(row: Row) -> tuple[float, float]:
    """The least FLOPs and the least bytes of a timing."""
    size = 1 if row.dtype == "fp8" else 2
    if row.op == "gemm":
        return 2.0 * row.n * row.k * row.tokens, float(row.n * row.k * size)
    if row.op == "prefill_attention":
        pairs = row.batch * row.tokens * (row.past + row.tokens / 2)
        return 4.0 * row.heads * row.head_dim * pairs, 0.0
    if row.op == "decode_attention":
        return 0.0, 2.0 * row.kv_heads * row.head_dim * size * row.batch * row.context
    if row.op == "moe":
        return 6.0 * row.n * row.k * row.experts_per_token * row.tokens / row.tp, 3.0 * row.n * row.k * size / row.tp
    if row.op == "copy":
        return 0.0, 2.0 * row.bytes
    if row.op == "iteration":
        layers = model(row.model)
        tokens = row.tokens + row.batch
        read = layers.always_params * size / row.tp
        return 2.0 * layers.active_layer_params * tokens / row.tp, float(read)
    return 0.0, 0.0
