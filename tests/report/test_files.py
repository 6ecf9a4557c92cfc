"""The files of a run: what stands in them is what the records say, to the nanosecond, and never half of it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.errors import InvalidInput
from batchsim.metrics import SummaryContext, summary
from batchsim.records import Records, Status
from batchsim.report import table
from batchsim.report.files import iterations_frame, requests_frame, write_atomically, write_run
from batchsim.report.table import Codes, Decimal, Numbered, csv_blocks
from tests.metrics.naive import Rules, random_rows, run

REQUESTS = (
    "id,tenant,class,priority,replica,status,reason,arrival_s,admitted_s,first_token_s,finished_s,prompt_tokens,"
    "output_tokens,queue_ms,ttft_ms,tpot_ms,e2e_ms,max_itl_ms,preemptions,recomputed_tokens,prefix_hit_tokens"
)
ITERATIONS = (
    "replica,start_s,end_s,repeats,prefill_tokens,decode_seqs,context_tokens,running,waiting,kv_blocks_used,preempted"
)


def a_run(seed: int = 1, count: int = 40) -> Records:
    """A run with a horizon, so that some requests are unfinished."""
    return run(random_rows(seed, count), Rules(seats=3, preempt=0.05, horizon_fs=900 * 10**12), seed)[1]


def rows_of(path: Path) -> list[dict[str, str]]:
    """A CSV as Python's own reader sees it."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


ROWS = st.tuples(st.integers(-1, 10**15), st.integers(-(10**6), 10**12), st.text(max_size=8))


@given(st.lists(ROWS, min_size=1, max_size=50), st.sampled_from([0, 6, 9, 12]))
@settings(max_examples=150, deadline=None)
def test_any_column_reads_back(rows: list[tuple[int, int, str]], decimals: int) -> None:
    """Every value of every kind of column comes back from Python's csv reader; floats are the nearest to the units."""
    units, whole, text = (list(column) for column in zip(*rows, strict=True))
    text = [word.replace("\0", "").replace("\r", "") for word in text]
    columns: dict[str, Any] = {
        "n": Numbered("r", len(rows)),
        "a": Decimal(np.array(units), decimals),
        "b": np.array(whole),
        "c": text,
        "d": Codes(np.arange(len(rows)) % 2, ["", 'a "b", c\nd']),
    }
    data = b"".join(csv_blocks(columns)).decode()
    back = list(csv.DictReader(io.StringIO(data, newline="")))
    assert [row["n"] for row in back] == [f"r{i}" for i in range(len(rows))]
    for row, unit, number, word, place in zip(back, units, whole, text, range(len(rows)), strict=True):
        assert row["a"] == "" if unit < 0 else float(row["a"]) == unit / 10**decimals
        assert int(row["b"]) == number
        assert row["c"] == word
        assert row["d"] == ["", 'a "b", c\nd'][place % 2]


NUMBERS = st.one_of(
    st.integers(-2, 1001),
    st.integers(-(10**9), 2**63 - 1),
    st.builds(lambda digits, power, off: digits * 10**power + off, st.integers(1, 999), st.integers(0, 15),
              st.integers(-1, 1)),
    st.sampled_from([2**32 - 1, 2**32, 2**63 - 1, 10**18, 999, 1000, 10**9 - 1, 4294967296 * 1000]),
)  # fmt: skip
WORDS = st.one_of(st.text(max_size=8), st.sampled_from(["", "a", 'a"b', "x,y", "l\nm", "äöü€", "r0"]))


def as_text(unit: int, decimals: int) -> str:
    """A field as Python would write it."""
    if unit < 0:
        return ""
    whole, rest = divmod(unit, 10**decimals)
    return f"{whole}.{f'{rest:0{decimals}d}'.rstrip('0') or '0'}" if decimals else str(whole)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, WORDS), min_size=1, max_size=12),
    st.sampled_from([0, 3, 6, 9, 12, 15]),
    st.integers(1, 5),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_every_byte_is_what_python_would_write(
    rows: list[tuple[int, int, str]], decimals: int, block: int, same: bool
) -> None:
    """Whatever the size of a block, and whether its rows are all alike or not."""
    rows = [rows[0]] * len(rows) if same else rows
    units, numbers, texts = (list(column) for column in zip(*rows, strict=True))
    texts = [text.replace("\0", "") for text in texts]
    columns: dict[str, Any] = {
        "id": Numbered("q", len(rows)), "text": texts, "unit": Decimal(np.array(units, np.int64), decimals),
        "code": Codes(np.array(numbers, np.int64) % 3 - 1, ["a,b", "", "last"]), "whole": np.array(numbers, np.int64),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "ROWS", block)
        written = b"".join(csv_blocks(columns)).decode()
    stream = io.StringIO(newline="")
    stream.write("id,text,unit,code,whole\n")
    for at, (unit, number, text) in enumerate(zip(units, numbers, texts, strict=True)):
        fields = [f"q{at}", quoted(text), as_text(unit, decimals), ["last", '"a,b"', ""][number % 3], str(number)]
        stream.write(",".join(fields) + "\n")
    assert written == stream.getvalue()


def quoted(text: str) -> str:
    """A field by RFC 4180."""
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n\r') else text


def test_decimals_as_a_person_would_write_them() -> None:
    """No zeros at either end beyond one digit: 0.0, 20.0, 0.000001, 1234.5."""
    data = b"".join(csv_blocks({"a": Decimal(np.array([0, 20_000_000, 1, 1_234_500_000, -1]), 6)}))
    assert data == b"a\n0.0\n20.0\n0.000001\n1234.5\n\n"


