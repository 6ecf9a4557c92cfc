"""Numbers and names as words of four bytes, so that a CSV is written by looking words up: no string for any field.

A word of a number holds three digits and, as its fourth byte, a point, the mark that ends the field, or nothing. Bytes
of value 0 are nothing: digits that a person would not write are such, and the block's joined words are written without
them. Benchmark: a million requests, their files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.compact import Int64

Words = NDArray[np.uint32]
"""One word of each row, or one for all rows."""
_DIGITS = [f"{number:03d}".encode() for number in range(1000)]


def joined(fields: Sequence[list[Words]], rows: int) -> bytes:
    """The rows' fields, one after the other."""
    words = [word for field in fields for word in field]
    matrix = np.empty((rows, len(words)), np.uint32)
    for place, word in enumerate(words):
        matrix[:, place] = word
    return matrix.tobytes().translate(None, b"\0")


def names(texts: Sequence[str], end: str) -> Words:
    """Each text, quoted by RFC 4180 where it needs it, and `end`: a row of words a text."""
    if _needs_quotes("".join(texts)):
        texts = ['"' + text.replace('"', '""') + '"' if _needs_quotes(text) else text for text in texts]
    fields = [(text + end).encode() for text in texts]
    width = -(-max(map(len, fields), default=1) // 4) * 4
    return np.array(fields, dtype=f"S{width}").view(np.uint32).reshape(len(fields), -1)


def _needs_quotes(text: str) -> bool:
    return "," in text or '"' in text or "\n" in text or "\r" in text


def chosen(table: Words, code: NDArray[Any]) -> list[Words]:
    """The words of the rows of `table` that `code` picks."""
    if len(table) == 1 or code.min() == code.max():
        return list(table[code[:1]].T)
    return [np.ascontiguousarray(column)[code] for column in table.T]


def whole(numbers: Int64, end: str) -> list[Words]:
    """Whole numbers of either sign."""
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return list(names([str(low)], end).T)
    if low >= 0:
        return _whole(numbers, high, end)
    sign = np.where(numbers < 0, np.uint32(_word(b"-")), np.uint32(0))
    return [sign, *_whole(np.abs(numbers), max(-low, high), end)]


def decimal(units: Int64, decimals: int, end: str) -> list[Words]:
    """Units of 10**-decimals (3, 6, 9, …) with at least one digit on each side of the point; nothing where negative."""
    low, high = int(units.min()), int(units.max())
    if high < 0:
        return [np.array([_word(end.encode())], np.uint32)]
    if low == high:
        units = units[:1]
    defined = np.maximum(units, 0) if low < 0 else units
    scale = 10**decimals
    before = defined // scale
    words = [*_whole(before, high // scale, "."), *_fraction(defined - before * scale, decimals // 3, end)]
    return words if low >= 0 else _blank(words, units < 0, end)


def optional(numbers: Int64, end: str) -> list[Words]:
    """Whole numbers; nothing where negative."""
    if int(numbers.min()) >= 0:
        return whole(numbers, end)
    return _blank(whole(np.maximum(numbers, 0), end), numbers < 0, end)


def _blank(words: list[Words], where: NDArray[np.bool_], end: str) -> list[Words]:
    blank = [0] * (len(words) - 1) + [_word(end.encode())]
    return [np.where(where, np.uint32(empty), word) for word, empty in zip(words, blank, strict=True)]


def _whole(numbers: Int64, high: int, end: str) -> list[Words]:
    """Numbers from 0 to `high`, the last word ended by `end`."""
    rest: NDArray[Any] = numbers.astype(np.uint32) if high < 2**32 else numbers
    words: list[Words] = []
    zero, mark = "0", end
    while True:
        table = _words(False, zero, mark)
        if high < 1000:
            return [table[rest + 1000], *words]
        above = rest // 1000
        low = rest - above * 1000
        low += (above == 0) * rest.dtype.type(1000)
        words.insert(0, table[low])
        rest, high = above, high // 1000
        zero, mark = "", ""


def _fraction(numbers: Int64, groups: int, end: str) -> list[Words]:
    """The digits behind a point: so many groups of three, the last word ended by `end`."""
    rest: NDArray[Any] = numbers.astype(np.uint32) if groups <= 3 else numbers
    words: list[Words] = []
    nothing_behind: NDArray[Any] = np.ones(len(numbers), np.bool_)
    for group in reversed(range(groups)):
        above = rest // 1000
        low = rest - above * 1000
        table = _words(True, "" if group else "0", "" if words else end)
        words.insert(0, table[low + nothing_behind * rest.dtype.type(1000)])
        nothing_behind &= low == 0
        rest = above
    return words


@lru_cache
def _words(trailing: bool, zero: str, end: str) -> Words:
    """Words of 0 to 999 and `end`: with all three digits, then without the leading (or trailing) zeros, 0 as `zero`."""
    strip = bytes.rstrip if trailing else bytes.lstrip
    short = [strip(digits, b"0") for digits in _DIGITS]
    short[0] = zero.encode()
    mark = end.encode()
    return np.array([text + mark for text in (*_DIGITS, *short)], dtype="S4").view(np.uint32)


def _word(text: bytes) -> int:
    return int(np.array([text], dtype="S4").view(np.uint32)[0])
