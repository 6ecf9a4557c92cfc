"""Measurement tables: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchsim.calibrate.checks import impossible
from batchsim.calibrate.schema import NEEDS, Row, read, write
from batchsim.catalog import gpu
from batchsim.errors import InvalidInput

HEAD = "op,gpu,dtype,n,k,tokens,time_ms,source\n"


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Rows survive the file; columns that none uses are left out, comments are skipped."""
    rows = [
        Row("gemm", "h100-sxm", "bf16", 0.25, n=4096, k=1024, tokens=8, source="me"),
        Row("allreduce", "h100-sxm", "bf16", 0.5, tp=4, bytes=1024),
    ]
    write(tmp_path / "t.csv", rows, ["who measured it"])
    assert read(tmp_path / "t.csv") == rows
    text = (tmp_path / "t.csv").read_text()
    assert text.startswith("# who measured it\n")
    assert "head_dim" not in text


def test_every_bad_row_is_named(tmp_path: Path) -> None:
    """A word for a number, a negative time, an unknown op, a missing size: each with file, line and column."""
    path = table(
        tmp_path,
        HEAD
        + "gemm,x,bf16,abc,1,1,1,\ngemm,x,bf16,1,1,1,-2,\nmatmul,x,bf16,1,1,1,1,\n"
        + "gemm,x,bf16,1,,1,1,\ngemm,x,bf16,1,1,1,1,ok\n",
    )
    with pytest.raises(InvalidInput) as refused:
        read(path)
    places = [problem.path for problem in refused.value.problems]
    assert places == ["mine.csv:2: n", "mine.csv:3: time_ms", "mine.csv:4: op", "mine.csv:5: k"]
    assert "4 bad rows" in str(refused.value)


@pytest.mark.parametrize("text", ["", "# only a comment\n", HEAD])
def test_an_empty_table_is_refused(tmp_path: Path, text: str) -> None:
    """Nothing, comments alone or a header alone hold no measurements."""
    with pytest.raises(InvalidInput, match="no measurements"):
        read(table(tmp_path, text))


def test_columns_are_checked(tmp_path: Path) -> None:
    """A missing and an unknown column are named."""
    with pytest.raises(InvalidInput, match=r"time_ms: missing column[\s\S]*speed: unknown column"):
        read(table(tmp_path, "op,gpu,speed\ngemm,x,1\n"))


def test_faster_than_the_datasheet_is_refused_or_flagged() -> None:
    """1978 TFLOP/s of bf16 on an H100 cannot be; 33 MB read at 6.7 TB/s came from a cache; an honest row passes."""
    card, h = gpu("h100-sxm"), 8192
    work_ms = 2 * h**3 / 989.4e12 * 1e3
    fast = Row("gemm", card.name, "bf16", work_ms / 2, n=h, k=h, tokens=h)
    honest = Row("gemm", card.name, "bf16", work_ms / 0.8, n=h, k=h, tokens=h)
    cached = Row("gemm", card.name, "bf16", 4096 * 4096 * 2 / 6.7e12 * 1e3, n=4096, k=4096, tokens=1)
    kv = Row("decode_attention", card.name, "bf16", 1e-3, heads=32, kv_heads=8, head_dim=128, batch=64, context=8192)
    refused, flagged = impossible([fast, honest, cached, kv], card)
    assert [problem.path for problem in refused] == ["row 1: gemm", "row 4: decode_attention"]
    assert [problem.path for problem in flagged] == ["row 3: gemm"]


def test_every_operation_says_what_it_needs() -> None:
    """Each column that an operation needs is one of a row's."""
    for needed in NEEDS.values():
        assert set(needed) <= set(Row.__dataclass_fields__)
