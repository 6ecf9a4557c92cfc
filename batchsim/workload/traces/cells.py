"""Columns of cells, as they stand in a file, turned into int64 arrays: exact, vectorised, every bad cell named.

Times never pass through a float: at 1.79e9 s a double resolves only a quarter of a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchsim.workload.columns import ABSENT, Int64
from batchsim.workload.fields import MAX_PRIORITY, MAX_TIME_S, MAX_TOKENS, NS_PER_MS, NS_PER_S

WIDEST = 40  # characters of a cell that the vectorised parsers look at; longer ones are read one by one
_SHOWN = 40  # characters of a bad value in a message
_WHOLE = re.compile(r"-?[0-9]+\Z")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\Z")
_ZERO, _DOT = ord("0"), ord(".")


class _Missing:
    """Stands for a key that a JSON row lacks."""


MISSING = _Missing()


@dataclass(slots=True)
class Parsed:
    """Values of a column, and by row the (value, rule) of each cell that breaks a rule; its number there is 0."""

    values: Int64
    bad: dict[int, tuple[str, str]] = field(default_factory=dict)


class Cells(NamedTuple):
    """One column as read. `raw`: str in CSV; in JSON int, bytes (the literal of a float), str, None, MISSING, …"""

    raw: Sequence[Any]
    is_json: bool
    matrix: NDArray[np.uint8] | None = None  # the characters of all cells, where the file was read without `raw`

    def text(self, row: int) -> str:
        """The cell as it stands in the file."""
        value = self.raw[row]
        return value.decode() if isinstance(value, bytes) else str(value)

    def absent(self) -> NDArray[np.bool_]:
        """Where there is nothing: an empty cell, null, or no key."""
        return np.fromiter((cell is None or cell is MISSING or cell == "" for cell in self.raw), bool, len(self.raw))

    def take(self, rows: Int64) -> Cells:
        """The cells of `rows`."""
        return Cells([self.raw[row] for row in rows.tolist()], self.is_json)

    def characters(self) -> NDArray[np.uint8]:
        """The cells' character codes, one row a position, one column a cell; `?` where no number can be."""
        return _characters(_literals(self)) if self.matrix is None else self.matrix

    def numeric(self, row: int) -> bool:
        """Whether the cell may be a number: any text of a CSV, but no quoted string of JSON."""
        return type(self.raw[row]) in (int, bytes) if self.is_json else True

    def refuse(self, row: int, what: str) -> tuple[str, str]:
        """(value, rule) of a cell that is not `what` at all."""
        value = self.raw[row]
        if value is MISSING:
            return "", "missing"
        text = value.decode() if isinstance(value, bytes) else repr(value)
        return "", f"{shortened(text)} is not {what}"


Parse = Callable[[Cells], Parsed]


