"""The fast way through plain tables: columns cut straight out of a block's bytes, without an object a cell.

It takes CSV without quotes and JSON lines of numbers, plain strings and one list of whole numbers, all with the keys
and kinds of the first; it answers None to anything else, which `rows` then reads with the standard library. Benchmark:
reading a million rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from batchsim.workload.columns import Int64
from batchsim.workload.traces.cells import WIDEST, Cells, decimals
from batchsim.workload.traces.lists import Lists, cut_lists
from batchsim.workload.traces.text import Block

_VALUE = r'(?:[0-9.]+|"[^"\\,{}\n]*"|\[[0-9, ]*\])'
_PAIR = r' *"[^"\\,{}\n]*" *: *' + _VALUE
_FLAT = re.compile(r"\{" + _PAIR + "(?:," + _PAIR + r")*\}\Z")
_KEY = re.compile(r'( *"([^"]*)" *: *)(' + _VALUE + ") *[,}]")
_COMMA, _NEWLINE, _BRACE, _DOT, _ZERO, _QUOTE = (ord(mark) for mark in ',\n}.0"')


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that is no row at all, or a cell that breaks a rule."""

    line: int
    column: str
    value: str
    rule: str


@dataclass(slots=True)
class Chunk:
    """Some consecutive rows: their line numbers, the columns that were asked for, and the lines that are no rows."""

    lines: Int64
    columns: dict[str, Cells]
    broken: list[Broken] = field(default_factory=list)


class Slices(Sequence[Any]):
    """The cells of one column, cut out of the block's text only when somebody looks at one."""

    def __init__(self, text: str, starts: Int64, ends: Int64, value: Callable[[str], Any]) -> None:
        self._text, self._starts, self._ends, self._value = text, starts, ends, value

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return list(self)[at]
        return self._value(self._text[int(self._starts[at]) : int(self._ends[at])])

    def __iter__(self) -> Any:
        text, value = self._text, self._value
        spans = zip(self._starts.tolist(), self._ends.tolist(), strict=True)
        return iter([value(text[start:end]) for start, end in spans])


