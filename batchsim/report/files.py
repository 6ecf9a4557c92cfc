"""The files of `--out DIR`: summary.json, requests.csv or .parquet, iterations.csv, steps.jsonl.

Each is written under a temporary name beside its final one and renamed when complete: a full disk or Ctrl-C leaves
nothing half-written. Times are written with all their nanoseconds, undefined values as empty fields.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchsim.compact import narrow
from batchsim.errors import InvalidInput, Problem
from batchsim.metrics import latency
from batchsim.metrics.fleet import phases_ns
from batchsim.metrics.ticks import max_itl_ns
from batchsim.records import Iterations, Records, Requests, Status
from batchsim.report.table import Codes, Column, Decimal, Numbered, csv_blocks, rows_of, values_of, wide

if TYPE_CHECKING:
    import pandas as pd

GROUP = 1 << 16
"""Rows of a row group of a Parquet file."""


def write_run(
    folder: Path, records: Records, summary: Mapping[str, Any], *, requests_format: str = "csv"
) -> list[Path]:
    """Writes every file of a run into `folder` (made if absent) and returns their paths.

    InvalidInput, one line, where the folder or a file cannot be written or a package is not there.
    """
    if requests_format not in ("csv", "parquet"):
        raise InvalidInput([Problem("--format", "must be csv or parquet", requests_format)])
    make_folder(folder)
    requests = folder / f"requests.{requests_format}"
    written = [write_json(folder / "summary.json", summary)]
    written.append((write_requests_csv if requests_format == "csv" else write_requests_parquet)(requests, records))
    written.append(write_iterations_csv(folder / "iterations.csv", records))
    if records.step_log is not None:
        written.append(write_steps(folder / "steps.jsonl", records.step_log))
    return written


def write_json(path: Path, values: Mapping[str, Any]) -> Path:
    """A mapping as JSON; ValueError if a number in it is not finite (undefined is null)."""
    text = json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False)
    return write_atomically(path, lambda stream: stream.write(text + "\n"))


def write_requests_csv(path: Path, records: Records) -> Path:
    """requests.csv: one row a request, in file order."""
    return _write_csv(path, request_columns(records))


def write_iterations_csv(path: Path, records: Records) -> Path:
    """iterations.csv: one row a step or run of equal steps."""
    return _write_csv(path, iteration_columns(records.iterations))


def write_requests_parquet(path: Path, records: Records) -> Path:
    """requests.parquet, the columns of requests.csv, undefined as null; needs pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as missing:
        rule = "needs pyarrow: pip install 'batchsim[parquet]'"
        raise InvalidInput([Problem("--format", rule, "parquet")]) from missing
    columns = request_columns(records)

    def table(start: int) -> pa.Table:
        return pa.table({name: _arrow(pa, rows_of(column, start, start + GROUP)) for name, column in columns.items()})

    def fill(stream: IO[Any]) -> None:
        first = table(0)
        with pq.ParquetWriter(stream, first.schema) as writer:
            writer.write_table(first)
            for start in range(GROUP, len(records.requests), GROUP):
                writer.write_table(table(start))

    return write_atomically(path, fill, binary=True)


def _arrow(pa: Any, column: Column) -> Any:
    """A column for pyarrow, of a type that does not depend on its values."""
    if isinstance(column, Decimal):
        undefined = column.units < 0
        return pa.array(column.units / 10**column.decimals if column.decimals else wide(column.units), mask=undefined)
    return pa.array(values_of(column), pa.int64() if isinstance(column, np.ndarray) else pa.string())


def write_steps(path: Path, steps: Iterable[Mapping[str, Any]]) -> Path:
    """steps.jsonl: one line an iteration, every request named."""

    def fill(stream: IO[Any]) -> None:
        for step in steps:
            stream.write(json.dumps(step, separators=(",", ":"), ensure_ascii=False) + "\n")

    return write_atomically(path, fill)


def requests_frame(records: Records) -> pd.DataFrame:
    """requests.csv as a DataFrame; undefined times are NaN."""
    return _frame(request_columns(records))


def iterations_frame(records: Records) -> pd.DataFrame:
    """iterations.csv as a DataFrame."""
    return _frame(iteration_columns(records.iterations))


