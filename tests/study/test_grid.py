"""Grids of studies: ranges, lists, what is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsim.errors import InvalidInput
from batchsim.study import grid


@given(st.integers(-50, 50), st.integers(0, 40), st.integers(1, 400), st.sampled_from([1, 10, 100]))
def test_a_range_holds_both_ends_and_no_rounding(start: int, steps: int, step: int, scale: int) -> None:
    """START:STOP:STEP gives start + k * step exactly as decimals, up to and with STOP."""
    first, width = Decimal(start) / scale, Decimal(step) / scale
    last = first + steps * width
    key, values = grid.axis(f"a.b={first}:{last}:{width}")
    assert key == "a.b"
    assert values == [float(first + place * width) for place in range(steps + 1)]


def test_a_list_is_split_outside_of_brackets_only() -> None:
    """Each value is YAML: numbers, words, mappings with commas of their own."""
    key, values = grid.axis("scheduler={kind: static, batch_size: 8},vllm,0.5,null")
    assert key == "scheduler"
    assert values == [{"kind": "static", "batch_size": 8}, "vllm", 0.5, None]


def test_every_combination_comes_once_the_last_key_fastest() -> None:
    """Two axes make the product, in the order of the axes."""
    assert grid.points({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["a", "a=", "=1", "a=1:2:0", "a=3:1:1", "a=1:1e9:1", "a..b=1"])
def test_what_is_no_axis_is_refused(text: str) -> None:
    """No values, an empty range, a step of 0, a billion values, a broken key."""
    with pytest.raises(InvalidInput):
        grid.axis(text)


@pytest.mark.parametrize("texts", [["a=1", "a=2"], ["seed=1,2"], ["a=1,1"]])
def test_a_key_twice_a_seed_and_a_value_twice_are_refused(texts: list[str]) -> None:
    """Seeds are swept by --seeds; the same value twice would count its runs twice."""
    with pytest.raises(InvalidInput):
        grid.axes(texts)
