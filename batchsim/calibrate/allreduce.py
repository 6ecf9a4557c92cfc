"""All-reduce: the measured curve of each number of GPUs in few points, and a latency and bandwidth for the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchsim.calibrate.schema import Row

CURVE_ERROR = 0.05
"""Most relative error of the points between those kept."""

Points = tuple[tuple[float, float], ...]


def curves(rows: Sequence[Row]) -> dict[int, Points]:
    """GPUs -> [bytes, us] points, linear between them within `CURVE_ERROR` of the measurements, never falling.

    A timing above one of a larger message is a stray and cut to it.
    """
    out = {}
    for tp in sorted({row.tp for row in rows if row.op == "allreduce" and row.tp > 1}):
        measured = sorted((row.bytes, row.time_ms * 1e3) for row in rows if row.op == "allreduce" and row.tp == tp)
        if len(measured) >= 3:
            sizes, us = np.array(measured, dtype=np.float64).T
            out[tp] = _few(sizes, np.minimum.accumulate(us[::-1])[::-1])
    return out


def latency_bandwidth(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Latency, us, and ring bandwidth, GB/s, of all-reduces up to 256 MiB on any number of GPUs, or None."""
    from scipy.optimize import least_squares

    used = [row for row in rows if row.op == "allreduce" and row.tp > 1 and row.bytes <= 2**28]
    if len(used) < 4:
        return None
    tp, size, us = np.array([(row.tp, row.bytes, row.time_ms * 1e3) for row in used], dtype=np.float64).T
    moved = 2 * (tp - 1) / tp * size

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log((x[0] + moved / (x[1] * 1e3)) / us))

    found = least_squares(residuals, [8.0, 200.0], bounds=([0.1, 1.0], [500.0, 5000.0]), loss="soft_l1", f_scale=0.1)
    return round(float(found.x[0]), 2), round(float(found.x[1]), 1)


def _few(sizes: NDArray[np.float64], us: NDArray[np.float64]) -> Points:
    """The ends, then always the point that the line misses most, until none is missed by much."""
    kept = [0, len(sizes) - 1]
    while True:
        missed = np.abs(np.interp(sizes, sizes[kept], us[kept]) / us - 1)
        worst = int(missed.argmax())
        if missed[worst] <= CURVE_ERROR:
            return tuple((float(sizes[i]), round(float(us[i]), 2)) for i in kept)
        kept = sorted([*kept, worst])
