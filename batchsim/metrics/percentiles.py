"""Mean, spread and percentiles of a sample, with n beside; nothing is made up for an empty one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERCENTS = (50, 90, 95, 99)
"""The percentiles of a summary, in per cent."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a summary says of one sample, in the sample's unit: every figure is None where n is 0."""

    n: int
    mean: float | None = None
    std: float | None = None  # of the sample itself (numpy's ddof=0), as `vllm bench serve` prints it
    percentiles: tuple[float | None, ...] = (None,) * len(PERCENTS)  # of PERCENTS
    max: float | None = None

    def scaled(self, factor: float) -> Stats:
        """The same in another unit: every figure divided by `factor`."""

        def scale(value: float | None) -> float | None:
            return None if value is None else value / factor

        return Stats(self.n, scale(self.mean), scale(self.std), tuple(map(scale, self.percentiles)), scale(self.max))


def describe(values: NDArray[Any]) -> Stats:
    """Statistics of a sample of defined values (drop the undefined ones first)."""
    n = len(values)
    if n == 0:
        return Stats(0)
    places = [(n - 1) * (percent / 100) for percent in PERCENTS]
    ranks = {rank for place in places for rank in (int(place), min(int(place) + 1, n - 1))}
    parted = np.partition(values, sorted({*ranks, n - 1}))  # numpy's own `quantile` loads numpy.ma: 30 ms
    percentiles = tuple(at(parted, place) for place in places)
    return Stats(n, float(values.mean()), float(values.std()), percentiles, float(parted[-1]))


def at(ordered: NDArray[Any], place: float) -> float:
    """The value at a fractional rank of an ordered sample, as numpy's linear interpolation gives it."""
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return between(float(ordered[low]), float(ordered[high]), place - low)


def percentile(values: NDArray[Any], percent: float) -> float | None:
    """Linear interpolation between order statistics (numpy's default); None for an empty sample."""
    return at(np.sort(values), (len(values) - 1) * (percent / 100)) if len(values) else None


@cache
def samples_needed(percent: float) -> int:
    """Smallest n that is not below 1/(1 - q), in whole numbers: 100 for p99, 10 for p90."""
    tail = 100 - Fraction(str(percent))
    if tail <= 0:
        raise ValueError(f"percentile {percent}: must be below 100")
    return -(-100 * tail.denominator // tail.numerator)


def too_few(n: int, percents: Sequence[float] = PERCENTS) -> list[float]:
    """The percentiles that n samples (at least one) cannot support: n < 1/(1 - q)."""
    return [percent for percent in percents if 0 < n < samples_needed(percent)]


def between(low: float, high: float, share: float) -> float:
    """The point `share` of the way from low to high, rounded as numpy's percentiles round it."""
    step = high - low
    return high - step * (1 - share) if share >= 0.5 else low + step * share