def request_columns(records: Records) -> dict[str, Column]:
    """The columns of requests.csv by name. `output_tokens`: those it got, all it asked for where it completed."""
    requests, workload = records.requests, records.workload
    columns: dict[str, Column] = {
        "id": Numbered("r", len(requests)) if workload.ids is None else workload.ids,
        "tenant": Codes(workload.tenant, workload.tenants),
        "class": Codes(workload.traffic_class, workload.classes),
        "priority": workload.priority,
        "replica": Decimal(narrow(requests, "replica"), 0),
        "status": Codes(requests.status, [status.name.lower() for status in Status]),
        "reason": _reasons(requests),
        "arrival_s": Decimal(requests.arrival_ns, 9),
        "admitted_s": Decimal(requests.admitted_ns, 9),
        "first_token_s": Decimal(requests.first_token_ns, 9),
        "finished_s": Decimal(requests.finished_ns, 9),
        "prompt_tokens": requests.prompt_tokens,
        "output_tokens": narrow(requests, "emitted_tokens"),
        "queue_ms": Decimal(latency.queue_ns(requests), 6),
        "ttft_ms": Decimal(latency.ttft_ns(requests), 6),
        "tpot_ms": Decimal(_femtoseconds(latency.tpot_ns(requests)), 12),
        "e2e_ms": Decimal(latency.e2e_ns(requests), 6),
        "max_itl_ms": Decimal(max_itl_ns(records), 6),
        "preemptions": narrow(requests, "preemptions"),
        "recomputed_tokens": narrow(requests, "recomputed_tokens"),
        "prefix_hit_tokens": narrow(requests, "prefix_hit_tokens"),
    }
    if workload.sessions:
        columns["session"] = Codes(workload.session, [*workload.sessions, ""])  # ABSENT, -1, is the last
    if workload.max_concurrency is not None:
        columns["client_queue_ms"] = Decimal(latency.client_queue_ns(requests), 6)
        columns["from_schedule_ttft_ms"] = Decimal(latency.from_schedule_ttft_ns(requests), 6)
        columns["from_schedule_e2e_ms"] = Decimal(latency.from_schedule_e2e_ns(requests), 6)
    if records.handoffs is not None:
        columns["prefill_replica"] = Decimal(records.handoffs.prefill_replica, 0)
        for name, phase_ns in phases_ns(requests, records.handoffs).items():
            columns[f"{name}_ms"] = Decimal(phase_ns, 6)
    return columns


def iteration_columns(iterations: Iterations) -> dict[str, Column]:
    """The columns of iterations.csv by name."""
    names = ("repeats", "prefill_tokens", "decode_seqs", "context_tokens", "running", "waiting", "kv_blocks_used")
    columns: dict[str, Column] = {
        "replica": narrow(iterations, "replica"),
        "start_s": Decimal(iterations.start_ns, 9),
        "end_s": Decimal(iterations.end_ns, 9),
    }
    return columns | {name: narrow(iterations, name) for name in (*names, "preempted")}


def _reasons(requests: Requests) -> Codes:
    """Why the rejected and cancelled were, empty for the others."""
    names = ["", *dict.fromkeys(requests.reasons.values())]
    place = {name: number for number, name in enumerate(names)}
    code = np.zeros(len(requests), dtype=np.int64)
    for index, reason in requests.reasons.items():
        code[index] = place[reason]
    return Codes(code, names)


def _femtoseconds(tpot_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """TPOT is no whole number of ns: its nearest 1e-12 ms."""
    return np.where(np.isnan(tpot_ns), -1, np.rint(np.nan_to_num(tpot_ns) * 1e6)).astype(np.int64)


def make_folder(folder: Path) -> None:
    """Makes a folder for results; InvalidInput where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def write_atomically(path: Path, fill: Callable[[IO[Any]], Any], *, binary: bool = False) -> Path:
    """Lets `fill` write to a temporary file beside `path`, then renames it: all of the file, or none.

    InvalidInput, one line, where the system refuses; the temporary file goes whatever happens.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            mode, encoding = ("wb", None) if binary else ("w", "utf-8")
            with temporary.open(mode, encoding=encoding, newline=None if binary else "\n") as stream:
                fill(stream)
            temporary.replace(path)
        except OSError as error:
            raise _unwritable(path, error) from error
    finally:
        if temporary.exists():
            temporary.unlink()
    return path


def _unwritable(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput([Problem("--out", f"cannot be written: {error.strerror or error}", str(path))])


def _frame(columns: Mapping[str, Column]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: values_of(column) for name, column in columns.items()})


def _write_csv(path: Path, columns: Mapping[str, Column]) -> Path:
    return write_atomically(path, lambda stream: stream.writelines(csv_blocks(columns)), binary=True)
