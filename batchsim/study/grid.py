"""Which runs a study consists of: swept keys, every combination of their values, and the seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from batchsim.errors import InvalidInput, Problem
from batchsim.scenario.check import plain_value, shown
from batchsim.scenario.overrides import steps
from batchsim.scenario.text import parse

MAX_RUNS = 200_000
Grid = dict[str, list[Any]]
Point = dict[str, Any]


def axis(text: str, option: str = "--over") -> tuple[str, list[Any]]:
    """(key, values) of `key=1:20:1` (both ends included) or `key=a,b,c`. Raises `InvalidInput`."""
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not key or not values.strip():
        raise InvalidInput([Problem(option, "must be KEY=START:STOP:STEP or KEY=A,B,…", repr(text))])
    steps(key)
    bounds = values.split(":")
    if len(bounds) == 3 and all(_decimal(bound) is not None for bound in bounds):
        return key, _range(option, text, *(Decimal(bound.strip()) for bound in bounds))
    return key, [parse(part) for part in _parts(values)]


def axes(texts: Iterable[str], option: str = "--over") -> Grid:
    """Several axes; a key may come once."""
    grid: Grid = {}
    for text in texts:
        key, values = axis(text, option)
        if key in grid:
            raise InvalidInput([Problem(option, "is swept twice", key)])
        grid[key] = values
    return checked(grid, option)


def checked(grid: Mapping[str, Sequence[Any]], option: str = "over") -> Grid:
    """A private copy, or `InvalidInput`: an empty axis, a value twice, a seed among the keys."""
    problems = []
    copy: Grid = {}
    for key, values in grid.items():
        copy[str(key)] = [plain_value(value) for value in values]
        written = [shown(value) for value in copy[str(key)]]
        if not written:
            problems.append(Problem(option, "needs at least one value", str(key)))
        if len(set(written)) < len(written):
            problems.append(Problem(option, f"{key}: a value comes twice", ", ".join(written[:20])))
        if key == "seed":
            problems.append(Problem(option, "is swept by --seeds N, not by a grid", "seed"))
    if problems:
        raise InvalidInput(problems)
    return copy


def points(grid: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Every combination, the last key changing fastest. Raises `InvalidInput` for more than `MAX_RUNS`."""
    count = math.prod(len(values) for values in grid.values())
    if count > MAX_RUNS:
        raise InvalidInput([Problem("over", f"at most {MAX_RUNS:,} combinations are possible", f"{count:,}")])
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def seeds_of(first: int, count: int) -> list[int]:
    """`count` seeds from `first` on. Raises `InvalidInput` where there are none."""
    if not 1 <= count <= MAX_RUNS:
        raise InvalidInput([Problem("--seeds", f"must be from 1 to {MAX_RUNS:,}", str(count))])
    return list(range(first, first + count))


def label(point: Mapping[str, Any]) -> str:
    """A point in words: the last part of each key and its value."""
    return ", ".join(f"{key.rpartition('.')[2]} {_word(value)}" for key, value in point.items())


def _word(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else shown(value)


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def _range(option: str, text: str, start: Decimal, stop: Decimal, step: Decimal) -> list[Any]:
    """start, start + step, … up to and with stop: exact in decimals, whole numbers where all three are whole."""
    if step <= 0 or stop < start:
        raise InvalidInput([Problem(option, "a range needs a step above 0 and an end not below its start", repr(text))])
    count = int((stop - start) / step) + 1
    if count > MAX_RUNS:
        raise InvalidInput([Problem(option, f"a range has at most {MAX_RUNS:,} values", repr(text))])
    whole = all(bound == bound.to_integral_value() for bound in (start, stop, step))
    values = [start + place * step for place in range(count)]
    return [int(value) if whole else float(value) for value in values]


def _parts(text: str) -> list[str]:
    """Split at the commas that stand outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for place, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "[{(":
            depth += 1
        elif sign in ")}]":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]
