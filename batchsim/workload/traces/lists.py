"""A JSON column of lists of whole numbers as two arrays, and the fast way to it: all lists of a block at once.

`cut_lists` takes lists as programs write them, `[1, 2]` or `[1,2]`, and answers None to anything else (signs, points,
leading zeros, more than 18 digits, a space elsewhere), which the JSON decoder then reads. Benchmark: reading a trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import overload

import numpy as np

from batchsim.workload.columns import Int64
from batchsim.workload.prefixes import offsets

_LONGEST = 18  # digits, all of which fit into 64 bits
_COMMA, _OPEN, _CLOSE, _ZERO = (ord(mark) for mark in ",[]0")
_SPACED = bytes.maketrans(b",]", b"  ")


class Lists(Sequence[list[int]]):
    """Lists of numbers, one a row: `flat` holds all of them one after the other, `counts` how many are each row's."""

    def __init__(self, flat: Int64, counts: Int64) -> None:
        self.flat, self.counts = flat, counts
        self._offset = offsets(counts)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Lists:
        """The same lists as arrays."""
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), np.int64, int(counts.sum())), counts)

    def __len__(self) -> int:
        return len(self.counts)

    @overload
    def __getitem__(self, at: int) -> list[int]: ...
    @overload
    def __getitem__(self, at: slice) -> list[list[int]]: ...
    def __getitem__(self, at: int | slice) -> list[int] | list[list[int]]:
        if isinstance(at, slice):
            return list(self)[at]
        row = range(len(self))[at]
        return list(map(int, self.flat[self._offset[row] : self._offset[row + 1]]))

    def __iter__(self) -> Iterator[list[int]]:
        flat, offset = self.flat.tolist(), self._offset.tolist()
        return (flat[start:end] for start, end in pairwise(offset))

    def take(self, rows: Int64) -> Lists:
        """The lists of `rows`, which ascend."""
        if len(rows) == len(self):
            return self
        taken = np.zeros(len(self), np.bool_)
        taken[rows] = True
        return Lists(self.flat[np.repeat(taken, self.counts)], self.counts[taken])


def cut_lists(text: str) -> tuple[str, Lists] | None:
    """(the ASCII text with every list emptied, the lists); None unless all brackets hold plain whole numbers."""
    data = np.frombuffer(text.encode("ascii"), np.uint8)
    brackets = data[(data == _OPEN) | (data == _CLOSE)]
    if not len(brackets) or (brackets[::2] != _OPEN).any() or (brackets[1::2] != _CLOSE).any() or len(brackets) % 2:
        return None
    parts = text.replace("[", "]").split("]")
    lists = _parsed("]".join(parts[1::2]) + "]")
    return None if lists is None else ("[]".join(parts[::2]), lists)


def _parsed(bodies: str) -> Lists | None:
    """The lists of `bodies`, a bracket behind each; None where one is not numbers with a comma between any two."""
    if bodies.count(" ") != bodies.count(", "):
        return None
    packed = bodies.encode("ascii").translate(None, b" ")
    codes = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(codes - np.uint8(_ZERO) > 9)
    sizes = np.diff(ends, prepend=-1) - 1
    closing = codes[ends] == _CLOSE
    behind_list = np.concatenate([[True], closing[:-1]])
    empty = sizes == 0
    if np.any(empty & ~(closing & behind_list)) or np.any(~closing & (codes[ends] != _COMMA)):
        return None
    if sizes.max() > _LONGEST or np.any((codes[ends - sizes] == _ZERO) & (sizes > 1)):
        return None
    return Lists(_numbers(packed), np.diff(np.flatnonzero(closing), prepend=-1) - empty[closing])


def _numbers(packed: bytes) -> Int64:
    text = packed.translate(_SPACED)
    return np.zeros(0, np.int64) if text.isspace() else np.fromstring(text, np.int64, sep=" ")  # of spaces it makes a 0
