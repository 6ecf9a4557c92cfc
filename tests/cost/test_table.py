"""Tables of measured iterations: interpolation, extrapolation, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsim.cost import CostContext, CostModel, Shape, build
from batchsim.cost.table import Row, Table, TableCost
from batchsim.errors import InvalidInput

MS = 10**12
ROWS = """prefill_tokens,decode_seqs,context_tokens,time_ms
100,0,0,5
200,0,0,9
0,1,100,2
0,1,1100,3
0,3,300,4
0,3,3300,7
"""
MIXED = "100,1,100,6\n100,1,1100,7\n"


def table(tmp_path: Path, text: str) -> CostModel:
    path = tmp_path / "steps.csv"
    path.write_text(text)
    return build(Table(str(path)), CostContext())


def prefill(tokens: int) -> Shape:
    return Shape(tokens, tokens**2, 0, 1, 0, 0)


def decode(seqs: int, context: int) -> Shape:
    return Shape(0, 0, 0, 0, seqs, context)


def test_rows_are_reproduced_and_interpolated(tmp_path: Path) -> None:
    """At a row its time; between rows the straight line over mean context, then sequences, then prompt tokens."""
    cost = table(tmp_path, ROWS + MIXED)
    assert cost.price(prefill(100)) == (5 * MS, None)
    assert cost.price(prefill(150)) == (7 * MS, None)
    assert cost.price(decode(1, 600)) == (5 * MS // 2, None)
    assert cost.price(decode(2, 2 * 600)) == (4 * MS, None)  # between 2.5 for one and 5.5 for three
    assert cost.price(Shape(50, 2500, 0, 1, 1, 100)) == (4 * MS, None)  # between decode alone (2) and mixed (6)


def test_beyond_the_rows_the_last_slope_goes_on_and_is_flagged(tmp_path: Path) -> None:
    """300 prompt tokens: 9 + 4 = 13 ms; below the first row its time; both outside, per dimension."""
    cost = table(tmp_path, ROWS)
    assert cost.price(prefill(300)) == (13 * MS, None)
    assert cost.price(prefill(10)) == (5 * MS, None)
    flags = cost.outside(np.array([300, 10, 150, 0]), np.array([0, 0, 0, 4]), np.array([0, 0, 0, 400]))
    assert flags["prefill_tokens"].tolist() == [True, True, False, False]
    assert flags["decode_seqs"].tolist() == [False, False, False, True]
    assert not flags["context_per_seq"].any()


def test_without_mixed_rows_prefill_and_decode_add_up(tmp_path: Path) -> None:
    """5 + 2 = 7 ms, flagged as a mix that was not measured, and said in the notes."""
    cost = table(tmp_path, ROWS)
    assert cost.price(Shape(100, 100**2, 0, 1, 1, 100)) == (7 * MS, None)
    assert cost.outside(np.array([100]), np.array([1]), np.array([100]))["mixed"].tolist() == [True]
    assert "added up" in cost.describe()["notes"][0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prefill_tokens,decode_seqs,time_ms\n", "steps.csv:1: missing column context_tokens"),
        (ROWS + "x,0,0,5\n", "steps.csv:8: prefill_tokens: 'x': is not a number"),
        (ROWS + "100,0,0\n", "steps.csv:8: time_ms: None: is not a number"),
        (ROWS + "1.5,0,0,5\n", "steps.csv:8: prefill_tokens: 1.5: must be a whole number"),
        (ROWS + "300,0,0,-5\n", "steps.csv:8: time_ms: -5: must be finite and at least 0"),
        (ROWS + "300,0,0,inf\n", "steps.csv:8: time_ms: inf: must be finite and at least 0"),
        (ROWS + "300,0,0,0\n", "steps.csv:8: time_ms: 0: must be above 0"),
        (ROWS + "0,0,0,1\n", "computes nothing"),
        (ROWS + "0,4,3,1\n", "steps.csv:8: context_tokens: 3: must be at least decode_seqs"),
        (ROWS + "100,0,0,6\n", "steps.csv:8: the same iteration as in line 2"),
        (ROWS[: ROWS.index("\n") + 1] + "1,0,0,1\n", "needs at least one row of pure decode"),
        (ROWS[: ROWS.index("\n") + 1] + "0,1,1,1\n", "needs at least one row of pure prefill"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """The refusal names file, line, column, value and rule."""
    with pytest.raises(InvalidInput) as refused:
        table(tmp_path, text)
    assert complaint in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A path that is not there: refused at cost_model.path."""
    with pytest.raises(InvalidInput, match=r"cost_model.path: .*cannot be read"):
        build(Table(str(tmp_path / "no.csv")), CostContext())


@given(st.integers(1, 3000), st.integers(1, 300), st.integers(1, 5000), st.integers(1, 500))
def test_a_table_of_a_monotone_machine_is_monotone(tokens: int, seqs: int, mean: int, more: int) -> None:
    """Measured on a machine whose time rises with everything, the interpolated time rises with everything too."""
    rows = [Row(p, 0, 0.0, 1 + p / 10) for p in (10, 100, 1000)]
    rows += [Row(p, d, c, 1 + p / 9 + d + d * c / 100) for p in (0, 64, 512) for d in (1, 16, 64) for c in (8.0, 1e3)]
    cost = TableCost(rows, "here")
    base = cost.price(Shape(tokens, 0, 0, 1, seqs, seqs * mean))[0]
    assert cost.price(Shape(tokens + more, 0, 0, 1, seqs, seqs * mean))[0] >= base > 0
    assert cost.price(Shape(tokens, 0, 0, 1, seqs, seqs * (mean + more)))[0] >= base
    assert cost.price(Shape(tokens, 0, 0, 1, seqs + more, (seqs + more) * mean))[0] >= base