def shortened(text: str) -> str:
    """`text`, cut to what a message can hold."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def tokens(cells: Cells) -> Parsed:
    """Whole numbers from 1 to MAX_TOKENS."""
    return _whole(cells, 1, MAX_TOKENS)


def limit(cells: Cells) -> Parsed:
    """Whole numbers from 1 to MAX_TOKENS, or ABSENT where there is none."""
    return _optional(cells, tokens, ABSENT)


def priority(cells: Cells) -> Parsed:
    """Whole numbers of either sign, or 0 where there is none."""
    return _optional(cells, lambda given: _whole(given, -MAX_PRIORITY, MAX_PRIORITY), 0)


def seconds(cells: Cells) -> Parsed:
    """Seconds as nanoseconds, rounded half up."""
    return _time(cells, NS_PER_S)


def milliseconds(cells: Cells) -> Parsed:
    """Milliseconds as nanoseconds, rounded half up."""
    return _time(cells, NS_PER_MS)


def elapsed(cells: Cells) -> Parsed:
    """Seconds that a request took; one that reads like an epoch is refused: it would mix two origins of time."""
    parsed = _optional(cells, seconds, 0)
    for row in np.flatnonzero(parsed.values > 1_000_000_000 * NS_PER_S).tolist():
        parsed.bad[row] = (shortened(cells.text(row)), "is an epoch, not a span: two origins of time in one trace")
    return parsed


def date_times(cells: Cells) -> Parsed:
    """`2023-11-16 18:17:03.9799600` (up to nine decimals, T or a space, UTC) as nanoseconds since 1970, exactly."""
    values, good = _calendar(cells.characters())
    zoned = np.flatnonzero(~good)
    if len(zoned):
        texts = [_without_zone(cells.text(row)) for row in zoned.tolist()]
        values[zoned], good[zoned] = _calendar(_characters(_byte_strings(texts)))
    bad = {row: cells.refuse(row, "a date and time (YYYY-MM-DD HH:MM:SS.fffffff)") for row in _rows(~good)}
    return Parsed(np.where(good, values, 0), bad)


def _without_zone(text: str) -> str:
    text = text.strip()
    for zone in ("+00:00", "+0000", "+00", "Z", " UTC"):
        if text.endswith(zone):
            return text[: -len(zone)]
    return text


def _calendar(matrix: NDArray[np.uint8]) -> tuple[Int64, NDArray[np.bool_]]:
    if matrix.shape[0] < 19:
        return np.zeros(matrix.shape[1], np.int64), np.zeros(matrix.shape[1], np.bool_)
    digits = matrix - np.uint8(_ZERO)
    places = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18]
    good = np.all(digits[places] <= 9, axis=0)
    for row, marks in ((4, b"-"), (7, b"-"), (10, b" T"), (13, b":"), (16, b":")):
        good &= np.isin(matrix[row], list(marks))
    number = digits.astype(np.int64)

    def two(at: int) -> Int64:
        return np.asarray(number[at] * 10 + number[at + 1], np.int64)

    year, month, day = two(0) * 100 + two(2), two(5), two(8)
    hour, minute, second = two(11), two(14), two(17)
    good &= (year >= 1970) & (year < 2250) & (month >= 1) & (month <= 12)
    good &= (hour < 24) & (minute < 60) & (second < 60)
    months = np.where(good, (year - 1970) * 12 + month - 1, 0)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    good &= (day >= 1) & (day <= after - first)
    fraction, clean = np.zeros(len(good), np.int64), np.ones(len(good), np.bool_)
    if matrix.shape[0] > 19:
        fraction, clean, _ = decimals(np.ascontiguousarray(matrix[19:]), 9)
        bare = matrix[19] == 0
        clean = (clean & (matrix[19] == _DOT)) | bare
        fraction = np.where(bare, 0, fraction)
    days = first + day - 1
    whole_s = ((days * 24 + hour) * 60 + minute) * 60 + second
    return np.asarray(whole_s * NS_PER_S + fraction, np.int64), good & clean


def _optional(cells: Cells, parse: Parse, default: int) -> Parsed:
    absent = cells.absent()
    if not absent.any():
        return parse(cells)
    rows = np.flatnonzero(~absent)
    given = parse(cells.take(rows))
    values = np.full(len(cells.raw), default, np.int64)
    values[rows] = given.values
    return Parsed(values, {int(rows[row]): wrong for row, wrong in given.bad.items()})


def _whole(cells: Cells, low: int, high: int) -> Parsed:
    numbers = _integers(cells)
    if numbers is None:
        numbers, good, dotted = decimals(cells.characters(), 0)
        good &= ~dotted
    else:
        good = np.ones(len(numbers), np.bool_)
    good &= (numbers >= low) & (numbers <= high)
    parsed = Parsed(np.where(good, numbers, 0))
    for row in _rows(~good):
        _put(parsed, row, _whole_by_hand(cells, row, low, high))
    return parsed


def _whole_by_hand(cells: Cells, row: int, low: int, high: int) -> int | tuple[str, str]:
    text = cells.text(row).strip()
    if not cells.numeric(row) or not _WHOLE.match(text):
        return cells.refuse(row, "a whole number")
    number = int(text) if len(text) <= WIDEST else (low - 1 if text.startswith("-") else high + 1)
    return number if low <= number <= high else (shortened(text), _range_rule(number, low, high))


def _time(cells: Cells, unit_ns: int) -> Parsed:
    last = MAX_TIME_S * NS_PER_S // unit_ns
    numbers = _integers(cells)
    if numbers is None:
        places = len(str(unit_ns)) - 1
        ns, good, _ = decimals(cells.characters(), places)
        good &= ns <= last * unit_ns
    else:
        good = (numbers >= 0) & (numbers <= last)
        ns = np.where(good, numbers, 0) * unit_ns
    parsed = Parsed(np.where(good, ns, 0))
    for row in _rows(~good):
        _put(parsed, row, _time_by_hand(cells, row, unit_ns, last))
    return parsed


def _time_by_hand(cells: Cells, row: int, unit_ns: int, last: int) -> int | tuple[str, str]:
    text = cells.text(row).strip()
    if not cells.numeric(row) or not _NUMBER.match(text):
        return cells.refuse(row, "a finite number")
    number = Decimal(text)
    if 0 <= number <= last:
        return int((number * unit_ns).to_integral_value(ROUND_HALF_UP))
    return shortened(text), "must be at least 0" if number < 0 else f"must be at most {last}"


def _range_rule(number: int, low: int, high: int) -> str:
    return f"must be at least {low}" if number < low else f"must be at most {high}"


def _put(parsed: Parsed, row: int, result: int | tuple[str, str]) -> None:
    if isinstance(result, int):
        parsed.values[row] = result
    else:
        parsed.bad[row] = result


def _rows(mask: NDArray[np.bool_]) -> list[int]:
    return list(map(int, np.flatnonzero(mask)))


def _integers(cells: Cells) -> Int64 | None:
    """The column where all of it is JSON integers that fit, else None."""
    if not cells.is_json or cells.matrix is not None or set(map(type, cells.raw)) != {int}:
        return None
    try:
        return np.array(cells.raw, np.int64)
    except OverflowError:
        return None


def _literals(cells: Cells) -> NDArray[np.bytes_]:
    if not cells.is_json:
        return _byte_strings(list(cells.raw))
    return _byte_strings([cells.text(row) if cells.numeric(row) else "?" for row in range(len(cells.raw))])


def _byte_strings(texts: list[str]) -> NDArray[np.bytes_]:
    """ASCII cells as fixed-width bytes; any other, and any too long, becomes `?`, which no parser takes."""
    if max(map(len, texts), default=0) > WIDEST:
        texts = [text if len(text) <= WIDEST else "?" for text in texts]
    try:
        return np.array(texts, dtype=np.bytes_)
    except UnicodeEncodeError:
        return np.array([text if text.isascii() else "?" for text in texts], dtype=np.bytes_)


def _characters(texts: NDArray[np.bytes_]) -> NDArray[np.uint8]:
    """Character codes, one row a position, one column a cell, 0 after its end."""
    width = max(texts.dtype.itemsize, 1)
    if not len(texts):
        return np.zeros((width, 0), np.uint8)
    return np.ascontiguousarray(np.ascontiguousarray(texts).view(np.uint8).reshape(len(texts), width).T)


def decimals(matrix: NDArray[np.uint8], places: int) -> tuple[Int64, NDArray[np.bool_], NDArray[np.bool_]]:
    """(number scaled by 10**places and rounded half up, whether it is plain digits with at most one point, point seen).

    What it does not take (signs, exponents, more than 19 digits, spaces) is for the slow path.
    """
    cells = matrix.shape[1]
    number = np.zeros(cells, np.uint64)
    good = np.ones(cells, np.bool_)
    dotted = np.zeros(cells, np.bool_)
    up = np.zeros(cells, np.bool_)
    whole = np.zeros(cells, np.int8)
    fraction = np.zeros(cells, np.int8)
    for code in matrix:
        digit = code - np.uint8(_ZERO)
        is_digit, is_dot = digit <= 9, code == _DOT
        good &= is_digit | (code == 0) | (is_dot & ~dotted)
        dotted |= is_dot
        counts = is_digit & (fraction < places) if places else is_digit & ~dotted
        counts &= good
        number = np.where(counts, number * np.uint64(10) + digit, number)
        up |= is_digit & dotted & (fraction == places) & (digit >= 5)
        whole += is_digit & ~dotted
        fraction += is_digit & dotted
    good &= (whole > 0) | ((fraction > 0) & (matrix.shape[0] > 0) & dotted)
    good &= whole <= (10 if places == 9 else 18 - places)
    scale = np.power(np.uint64(10), np.clip(places - fraction, 0, places).astype(np.uint64))
    scaled = number * scale + up
    good &= scaled < np.uint64(2**63)
    return np.where(good, scaled, 0).astype(np.int64), good, dotted
