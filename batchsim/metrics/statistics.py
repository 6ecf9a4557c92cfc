"""Intervals: over seeds (Student's t, bootstrap) and within one long run (batch means)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence interval, in the sample's unit; bounds are None where n is below 2."""

    mean: float
    low: float | None
    high: float | None
    n: int


def t_interval(values: Float64, confidence: float = 0.95) -> Interval:
    """Student's t over independent runs (seeds); ValueError for an empty sample."""
    n = _count(values)
    mean = float(np.mean(values))
    if n < 2:
        return Interval(mean, None, None, n)
    half = _t_quantile((1 + confidence) / 2, n - 1) * float(np.std(values, ddof=1)) / n**0.5
    return Interval(mean, mean - half, mean + half, n)


@cache
def _t_quantile(share: float, freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(share, freedom))


def bootstrap_interval(values: Float64, rng: Generator, confidence: float = 0.95, resamples: int = 9_999) -> Interval:
    """Percentile bootstrap of the mean over independent runs, for samples that are far from normal."""
    n = _count(values)
    mean = float(np.mean(values))
    if n < 2:
        return Interval(mean, None, None, n)
    means = values[rng.integers(0, n, size=(resamples, n))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(mean, float(low), float(high), n)


def batch_means(values: Float64, batches: int = 20, confidence: float = 0.95) -> Interval:
    """An interval of one run's mean: the run cut into equal batches, long enough to be nearly independent.

    Values that do not fill a batch are left out at the start. ValueError with fewer values than batches.
    """
    size = len(values) // batches
    if size == 0:
        raise ValueError(f"{len(values)} values do not fill {batches} batches")
    means = values[len(values) - size * batches :].reshape(batches, size).mean(axis=1)
    return t_interval(means, confidence)


def _count(values: Float64) -> int:
    if len(values) == 0:
        raise ValueError("an interval needs at least one value")
    return len(values)