def plain_csv(block: Block, header: list[str], wanted: dict[str, bool]) -> Chunk | None:
    """The block's columns, or None unless every line has all fields, in ASCII without quotes."""
    text, width = block.text, len(header)
    if width < 2 or not text or not text.isascii() or '"' in text or "\r" in text:
        return None
    data = _bytes(text)
    ends = np.flatnonzero((data == _COMMA) | (data == _NEWLINE))
    if len(ends) % width or not _in_order(data[ends], [_COMMA] * (width - 1) + [_NEWLINE]):
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    columns = {}
    for name in wanted:
        if name in header:
            at = header.index(name)
            first, last = starts[at::width], ends[at::width]
            columns[name] = Cells(Slices(text, first, last, str), False, _matrix(data, first, last))
    return Chunk(np.arange(block.first_line, block.first_line + len(ends) // width), columns)


def plain_json(block: Block, wanted: dict[str, bool]) -> Chunk | None:
    """The block's columns, or None unless every line has the first one's keys, and plain values like it."""
    text, lists = block.text, None
    first_line = text[: text.find("\n")] if "\n" in text else text
    if not text.isascii() or "\\" in text or not _FLAT.match(first_line):
        return None
    found = [(match[1], match[2], match[3][0]) for match in _KEY.finditer(first_line, 1)]
    names = [name for _, name, _ in found]
    if len(set(names)) < len(names) or not {name for name, required in wanted.items() if required} <= set(names):
        return None
    kinds = "".join(kind for _, _, kind in found)
    if "[" in kinds:
        cut = cut_lists(text) if kinds.count("[") == 1 else None
        if cut is None:
            return None
        text, lists = cut
    data = _bytes(text)
    ends = _line_ends(data, len(names), 2 * kinds.count('"'))
    if ends is None or (lists is not None and len(lists) != len(ends)):
        return None
    columns = {}
    start = np.concatenate([[0], ends[:-1, -1] + 1]) + 1
    for at, (label, name, kind) in enumerate(found):
        if not _stands(data, start, label):
            return None
        first, last = start + len(label), np.ascontiguousarray(ends[:, at])
        cells = _cells(text, data, first, last, kind if lists is None or kind != "[" else lists)
        if cells is None:
            return None
        if name in wanted:
            columns[name] = cells
        start = last + 1
    return Chunk(np.arange(block.first_line, block.first_line + len(ends)), columns)


def _line_ends(data: NDArray[np.uint8], keys: int, quotes: int) -> Int64 | None:
    """Where each value ends, and the line, a row a line; None where a line has other marks than `keys` values need.

    quotes: how many a line holds besides those around its keys.
    """
    marks = np.flatnonzero((data == _COMMA) | (data == _BRACE) | (data == _NEWLINE))
    order = [_COMMA] * (keys - 1) + [_BRACE, _NEWLINE]
    if len(marks) % len(order) or not _in_order(data[marks], order):
        return None
    ends = marks.reshape(-1, len(order))
    if np.count_nonzero(data == _QUOTE) != (2 * keys + quotes) * len(ends):
        return None  # a quote within a string, or a kind that changes
    if np.count_nonzero(data < ord(" ")) != len(ends) or np.any(ends[:, -1] != ends[:, -2] + 1):
        return None
    starts = np.concatenate([[0], ends[:-1, -1] + 1])
    return ends if _stands(data, starts, "{") else None


def _cells(text: str, data: NDArray[np.uint8], first: Int64, last: Int64, kind: str | Lists) -> Cells | None:
    """The values between `first` and `last`, None where one is not of the first line's kind."""
    if isinstance(kind, Lists):
        return Cells(kind, True) if np.all(last - first == 2) and _stands(data, first, "[]") else None
    return _strings(text, data, first, last) if kind == '"' else _numbers(text, data, first, last)


def _numbers(text: str, data: NDArray[np.uint8], first: Int64, last: Int64) -> Cells | None:
    matrix = _matrix(data, first, last)
    return Cells(Slices(text, first, last, _number), True, matrix) if _plain_numbers(matrix) else None


def _strings(text: str, data: NDArray[np.uint8], first: Int64, last: Int64) -> Cells | None:
    if np.any(last - first < 2) or not ((data[first] == _QUOTE) & (data[last - 1] == _QUOTE)).all():
        return None
    return Cells(Slices(text, first + 1, last - 1, str), True)


def _bytes(text: str) -> NDArray[np.uint8]:
    """The codes of an ASCII text, a line's end at its end."""
    return np.frombuffer((text if text.endswith("\n") or not text else text + "\n").encode("ascii"), np.uint8)


def _in_order(marks: NDArray[np.uint8], order: list[int]) -> bool:
    return bool((marks.reshape(-1, len(order)) == np.array(order, np.uint8)).all())


def _stands(data: NDArray[np.uint8], starts: Int64, label: str) -> bool:
    """Whether `label` stands at each of `starts`."""
    if starts[-1] + len(label) > len(data):
        return False
    return all(bool((data[starts + at] == code).all()) for at, code in enumerate(label.encode("ascii")))


def _matrix(data: NDArray[np.uint8], starts: Int64, ends: Int64) -> NDArray[np.uint8]:
    """Character codes of the cells, one row a position, 0 after a cell's end; too long a cell becomes `?`."""
    sizes = ends - starts
    width = min(int(sizes.max(initial=1)), WIDEST)
    matrix = np.zeros((width, len(starts)), np.uint8)
    for at in range(width):
        codes = data[np.minimum(starts + at, len(data) - 1)]
        np.multiply(codes, sizes > at, out=matrix[at])
    long = sizes > WIDEST
    if long.any():
        matrix[:, long] = 0
        matrix[0, long] = ord("?")
    return matrix


def _plain_numbers(matrix: NDArray[np.uint8]) -> bool:
    """Whether every cell is a JSON number of digits and at most one point within them."""
    _, good, dotted = decimals(matrix, 0)
    if not good.all() or (matrix[0] == _DOT).any():
        return False
    if matrix.shape[0] > 1 and ((matrix[0] == _ZERO) & (matrix[1] != 0) & (matrix[1] != _DOT)).any():
        return False
    if not dotted.any():
        return True
    sizes = np.count_nonzero(matrix, axis=0)
    return not (matrix[sizes - 1, np.arange(matrix.shape[1])] == _DOT).any()


def _number(text: str) -> int | bytes:
    """As the JSON decoder of `rows` gives it: a float stays as it stands."""
    return text.encode() if "." in text else int(text)