def test_requests_csv_holds_the_contracts_columns(tmp_path: Path) -> None:
    """requests.csv: the contract's columns in order, ns kept, empty for what never came, one row a request."""
    records = a_run()
    write_run(tmp_path, records, summary(records, SummaryContext()))
    rows = rows_of(tmp_path / "requests.csv")
    assert ",".join(rows[0]) == REQUESTS
    requests = records.requests
    assert {row["status"] for row in rows} >= {"completed", "waiting"}
    for index, row in enumerate(rows):
        done = requests.status[index] == Status.COMPLETED
        assert round(float(row["arrival_s"]) * 1e9) == requests.arrival_ns[index]
        assert (row["finished_s"] != "") == (row["e2e_ms"] != "") == done
        assert (row["first_token_s"] != "") == (row["ttft_ms"] != "") == (requests.first_token_ns[index] >= 0)
        if done and requests.emitted_tokens[index] == 1:
            assert row["tpot_ms"] == row["max_itl_ms"] == ""


def test_summary_is_the_aggregate_of_the_file(tmp_path: Path) -> None:
    """A09: the summary's latencies equal numpy's on the columns of requests.csv, to 1e-9 ms."""
    records = a_run(5)
    result = summary(records, SummaryContext())
    write_run(tmp_path, records, result)
    rows = rows_of(tmp_path / "requests.csv")
    for column, name in (("ttft_ms", "ttft"), ("tpot_ms", "tpot"), ("e2e_ms", "e2el")):
        values = np.array([float(row[column]) for row in rows if row[column]])
        assert len(values) == result[f"n_{name}"]
        assert result[f"mean_{name}_ms"] == pytest.approx(values.mean(), abs=1e-9)
        assert result[f"p99_{name}_ms"] == pytest.approx(np.quantile(values, 0.99), abs=1e-9)
    assert max(float(row["max_itl_ms"]) for row in rows if row["max_itl_ms"]) == result["max_itl_ms"]
    assert sum(int(row["output_tokens"]) for row in rows) == result["total_output_tokens"]
    assert json.loads((tmp_path / "summary.json").read_text("utf-8")) == result


def test_iterations_csv(tmp_path: Path) -> None:
    """iterations.csv: the contract's columns; the repeats add up to the summary's iterations."""
    records = a_run()
    result = summary(records, SummaryContext())
    write_run(tmp_path, records, result)
    rows = rows_of(tmp_path / "iterations.csv")
    assert ",".join(rows[0]) == ITERATIONS
    assert sum(int(row["repeats"]) for row in rows) == result["iterations"]
    assert [round(float(row["end_s"]) * 1e9) for row in rows] == records.iterations.end_ns.tolist()


def test_optional_columns_stand_where_they_apply(tmp_path: Path) -> None:
    """Sessions and a client's cap add their columns; names with commas and quotes survive."""
    records = a_run(2, 6)
    workload = replace(
        records.workload, ids=tuple(f'id "{i}", x' for i in range(6)), sessions=("s",), max_concurrency=2,
        session=np.array([0, -1, 0, -1, 0, -1]),
    )  # fmt: skip
    records = replace(records, workload=workload)
    write_run(tmp_path, records, {})
    rows = rows_of(tmp_path / "requests.csv")
    extra = ",session,client_queue_ms,from_schedule_ttft_ms,from_schedule_e2e_ms"
    assert ",".join(rows[0]) == REQUESTS + extra
    assert [row["id"] for row in rows] == list(workload.ids or ())
    assert [row["session"] for row in rows] == ["s", "", "s", "", "s", ""]


def test_frames_and_parquet_are_the_csv(tmp_path: Path) -> None:
    """The DataFrames and requests.parquet have the CSV's columns and values."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    records = a_run()
    write_run(tmp_path, records, {})
    write_run(tmp_path, records, {}, requests_format="parquet")
    frame = requests_frame(records)
    written = pd.read_csv(tmp_path / "requests.csv", keep_default_na=True)
    for column in frame.columns:
        if frame[column].dtype.kind in "if":
            np.testing.assert_allclose(frame[column], written[column].astype(float), rtol=0, atol=0)
    pd.testing.assert_frame_equal(frame, pd.read_parquet(tmp_path / "requests.parquet"))
    assert list(iterations_frame(records).columns) == ITERATIONS.split(",")


def test_step_log_is_json_lines(tmp_path: Path) -> None:
    """steps.jsonl: one JSON object a line, in order, only with a step log."""
    steps = [{"step": 0, "sched": [["r0", 16, 0]]}, {"step": 1, "sched": []}]
    write_run(tmp_path, replace(a_run(), step_log=steps), {})
    lines = (tmp_path / "steps.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == steps
    other = tmp_path / "other"
    write_run(other, a_run(), {})
    assert not (other / "steps.jsonl").exists()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device"), ValueError("broken")])
def test_nothing_half_written(tmp_path: Path, failure: BaseException) -> None:
    """A write that breaks off leaves the old file whole, no new one and no temporary one."""
    path = tmp_path / "summary.json"
    path.write_text("old")

    def fill(stream: Any) -> None:
        stream.write("half")
        raise failure

    expected = InvalidInput if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected) as raised:
        write_atomically(path, fill)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]
    if isinstance(failure, OSError):
        assert str(raised.value) == f"--out: {path}: cannot be written: No space left on device"


def test_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    """A folder that cannot be made is refused in one line that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput) as raised:
        write_run(tmp_path / "file" / "out", a_run(), {})
    assert "file" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_not_a_number_never_reaches_the_summary_file(tmp_path: Path) -> None:
    """A NaN is an error, not a value that other readers choke on."""
    with pytest.raises(ValueError, match="JSON"):
        write_run(tmp_path, a_run(), {"mean_ttft_ms": float("nan")})
    assert not list(tmp_path.glob("*summary*"))
