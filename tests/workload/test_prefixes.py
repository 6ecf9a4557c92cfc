"""Ragged columns of shared prefixes against the same rules said row by row."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchsim.workload.columns import Prefixes
from batchsim.workload.prefixes import numbered, offsets, without_unique_tails


@given(st.lists(st.integers(0, 30)) | st.lists(st.integers(0, 2**63 - 1)))
def test_numbers_are_places_among_the_distinct_values(values: list[int]) -> None:
    """By look-up or by sorting: equal values, equal numbers, from 0 without gaps, in order."""
    found = numbered(np.array(values, np.int64))
    distinct = sorted(set(values))
    assert found.dtype == np.int64
    assert found.tolist() == [distinct.index(value) for value in values]


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6))
def test_what_nobody_shares_goes_from_the_tails(rows: list[list[int]]) -> None:
    """Each row keeps its entries up to the last one that stands anywhere else, or twice here."""
    segment = numbered(np.array([value for row in rows for value in row], np.int64))
    before = Prefixes(offsets(np.array([len(row) for row in rows], np.int64)), segment, np.arange(len(segment)))
    after = without_unique_tails(before)
    uses = Counter(value for row in rows for value in row)
    at = 0
    for index, row in enumerate(rows):
        kept = max((place + 1 for place, value in enumerate(row) if uses[value] > 1), default=0)
        own = slice(after.offset[index], after.offset[index + 1])
        assert after.tokens[own].tolist() == list(range(at, at + kept))
        assert after.segment[own].tolist() == segment[at : at + kept].tolist()
        at += len(row)
