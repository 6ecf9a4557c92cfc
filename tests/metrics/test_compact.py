"""Narrow columns: whatever is put away comes back, and reading one never wraps around."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim import compact
from batchsim.compact import Column, Table, narrow, narrowed, part

EDGES = [0, -1, 127, 128, -128, -129, 2**15 - 1, 2**15, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]
WHOLE = st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
BLOCKS = st.lists(st.lists(st.tuples(WHOLE, WHOLE, WHOLE), max_size=6), max_size=6)


@given(BLOCKS, st.sampled_from([0, 1 << 16]))
@settings(max_examples=300, deadline=None)
def test_what_is_put_away_comes_back(blocks: list[list[tuple[int, int, int]]], small: int) -> None:
    """Rows in any blocks, of any widths in any order, give their columns: few rows int64, many as narrow as can be."""
    table = Table(3)
    before, compact.SMALL = compact.SMALL, small
    try:
        for rows in blocks:
            table.put(np.array(rows, dtype=np.int64).reshape(-1, 3).tobytes())
        columns = [table.take(place) for place in range(3)]
    finally:
        compact.SMALL = before
    rows = [row for block in blocks for row in block]
    for place, column in enumerate(columns):
        assert column.tolist() == [row[place] for row in rows]
        expected = np.dtype(np.int64) if small else narrowed(np.array([row[place] for row in rows], np.int64)).dtype
        assert column.dtype == expected
    assert table.take(0).tolist() == []


@given(st.lists(WHOLE, min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_narrowed_is_the_smallest_that_holds_all(values: list[int]) -> None:
    """The numbers stay, and half the width would not hold them."""
    found = narrowed(np.array(values, dtype=np.int64))
    assert found.tolist() == values
    if found.itemsize > 1:
        half = np.iinfo(f"int{found.itemsize * 4}")
        assert not all(half.min <= value <= half.max for value in values)


@dataclass(frozen=True)
class Two:
    """A column, and one that needs none."""

    tokens: Column = Column()
    name: str = ""


def test_reading_a_narrow_column_gives_int64() -> None:
    """Products and sums of columns kept in one byte are those of whole numbers; a part is read alone."""
    two = Two(np.array([100, 27], dtype=np.int8))
    assert narrow(two, "tokens").dtype == np.int8
    assert (two.tokens * two.tokens).tolist() == [10_000, 729]
    assert part(two, "tokens", slice(0, 1)).tolist() == [100]
    assert part(two, "tokens", np.array([1])).dtype == np.int64
    with pytest.raises(AttributeError):
        two.name = "frozen"  # type: ignore[misc]
