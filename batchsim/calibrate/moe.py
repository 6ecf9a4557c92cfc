"""Fitting grouped expert kernels: one set of parameters for all experts measured on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from batchsim.calibrate.schema import Row
from batchsim.catalog import Gpu, Moe

LEAST_ROWS = 24
BOUNDS = {
    "layer_us": (1.0, 40.0, 400.0),
    "memory_efficiency": (0.2, 0.7, 1.0),
    "compute_efficiency": (0.1, 0.5, 1.0),
    "exponent": (1.0, 2.0, 8.0),
    "correlation": (0.0, 0.2, 1.0),
    "evenness_beyond": (0.3, 1.0, 2.0),
}
"""Parameter -> least, first guess, most."""
MOST_TOKENS = 1024
LEAST_WIDTH = 256


def fit_moe(rows: Sequence[Row], gpu: Gpu, dtype: str) -> tuple[Moe, float, float] | None:
    """The parameters, and their mean and 95th percentile error in percent; None with too few rows.

    Rows of more than `MOST_TOKENS` tokens and of shards narrower than `LEAST_WIDTH` are left out: prefill is bound by
    the dense layers as much, and no engine cuts experts so thin.
    """
    from scipy.optimize import least_squares

    used = [row for row in rows if row.op == "moe" and row.dtype == dtype and row.tokens <= MOST_TOKENS]
    used = [row for row in used if row.n // row.tp >= LEAST_WIDTH]
    if len(used) < LEAST_ROWS:
        return None
    seen = np.array([row.time_ms * 1e-3 for row in used])

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log(expert_layer_s(used, gpu, _moe(x))) - np.log(seen))

    low, first, high = np.array(list(BOUNDS.values())).T
    found = least_squares(residuals, first, bounds=(low, high), loss="soft_l1", f_scale=0.1, x_scale=first)
    moe = _moe([float(f"{v:.5g}") for v in found.x])
    off = np.abs(expert_layer_s(used, gpu, moe) / seen - 1) * 100
    return moe, float(off.mean()), float(np.percentile(off, 95))


def expert_layer_s(rows: Sequence[Row], gpu: Gpu, moe: Moe) -> NDArray[np.float64]:
    """Time of the routed experts of one layer, seconds a row."""
    names = ("n", "k", "experts", "experts_per_token", "tokens", "tp")
    n, k, experts, chosen, tokens, tp = (np.array([float(getattr(row, name)) for row in rows]) for name in names)
    dtype = rows[0].dtype
    weights = 3 * n * k / tp
    share, few = chosen / experts, np.minimum(tokens, experts / chosen)
    alike = 1 + moe.correlation * np.sqrt(share) * (few - 1)
    independent = few / alike * np.maximum(tokens * share, 1) ** moe.evenness_beyond
    touched = experts * (1 - (1 - share) ** np.minimum(independent, tokens))
    read = touched * weights * (1 if dtype == "fp8" else 2) / (moe.memory_efficiency * gpu.bytes_per_s)
    multiply = 2 * weights * chosen * tokens / (moe.compute_efficiency * gpu.peak_flops(dtype))
    joined = (read**moe.exponent + multiply**moe.exponent) ** (1 / moe.exponent)
    return np.asarray(moe.layer_us * 1e-6 + joined)


def _moe(x: Iterable[float]) -> Moe:
    return Moe(**dict(zip(BOUNDS, map(float, x), strict=True)))
