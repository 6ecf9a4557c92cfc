"""Columns of whole numbers in the smallest integers that hold them: so a run of a million requests fits in memory."""

from __future__ import annotations

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
    """Rows of `width` int64 that come as bytes, put away column by column.

    A column is one buffer that grows in place and is handed over as it is: lists of blocks, joined at the end, held a
    run of a million requests twice (benchmark: bench_scale).
    """

    def __init__(self, width: int) -> None:
        self._columns = [bytearray() for _ in range(width)]
        self._types: list[Any] = [np.dtype(np.int8)] * width
        self.rows = 0

    def put(self, rows: bytes | bytearray) -> None:
        """Add rows that lie flat in memory; the buffer is free again afterwards."""
        table = np.frombuffer(rows, dtype=np.int64).reshape(-1, len(self._columns))
        self.rows += len(table)
        for place in range(len(self._columns)):
            values = narrowed(table[:, place])
            if values.itemsize > self._types[place].itemsize:
                self._columns[place] = bytearray(self._array(place).astype(values.dtype).tobytes())
                self._types[place] = values.dtype
            self._columns[place] += values.astype(self._types[place], copy=False).tobytes()

    def take(self, place: int) -> Ints:
        """One column, whole; it is forgotten here."""
        whole = self._array(place)
        self._columns[place] = bytearray()
        return whole.astype(np.int64) if self.rows < SMALL else whole

    def _array(self, place: int) -> Ints:
        return np.frombuffer(self._columns[place], dtype=self._types[place])
