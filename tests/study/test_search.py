"""The searches of a plan against trying everything."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsim.study.sizing import largest_factor, largest_whole, smallest
from batchsim.study.trial import Fleet


class Threshold:
    """A fleet of which every size from `least` on passes."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.asked: set[int] = set()

    def passes(self, replicas: int, factor: float = 1.0) -> bool:
        self.asked.add(replicas)
        return replicas >= self.least


@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 64))
def test_the_smallest_size_wherever_the_search_starts(least: int, start: int, largest: int) -> None:
    """Started below, at or above it, the smallest size within the limit is found, and the one below it was run."""
    fleet = Threshold(least)
    found = smallest(cast(Fleet, fleet), start, largest)
    assert found == (least if least <= largest else None)
    assert all(size <= largest for size in fleet.asked)
    if found is not None and found > 1:
        assert found - 1 in fleet.asked


@given(st.floats(0.002, 900), st.floats(0.5, 2))
def test_the_largest_factor_is_found_to_a_per_cent(limit: float, start: float) -> None:
    """The two factors returned lie on either side of the limit and within 1 % of each other."""
    held, failed = largest_factor(lambda factor: factor <= limit, start=start)
    assert failed is not None
    assert held <= limit < failed <= held * 1.01 + 1e-12


def test_a_factor_without_an_end_says_so() -> None:
    """Nothing fails: no upper end. Nothing holds: 0."""
    assert largest_factor(lambda factor: True)[1] is None
    assert largest_factor(lambda factor: False)[0] == 0


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 200))
def test_the_largest_whole_number(limit: int, low: int, width: int) -> None:
    """As trying every number."""
    high = low + width
    expected = min(limit, high) if limit >= low else None
    assert largest_whole(lambda value: value <= limit, low, high) == expected


@pytest.mark.parametrize(("limit", "found"), [(24, 24), (4, 4), (17, 17)])
def test_no_coarse_grid_skips_the_answer(limit: int, found: int) -> None:
    """24 is not rounded to 16."""
    assert largest_whole(lambda value: value <= limit, 1, 64) == found
