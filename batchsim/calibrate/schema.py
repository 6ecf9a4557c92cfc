"""Measurements of kernels: the tidy CSV that `batchsim calibrate` reads, row by row, and what it refuses.

One row is one timing. Columns (`docs/how-to/calibrate-my-gpu.md`); what does not apply to an operation stays empty:

    op         gemm | prefill_attention | decode_attention | mixed_attention | allreduce | moe | decode_layer | copy |
               iteration
    gpu        catalogue name of the GPU
    dtype      of the weights, or of the KV cache for attention: bf16 | fp16 | fp8
    model      iteration: catalogue name of the model
    tp         GPUs that share the work (allreduce, moe, iteration)
    n, k       gemm: columns of the output, inner size; moe: expert width, hidden size
    heads, kv_heads, head_dim    attention, as one GPU holds them
    experts, experts_per_token   moe
    tokens     gemm, moe: rows; prefill_attention: tokens of each chunk; iteration: prefill tokens of the step
    chunks     iteration: prefill chunks, all of one length
    batch      attention: sequences; mixed_attention, decode_layer, iteration: decoding sequences
    context    of each decoding sequence, the new token included: decode_attention, mixed_attention, decode_layer,
               iteration
    past       prefill_attention, iteration: tokens in the cache before each chunk
    bytes      allreduce: size of the message; copy: bytes copied
    time_ms    the measurement
    source     where it comes from
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from batchsim.errors import InvalidInput, Problem, problem

COLUMNS = (
    "op", "gpu", "dtype", "model", "tp", "n", "k", "heads", "kv_heads", "head_dim", "experts", "experts_per_token",
    "tokens", "chunks", "batch", "context", "past", "bytes", "time_ms", "source",
)  # fmt: skip
TEXT = ("op", "gpu", "dtype", "model", "source")
NEEDS: dict[str, tuple[str, ...]] = {
    "gemm": ("n", "k", "tokens"),
    "prefill_attention": ("heads", "kv_heads", "head_dim", "tokens", "batch"),
    "decode_attention": ("heads", "kv_heads", "head_dim", "batch", "context"),
    "mixed_attention": ("heads", "kv_heads", "head_dim", "tokens", "batch", "context"),
    "allreduce": ("tp", "bytes"),
    "decode_layer": ("model", "tp", "batch", "context"),
    "copy": ("bytes",),
    "moe": ("n", "k", "experts", "experts_per_token", "tokens"),
    "iteration": ("model", "tp"),
}
DTYPES = ("bf16", "fp16", "fp8")


@dataclass(frozen=True, slots=True)
class Row:
    """One timing; 0 where a column does not apply."""

    op: str
    gpu: str
    dtype: str
    time_ms: float
    model: str = ""
    tp: int = 1
    n: int = 0
    k: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    experts: int = 0
    experts_per_token: int = 0
    tokens: int = 0
    chunks: int = 0
    batch: int = 0
    context: int = 0
    past: int = 0
    bytes: int = 0
    source: str = ""


def read(path: Path) -> list[Row]:
    """The rows of a measurement CSV; `#` lines are comments.

    Raises InvalidInput that names every bad row: file, line, column, value and rule.
    """
    with path.open(encoding="utf-8", newline="") as file:
        lines = [(number, line) for number, line in enumerate(file, 1) if line.strip() and not line.startswith("#")]
    if not lines:
        raise InvalidInput([problem(str(path), None, "holds no measurements")])
    header = next(csv.reader([lines[0][1]]))
    missing = [name for name in ("op", "gpu", "time_ms") if name not in header]
    unknown = [name for name in header if name not in COLUMNS]
    if missing or unknown:
        where = f"{path}:{lines[0][0]}"
        raise InvalidInput(
            [problem(where, name, "missing column") for name in missing]
            + [problem(where, name, "unknown column") for name in unknown]
        )
    rows, problems = [], []
    for number, line in lines[1:]:
        cells = dict(zip(header, next(csv.reader([line])), strict=False))
        row, wrong = _row(cells, f"{path.name}:{number}")
        problems += wrong
        if row is not None:
            rows.append(row)
    if problems:
        raise InvalidInput(problems, f"{path}: {len({p.path.rsplit(':', 1)[0] for p in problems})} bad rows")
    if not rows:
        raise InvalidInput([problem(str(path), None, "holds no measurements")])
    return rows


def write(path: Path, rows: Iterable[Row], comment: Sequence[str] = ()) -> None:
    """Write rows as CSV, numbers short, columns that no row uses left out; `comment` lines come first."""
    kept = list(rows)
    columns = [c for c in COLUMNS if any(getattr(row, c) != getattr(Row("", "", "", 0.0), c) for row in kept)]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"# {line}\n" for line in comment)
        out = csv.writer(file, lineterminator="\n")
        out.writerow(columns)
        for row in kept:
            out.writerow([_cell(getattr(row, column)) for column in columns])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return "" if value == 0 else str(value)


def _row(cells: dict[str, str], where: str) -> tuple[Row | None, list[Problem]]:
    """The row, or everything wrong with it."""
    problems: list[Problem] = []
    values: dict[str, str | int | float] = {}
    op = (cells.get("op") or "").strip()
    if op not in NEEDS:
        problems.append(problem(f"{where}: op", op, f"must be one of {', '.join(NEEDS)}"))
    for name, raw in cells.items():
        text = (raw or "").strip()
        if name in TEXT:
            values[name] = text
        elif text:
            number = _number(text)
            if number is None or not math.isfinite(number) or number < 0:
                problems.append(problem(f"{where}: {name}", text, "must be a number, 0 or more"))
            elif name == "time_ms":
                values[name] = number
            elif number != int(number):
                problems.append(problem(f"{where}: {name}", text, "must be a whole number"))
            else:
                values[name] = int(number)
    if not any(p.path.endswith("time_ms") for p in problems) and not values.get("time_ms"):
        problems.append(problem(f"{where}: time_ms", cells.get("time_ms"), "must be above 0"))
    values["dtype"] = values.get("dtype") or "bf16"
    if values["dtype"] not in DTYPES:
        problems.append(problem(f"{where}: dtype", values["dtype"], f"must be one of {', '.join(DTYPES)}"))
    named = {p.path.rsplit(": ", 1)[-1] for p in problems}
    absent = [name for name in NEEDS.get(op, ()) if not values.get(name) and name not in named]
    problems += [problem(f"{where}: {name}", None, f"missing: {op} needs it") for name in absent]
    return (None if problems else Row(**values)), problems  # type: ignore[arg-type]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
