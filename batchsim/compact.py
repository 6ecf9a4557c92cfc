"""Columns of whole numbers in the smallest integers that hold them: so a run of a million requests fits in memory."""

from __future__ import annotations

from mmap import PAGESIZE, mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Ints = NDArray[Any]
"""Whole numbers of any width."""
SMALL = 1 << 16
"""A column of fewer rows stays int64."""
_WIDTHS = (np.int8, np.int16, np.int32)


class Column:
    """A field of a dataclass of columns: kept as narrow as it came, read as int64: arithmetic never wraps around.

    Reading a narrow column copies it: where a part will do, `part(columns, name, rows)` copies only that.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, instance: object | None, owner: type) -> Int64:
        if instance is None:
            raise AttributeError(self._name)  # no default, says that to `dataclass`
        narrow: Ints = instance.__dict__[self._name]
        return narrow.astype(np.int64, copy=False)

    def __set__(self, instance: object, values: Ints) -> None:
        instance.__dict__[self._name] = values


def narrow(columns: object, name: str) -> Ints:
    """The column as it is kept, of any width."""
    values: Ints = columns.__dict__[f"_{name}"]
    return values


def part(columns: object, name: str, rows: Any) -> Int64:
    """Some rows of a column, int64: a slice, numbers, or a mask."""
    taken: Int64 = narrow(columns, name)[rows].astype(np.int64, copy=False)
    return taken


def narrowed(values: Ints) -> Ints:
    """The same numbers in the smallest of 1, 2, 4 and 8 bytes that holds all of them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for width in _WIDTHS:
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            return values.astype(width)
    return values.astype(np.int64)


class Table:
    """Rows of `width` int64 that come as bytes, put away column by column."""

    def __init__(self, width: int) -> None:
        self._columns = [_Growing() for _ in range(width)]
        self.rows = 0

    def put(self, rows: bytes | bytearray) -> None:
        """Add rows that lie flat in memory; the buffer is free again afterwards."""
        table = np.frombuffer(rows, dtype=np.int64).reshape(-1, len(self._columns))
        for place, column in enumerate(self._columns):
            column.append(narrowed(table[:, place]))
        self.rows += len(table)

    def take(self, place: int) -> Ints:
        """One column, whole; it is forgotten here."""
        whole = self._columns[place].values()
        self._columns[place] = _Growing()
        return whole.astype(np.int64) if self.rows < SMALL else whole


class _Growing:
    """A column that grows, in pages of its own.

    Lists of blocks that are joined at the end, and buffers that the allocator moves about, held a run of a million
    requests nearly twice (benchmark: bench_scale).
    """

    def __init__(self) -> None:
        self._pages = mmap(-1, PAGESIZE)
        self._type: Any = np.dtype(np.int8)
        self._rows = 0

    def append(self, values: Ints) -> None:
        kind = max(self._type, values.dtype, key=lambda one: one.itemsize)
        rows = self._rows + len(values)
        if kind != self._type or rows * kind.itemsize > len(self._pages):
            self._move(kind, rows)
        np.frombuffer(self._pages, kind, len(values), self._rows * kind.itemsize)[:] = values
        self._rows = rows

    def values(self) -> Ints:
        return np.frombuffer(self._pages, self._type, self._rows)

    def _move(self, kind: Any, rows: int) -> None:
        """To pages with room for twice as many rows: those not yet written take no memory."""
        pages = mmap(-1, max(2 * rows * kind.itemsize, PAGESIZE))
        np.frombuffer(pages, kind, self._rows)[:] = self.values()
        self._pages.close()
        self._pages, self._type = pages, kind
