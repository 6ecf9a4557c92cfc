"""Intervals and fairness against numbers that can be worked out by hand, and against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.metrics import batch_means, bootstrap_interval, describe, jain, percentile, t_interval


def test_t_interval_by_hand() -> None:
    """1, 2, 3: mean 2, half-width t(0.975, 2) / sqrt(3) = 4.3027 / 1.7321."""
    interval = t_interval(np.array([1.0, 2.0, 3.0]))
    assert (interval.mean, interval.n) == (2.0, 3)
    assert interval.high == pytest.approx(2 + 4.302652729911275 / 3**0.5)
    assert interval.low == pytest.approx(2 - 4.302652729911275 / 3**0.5)


def test_one_value_has_no_interval() -> None:
    """One seed gives a mean without bounds; none is refused."""
    assert t_interval(np.array([5.0])).low is None
    assert bootstrap_interval(np.array([5.0]), np.random.default_rng(0)).high is None
    with pytest.raises(ValueError, match="at least one"):
        t_interval(np.array([]))


@pytest.mark.parametrize("kind", ["t", "bootstrap", "batch"])
def test_intervals_cover_as_promised(kind: str) -> None:
    """Of 300 samples of normal values, about 95 % of the intervals hold the true mean."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(300):
        values = rng.normal(10, 3, 400 if kind == "batch" else 25)
        if kind == "t":
            interval = t_interval(values)
        elif kind == "bootstrap":
            interval = bootstrap_interval(values, rng, resamples=500)
        else:
            interval = batch_means(values)
        assert interval.low is not None
        assert interval.high is not None
        held += interval.low <= 10 <= interval.high
    assert 0.9 <= held / 300 <= 0.985


def test_batch_means_needs_a_value_a_batch() -> None:
    """Fewer values than batches are refused with both numbers."""
    with pytest.raises(ValueError, match="5 values do not fill 20"):
        batch_means(np.arange(5.0))


def test_jain() -> None:
    """1 for equal shares, 1/n when one has all, None when nobody has anything."""
    assert jain(np.array([3.0, 3.0, 3.0])) == pytest.approx(1.0)
    assert jain(np.array([5.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert jain(np.array([0, 0])) is None


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=300), st.floats(0, 100))
@settings(deadline=None)
def test_percentiles_are_numpys(values: list[float], percent: float) -> None:
    """Every percentile is numpy's linear interpolation, bit for bit."""
    sample = np.array(values)
    stats = describe(sample)
    assert stats.percentiles == tuple(np.quantile(sample, [0.5, 0.9, 0.95, 0.99]).tolist())
    assert (stats.max, stats.n) == (sample.max(), len(values))
    assert percentile(sample, percent) == np.quantile(sample, percent / 100)
