"""A cost model read off a table of measured iterations, interpolated between its rows."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from batchsim.cost.model import FS_PER_MS, CostContext, Flags, Int64, Shape
from batchsim.errors import InvalidInput, Problem, problem

COLUMNS = ("prefill_tokens", "decode_seqs", "context_tokens", "time_ms")
MOST_PROBLEMS = 20

V = TypeVar("V")


class Row(NamedTuple):
    """One measured iteration; `context` is the mean context of its decoding sequences, 0 without any."""

    prefill_tokens: int
    decode_seqs: int
    context: float
    time_ms: float


@dataclass(frozen=True, slots=True)
class Table:
    """Measured iterations from a CSV file, interpolated; beyond them the last slope goes on, and is flagged."""

    path: Annotated[str, Field(description=f"CSV with the columns {', '.join(COLUMNS)} (context summed)")]

    def build(self, context: CostContext) -> TableCost:
        """The table; InvalidInput names the bad rows."""
        return TableCost(read(context.file(self.path)), self.path)


class TableCost:
    """Interpolates measured iterations: over mean context, then decoding sequences, then prompt tokens.

    Rows need not form a full grid. An iteration that mixes prefill and decode, where no row does, takes the sum of
    the two apart. What the chunks find in the cache makes no difference: the table has no column for it.
    """

    __slots__ = ("_about", "_levels", "_prefill", "_range", "_seq_fs", "_step_fs")

    def __init__(self, rows: Sequence[Row], source: str, step_fs: int = 0, seq_fs: int = 0) -> None:
        self._step_fs, self._seq_fs = step_fs, seq_fs
        self._prefill = _axis({row.prefill_tokens: row.time_ms for row in rows if not row.decode_seqs})
        levels: dict[float, dict[float, dict[float, float]]] = {}
        for row in rows:
            if row.decode_seqs:
                level = levels.setdefault(row.prefill_tokens, {})
                level.setdefault(row.decode_seqs, {})[row.context] = row.time_ms
        self._levels = _axis({tokens: _axis({d: _axis(c) for d, c in by.items()}) for tokens, by in levels.items()})
        self._range = _ranges(rows)
        self._about: dict[str, Any] = {
            "kind": "table",
            "source": source,
            "status": "measured",
            "mape_percent": None,
            "p95_percent": None,
            "range": {name: list(bounds) for name, bounds in self._range.items()},
            "notes": [] if self._mixed else ["no mixed iterations measured: prefill and decode are added up"],
        }

    @property
    def _mixed(self) -> bool:
        return bool(self._levels) and self._levels[-1][0] > 0

    def price(self, shape: Shape) -> tuple[int, None]:
        """The iteration's time; growth is None, because a table is not affine in context."""
        fs = round(self._time_ms(shape.prefill_tokens, shape.decode_seqs, shape.context_tokens) * FS_PER_MS)
        return fs + self._step_fs + self._seq_fs * (shape.prefill_seqs + shape.decode_seqs), None

    def with_host(self, step_fs: int, seq_fs: int) -> TableCost:
        """The same plus the engine's host time."""
        other = object.__new__(TableCost)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._step_fs, other._seq_fs = self._step_fs + step_fs, self._seq_fs + seq_fs
        return other

    def describe(self) -> dict[str, Any]:
        return dict(self._about)

    def outside(self, prefill_tokens: Int64, decode_seqs: Int64, context_tokens: Int64) -> Mapping[str, Flags]:
        """Iterations outside the rows' least and greatest values; `mixed`: those that mix where no row does."""
        decoding, prefilling = decode_seqs > 0, prefill_tokens > 0
        columns = {
            "prefill_tokens": (prefill_tokens, prefilling),
            "decode_seqs": (decode_seqs, decoding),
            "context_per_seq": (context_tokens / np.maximum(decode_seqs, 1), decoding),
        }
        flags = {}
        for name, (column, applies) in columns.items():
            low, high = self._range.get(name, (np.inf, -np.inf))
            flags[name] = np.asarray(applies & ((column < low) | (column > high)))
        flags["mixed"] = decoding & prefilling & (not self._mixed)
        return flags

    def _time_ms(self, tokens: int, decodes: int, context: int) -> float:
        if not decodes:
            return _along(self._prefill, tokens, float)
        if tokens and not self._mixed:
            return self._time_ms(tokens, 0, 0) + self._time_ms(0, decodes, context)
        mean = context / decodes
        return _along(self._levels, tokens, lambda by: _along(by, decodes, lambda curve: _along(curve, mean, float)))


