"""Single kernels as further data for the fit: what whole iterations cannot part, their own timings do.

Iterations of one layer size cannot tell a gap from slower reading, nor attention from the rest. A product, a prefill and a
decode attention alone are each timed over many sizes: their gap here is a nuisance of their own, the rest is the form's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from batchsim.calibrate.form import Floats
from batchsim.calibrate.schema import Row
from batchsim.catalog import ACTIVATION_BYTES, Gpu, Profile, weight_bytes
from batchsim.cost._physics import SUSTAINED_TOKENS, dense_efficiencies

Gap = tuple[float, float, float]


class Single(Protocol):
    """Timings of one kind of kernel."""

    gap_us: Gap
    """Least, first guess and most of the gap, microseconds."""

    def residuals(self, profile: Profile, gap_us: float) -> Floats:
        """Logarithms of predicted over measured times."""
        ...


def singles(rows: Sequence[Row], gpu: Gpu) -> list[Single]:
    """The kinds of kernels among `rows`: matrix products of one dtype, prefill and decode attention."""
    kinds: dict[str, Callable[[Sequence[Row], Gpu], Single]]
    kinds = {"gemm": _Gemms, "prefill_attention": _Prefills, "decode_attention": _Decodes}
    chosen = {op: [row for row in rows if row.op == op] for op in kinds}
    return [kinds[op](of, gpu) for op, of in chosen.items() if of]


class _Gemms:
    """Gap + smoothmax(read, multiply) + the moving of input and output."""

    gap_us: Gap = (0.0, 4.0, 60.0)

    def __init__(self, rows: Sequence[Row], gpu: Gpu) -> None:
        n, k, m, ms = _columns(rows, "n", "k", "tokens", "time_ms")
        self._dtype = dtype = rows[0].dtype
        self._read = n * k * weight_bytes(dtype) / gpu.bytes_per_s
        self._multiply = 2 * n * k * m / gpu.peak_flops(dtype)
        self._move = m * (k * weight_bytes(dtype) + n * ACTIVATION_BYTES) / gpu.bytes_per_s
        self._seen = np.log(ms * 1e-3)
        self._long = np.clip(m / SUSTAINED_TOKENS - 1, 0, 1)

    def residuals(self, profile: Profile, gap_us: float) -> Floats:
        memory, compute, _, exponent, slowdown = dense_efficiencies(profile, self._dtype)
        read, multiply = self._read / memory, self._multiply / compute
        multiply = multiply * (1 + slowdown * self._long)
        joined = (read**exponent + multiply**exponent) ** (1 / exponent)
        joined += profile.activation_factor * self._move / memory
        return np.asarray(np.log(gap_us * 1e-6 + joined) - self._seen)


class _Prefills:
    """Gap + multiplying + the moving of queries, keys, values and output; no chunk has a past."""

    gap_us: Gap = (0.0, 10.0, 200.0)

    def __init__(self, rows: Sequence[Row], gpu: Gpu) -> None:
        names = ("heads", "kv_heads", "head_dim", "tokens", "batch", "time_ms")
        heads, kv_heads, head_dim, tokens, batch, ms = _columns(rows, *names)
        self._multiply = 2 * heads * head_dim * batch * tokens**2 / (gpu.bf16_dense_tflops * 1e12)
        self._move = 2 * (heads + kv_heads) * head_dim * ACTIVATION_BYTES * batch * tokens / gpu.bytes_per_s
        self._seen = np.log(ms * 1e-3)

    def residuals(self, profile: Profile, gap_us: float) -> Floats:
        moved = profile.activation_factor * self._move / profile.memory_efficiency
        made = gap_us * 1e-6 + self._multiply / profile.attention_prefill_efficiency + moved
        return np.asarray(np.log(made) - self._seen)


class _Decodes:
    """Gap + reading the contexts + a time for each sequence, on a 16-bit KV cache."""

    gap_us: Gap = (0.0, 10.0, 200.0)

    def __init__(self, rows: Sequence[Row], gpu: Gpu) -> None:
        kv_heads, head_dim, batch, context, ms = _columns(rows, "kv_heads", "head_dim", "batch", "context", "time_ms")
        self._read = 2 * kv_heads * head_dim * ACTIVATION_BYTES * batch * context / gpu.bytes_per_s
        self._batch = batch
        self._seen = np.log(ms * 1e-3)

    def residuals(self, profile: Profile, gap_us: float) -> Floats:
        read = self._read / profile.attention_decode_efficiency
        each = self._batch * profile.seq_us_per_layer * 1e-6
        return np.asarray(np.log(gap_us * 1e-6 + read + each) - self._seen)


def _columns(rows: Sequence[Row], *names: str) -> list[Floats]:
    return [np.array([float(getattr(row, name)) for row in rows]) for name in names]
