"""Columns to CSV, a block of rows at a time, as matrices of bytes: a million rows without a million strings a column.

Whole numbers and decimals are split into groups of three digits by a table; zeros that a person would not write are
masked out. (Formatting each value as Python text took two and a half times as long, and more memory.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.compact import Int64, Ints

Bytes = NDArray[np.uint8]
Keep = NDArray[np.bool_]
ROWS = 1 << 14
"""Rows formatted at a time."""
_ZERO = ord("0")
_GROUPS = np.array([[_ZERO + n // 100, _ZERO + n // 10 % 10, _ZERO + n % 10] for n in range(1000)], dtype=np.uint8).T


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
    formats = [_format(column) for column in columns.values()]
    for start in range(0, count, ROWS):
        stop = min(start + ROWS, count)
        parts: list[tuple[Bytes, Keep]] = []
        for place, form in enumerate(formats):
            parts.append(form(start, stop))
            parts.append(_constant("," if place < len(formats) - 1 else "\n", stop - start))
        text = np.concatenate([matrix for matrix, _ in parts])
        keep = np.concatenate([mask for _, mask in parts])
        yield text.T[keep.T].tobytes()


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


def _format(column: Column) -> Callable[[int, int], tuple[Bytes, Keep]]:
    """A function from a range of rows to (bytes, which of them to keep), each of shape (width, rows)."""
    if isinstance(column, Decimal):
        units, decimals = column.units, column.decimals
        return lambda start, stop: _decimals(wide(units[start:stop]), decimals)
    if isinstance(column, Codes):
        names, code = _text(column.names), column.code
        return lambda start, stop: _kept(names[:, code[start:stop]])
    if isinstance(column, Numbered):
        prefix = column.prefix
        return lambda start, stop: _joined(_constant(prefix, stop - start), _whole(np.arange(start, stop)))
    if isinstance(column, np.ndarray):
        numbers = column
        return lambda start, stop: _whole(wide(numbers[start:stop]))
    words = column
    return lambda start, stop: _kept(_text(words[start:stop]))


def wide(numbers: Ints) -> Int64:
    """The same numbers in 64 bits."""
    return numbers.astype(np.int64, copy=False)


def _joined(*parts: tuple[Bytes, Keep]) -> tuple[Bytes, Keep]:
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _constant(text: str, rows: int) -> tuple[Bytes, Keep]:
    letters = np.frombuffer(text.encode(), dtype=np.uint8)
    matrix = np.repeat(letters, rows).reshape(len(letters), rows)
    return matrix, np.ones(matrix.shape, dtype=bool)


def _kept(matrix: Bytes) -> tuple[Bytes, Keep]:
    return matrix, matrix != 0


def _text(words: Sequence[str]) -> Bytes:
    """Fields as columns of bytes, quoted by RFC 4180 where they need it, short ones filled up with zero bytes."""
    fields = np.array([_quoted(word) for word in words], dtype=np.bytes_)
    return np.ascontiguousarray(fields.view(np.uint8).reshape(len(words), -1).T)


def _quoted(word: str) -> bytes:
    if "," in word or '"' in word or "\n" in word or "\r" in word:
        word = '"' + word.replace('"', '""') + '"'
    return word.encode()


def _digits(units: Int64, groups: int) -> Bytes:
    """At least `groups` groups of three digits of numbers that are not negative, leading zeros included."""
    groups = max(groups, -(-len(str(int(units.max(initial=0)))) // 3))
    matrix = np.empty((3 * groups, len(units)), dtype=np.uint8)
    rest = units
    for group in reversed(range(groups)):
        rest, low = np.divmod(rest, 1000)
        matrix[3 * group : 3 * group + 3] = _GROUPS[:, low]
    return matrix


def _whole(numbers: Int64) -> tuple[Bytes, Keep]:
    """Whole numbers of either sign."""
    matrix = _digits(np.abs(numbers), 1)
    keep = np.logical_or.accumulate(matrix != _ZERO, axis=0)
    keep[-1] = True
    if numbers.min(initial=0) >= 0:
        return matrix, keep
    sign, _ = _constant("-", len(numbers))
    return _joined((sign, (numbers < 0)[None, :]), (matrix, keep))


def _decimals(units: Int64, decimals: int) -> tuple[Bytes, Keep]:
    """Decimals without zeros at either end, one digit on each side of the point at least; empty where negative."""
    if decimals == 0:
        text, keep = _whole(np.maximum(units, 0))
        return text, keep & (units >= 0)
    matrix = _digits(np.maximum(units, 0), decimals // 3 + 1)
    whole, fraction = matrix[:-decimals], matrix[-decimals:]
    keep_whole = np.logical_or.accumulate(whole != _ZERO, axis=0)
    keep_whole[-1] = True
    keep_fraction = np.logical_or.accumulate((fraction != _ZERO)[::-1], axis=0)[::-1]
    keep_fraction[0] = True
    text, keep = _joined((whole, keep_whole), _constant(".", len(units)), (fraction, keep_fraction))
    return text, keep & (units >= 0)