Axis = list[tuple[float, V]]


def _axis(values: Mapping[Any, V]) -> Axis[V]:
    return sorted(((float(at), value) for at, value in values.items()), key=lambda pair: pair[0])


def _along(axis: Axis[V], at: float, value: Callable[[V], float]) -> float:
    """Interpolated along one axis; below it the first value, above it the last slope, never falling."""
    if not axis:
        return 0.0
    after = bisect_right(axis, at, key=lambda pair: pair[0])
    if after == 0 or len(axis) == 1:
        return value(axis[0][1])
    low, high = axis[min(after, len(axis) - 1) - 1], axis[min(after, len(axis) - 1)]
    y0, y1 = value(low[1]), value(high[1])
    slope = (y1 - y0) / (high[0] - low[0])
    if after < len(axis):
        return y0 + slope * (at - low[0])
    return y1 + max(0.0, slope) * (at - high[0])


def _ranges(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    columns: dict[str, list[float]] = {
        "prefill_tokens": [row.prefill_tokens for row in rows if row.prefill_tokens],
        "decode_seqs": [row.decode_seqs for row in rows if row.decode_seqs],
        "context_per_seq": [row.context for row in rows if row.decode_seqs],
    }
    return {name: (min(values), max(values)) for name, values in columns.items() if values}


def read(path: Path) -> list[Row]:
    """The rows of a table; InvalidInput names every bad one (the first 20), a missing column, or a missing part.

    Rows of the same iteration are refused: which of them to believe is not for a simulator to say.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise InvalidInput([Problem(f"{path.name}:1", f"missing column {name}") for name in missing])
            parsed = [(reader.line_num, _row(entry, f"{path.name}:{reader.line_num}")) for entry in reader]
    except OSError as error:
        raise InvalidInput([problem("cost_model.path", path, f"cannot be read: {error.strerror}")]) from error
    problems = [item for _, item in parsed if isinstance(item, Problem)]
    if problems:
        note = f"{len(problems)} bad rows" if len(problems) > MOST_PROBLEMS else ""
        raise InvalidInput(problems[:MOST_PROBLEMS], note)
    rows = [(line, item) for line, item in parsed if isinstance(item, Row)]
    return _complete(rows, path)


def _row(entry: dict[str, str], place: str) -> Row | Problem:
    numbers = {}
    for name in COLUMNS:
        try:
            numbers[name] = float(entry[name])
        except (TypeError, ValueError):
            return Problem(f"{place}: {name}", "is not a number", repr(entry[name]))
        if not isfinite(numbers[name]) or numbers[name] < 0:
            return Problem(f"{place}: {name}", "must be finite and at least 0", entry[name])
    for name in COLUMNS[:3]:
        if not numbers[name].is_integer():
            return Problem(f"{place}: {name}", "must be a whole number", entry[name])
    tokens, decodes, context = (int(numbers[name]) for name in COLUMNS[:3])
    if numbers["time_ms"] == 0:
        return Problem(f"{place}: time_ms", "must be above 0", entry["time_ms"])
    if tokens + decodes == 0:
        return Problem(place, "computes nothing: prefill_tokens and decode_seqs are 0")
    if context < decodes or (context and not decodes):
        rule = f"must be at least decode_seqs ({decodes}), and 0 without any"
        return Problem(f"{place}: context_tokens", rule, str(context))
    return Row(tokens, decodes, context / decodes if decodes else 0.0, numbers["time_ms"])


def _complete(numbered: list[tuple[int, Row]], path: Path) -> list[Row]:
    seen: dict[tuple[int, int, float], int] = {}
    for line, row in numbered:
        first = seen.setdefault(row[:3], line)
        if first != line:
            raise InvalidInput([Problem(f"{path.name}:{line}", f"the same iteration as in line {first}")])
    rows = [row for _, row in numbered]
    if not any(row.decode_seqs == 0 for row in rows):
        raise InvalidInput([Problem(path.name, "needs at least one row of pure prefill (decode_seqs 0)")])
    if not any(row.prefill_tokens == 0 for row in rows):
        raise InvalidInput([Problem(path.name, "needs at least one row of pure decode (prefill_tokens 0)")])
    return rows
