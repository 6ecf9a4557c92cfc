"""Columns to CSV, a block of rows at a time: a million rows without a million strings a column. See `words`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.compact import Int64, Ints
from batchsim.report import words

ROWS = 1 << 13
"""Rows formatted at a time."""


@dataclass(frozen=True, slots=True)
class Decimal:
    """Whole numbers of units of 10**-decimals (0, 3, 6, 9, 12); a negative one is undefined: an empty field."""

    units: Ints
    decimals: int


@dataclass(frozen=True, slots=True)
class Codes:
    """Text by index into a few names."""

    code: NDArray[Any]
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Numbered:
    """`count` names made of a prefix and the row's number: r0, r1, …"""

    prefix: str
    count: int


Column = Ints | Decimal | Codes | Numbered | Sequence[str]


def length(column: Column) -> int:
    """Rows of a column."""
    if isinstance(column, Numbered):
        return column.count
    return len(column.units if isinstance(column, Decimal) else column.code if isinstance(column, Codes) else column)


def csv_blocks(columns: Mapping[str, Column]) -> Iterator[bytes]:
    """The header, then blocks of rows, UTF-8, lines ended by a line feed."""
    yield (",".join(columns) + "\n").encode()
    count = length(next(iter(columns.values())))
    ends = [","] * (len(columns) - 1) + ["\n"]
    formats = [_format(column, end) for column, end in zip(columns.values(), ends, strict=True)]
    for start in range(0, count, ROWS):
        stop = min(start + ROWS, count)
        yield words.joined([form(start, stop) for form in formats], stop - start)


def values_of(column: Column) -> NDArray[Any] | list[str]:
    """The same column for a DataFrame: floats with NaN where undefined, whole numbers, or text."""
    if isinstance(column, Decimal):
        if column.decimals == 0 and column.units.min(initial=0) >= 0:
            return wide(column.units)
        return np.where(column.units < 0, np.nan, column.units / 10**column.decimals)
    if isinstance(column, Codes):
        return np.asarray(np.array(column.names, dtype=object)[column.code])
    if isinstance(column, Numbered):
        return [f"{column.prefix}{number}" for number in range(column.count)]
    return wide(column) if isinstance(column, np.ndarray) else list(column)


def rows_of(column: Column, start: int, stop: int) -> Column:
    """Some rows of a column."""
    if isinstance(column, Decimal):
        return Decimal(column.units[start:stop], column.decimals)
    if isinstance(column, Codes):
        return Codes(column.code[start:stop], column.names)
    if isinstance(column, Numbered):
        return [f"{column.prefix}{number}" for number in range(start, min(stop, column.count))]
    return column[start:stop]


def _format(column: Column, end: str) -> Callable[[int, int], list[words.Words]]:
    """A function from a range of rows to the words of their fields."""
    if isinstance(column, Decimal):
        units, decimals = column.units, column.decimals
        if decimals == 0:
            return lambda start, stop: words.optional(wide(units[start:stop]), end)
        return lambda start, stop: words.decimal(wide(units[start:stop]), decimals, end)
    if isinstance(column, Codes):
        names, code = words.names(column.names, end), column.code
        return lambda start, stop: words.chosen(names, code[start:stop])
    if isinstance(column, Numbered):
        prefix = list(words.names([column.prefix], "").T)
        return lambda start, stop: prefix + words.whole(np.arange(start, stop), end)
    if isinstance(column, np.ndarray):
        numbers = column
        return lambda start, stop: words.whole(wide(numbers[start:stop]), end)
    texts = column
    return lambda start, stop: list(words.names(texts[start:stop], end).T)


def wide(numbers: Ints) -> Int64:
    """The same numbers in 64 bits."""
    return numbers.astype(np.int64, copy=False)
