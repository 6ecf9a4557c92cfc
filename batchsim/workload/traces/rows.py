"""Rows of a CSV or JSONL file as chunks of columns, each row with its line; rows that are no rows are set apart."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from batchsim.errors import InvalidInput, Problem, problem
from batchsim.workload.columns import Int64
from batchsim.workload.traces.cells import MISSING, Cells, shortened
from batchsim.workload.traces.plain import Broken, Chunk, plain_csv, plain_json
from batchsim.workload.traces.text import Block, blocks


def chunks(path: Path, wanted: dict[str, bool], where: str) -> Iterator[Chunk]:
    """Chunks of the columns `wanted` (name: whether it is required); CSV or JSONL is told by the first character.

    Raises InvalidInput, at the scenario key `where`, when the file cannot be read or lacks a required column.
    """
    header: list[str] | None = None
    is_json: bool | None = None
    for block in blocks(path, where):
        if is_json is None:
            first = next((line.lstrip() for line in block.lines if line.strip()), None)
            if first is None:
                continue
            is_json = _is_json(first, path.name)
        if is_json:
            yield plain_json(block, wanted) or _json_chunk(block, wanted)
            continue
        if header is None:
            header, block = _header(block, path.name)
            _check_header(header, wanted, path.name)
        yield plain_csv(block, header, wanted) or _csv_chunk(block, header, wanted)
    if is_json is None:
        raise InvalidInput([problem(where, path.name, "is empty")])


def first_rows(path: Path, where: str) -> tuple[list[str], list[dict[str, Any]]]:
    """(column names, up to 200 JSON rows): what tells a file's format. JSON rows are empty for a CSV."""
    for block in blocks(path, where):
        lines = [line for line in block.lines if line.strip()]
        if not lines:
            continue
        if not _is_json(lines[0].lstrip(), path.name):
            header, _ = _header(block, path.name)
            return header, []
        objects = [parsed for line in lines[:200] if isinstance(parsed := _parsed(line, _DECODER), dict)]
        return list(dict.fromkeys(name for row in objects for name in row)), objects
    raise InvalidInput([problem(where, path.name, "is empty")])


def _is_json(first: str, name: str) -> bool:
    if first.startswith("["):
        rule = "starts with '[': one JSON object a line is wanted (JSONL), not an array"
        raise InvalidInput([Problem(f"{name}:1", rule)])
    return first.startswith("{")


# --- CSV


def _header(block: Block, name: str) -> tuple[list[str], Block]:
    lines = block.lines
    at = next(index for index, line in enumerate(lines) if line.strip())
    fields = _split(lines[at])
    if isinstance(fields, str):
        raise InvalidInput([Problem(f"{name}:{block.first_line + at}", f"the header {fields}")])
    rest = Block(block.first_line + at + 1, block.text[sum(len(line) + 1 for line in lines[: at + 1]) :])
    return [text.strip() for text in fields], rest


def _check_header(header: list[str], wanted: dict[str, bool], name: str) -> None:
    problems = [
        Problem(f"{name}: {column}", f"the column stands {header.count(column)} times in the header")
        for column in wanted
        if header.count(column) > 1
    ]
    problems += [
        Problem(f"{name}: {column}", f"missing column; the header has {_listed(header, column)}")
        for column, required in wanted.items()
        if required and column not in header
    ]
    if problems:
        raise InvalidInput(problems)


def _listed(header: list[str], column: str) -> str:
    names = ", ".join(shortened(text) for text in header[:20])
    lowered = {text.lower(): text for text in header}
    near = get_close_matches(column.lower(), lowered, n=1)
    return names + (f"; did you mean {lowered[near[0]]!r}?" if near else "")


def _csv_chunk(block: Block, header: list[str], wanted: dict[str, bool]) -> Chunk:
    broken: list[Broken] = []
    texts = block.lines
    lines = np.arange(block.first_line, block.first_line + len(texts))
    rows = _split_all(texts)
    if rows is None:
        rows, lines = _split_each(block, broken)
    if not set(map(len, rows)) <= {len(header)}:
        rows, lines = _of_width(rows, lines, len(header), broken)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    taken = {name: Cells(list(columns[header.index(name)]), False) for name in wanted if name in header}
    return Chunk(lines, taken, broken)


def _split_all(lines: list[str]) -> list[list[str]] | None:
    """All lines as fields, or None where one is malformed or a quoted field runs over a line's end."""
    try:
        rows = list(csv.reader(lines, strict=True))
    except csv.Error:
        return None
    return rows if len(rows) == len(lines) else None


def _split_each(block: Block, broken: list[Broken]) -> tuple[list[list[str]], Int64]:
    rows, numbers = [], []
    for number, line in enumerate(block.lines, block.first_line):
        fields = _split(line)
        if isinstance(fields, str):
            broken.append(Broken(number, "", "", fields))
        else:
            rows.append(fields)
            numbers.append(number)
    return rows, np.array(numbers, np.int64)


def _split(line: str) -> list[str] | str:
    """The fields of one line, or what is wrong with it."""
    try:
        return next(iter(csv.reader([line], strict=True)), [])
    except csv.Error as error:
        closed = "unexpected end of data" not in str(error)
        return f"is not valid CSV ({error})" if closed else "has a quote that is not closed on its line"


def _of_width(rows: list[list[str]], lines: Int64, width: int, broken: list[Broken]) -> tuple[list[list[str]], Int64]:
    """The rows with `width` fields; blank lines are dropped, all others are broken."""
    kept = []
    for index, (row, line) in enumerate(zip(rows, lines.tolist(), strict=True)):
        if len(row) == width:
            kept.append(index)
        elif any(text.strip() for text in row):
            broken.append(Broken(line, "", "", f"has {len(row)} of {width} fields"))
    return [rows[index] for index in kept], lines[kept]


# --- JSON lines


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shortened(twice)!r} stands twice")
    return made


# Floats and constants stay as they stand in the file, as bytes, which JSON itself never yields.
_DECODER = json.JSONDecoder(parse_float=str.encode, parse_constant=str.encode)
_CAREFUL = json.JSONDecoder(parse_float=str.encode, parse_constant=str.encode, object_pairs_hook=_unique)


def _json_chunk(block: Block, wanted: dict[str, bool]) -> Chunk:
    broken: list[Broken] = []
    lines = [line.strip() for line in block.lines]
    numbers = np.arange(block.first_line, block.first_line + len(lines))
    if not all(lines):
        numbers = numbers[[bool(line) for line in lines]]
        lines = [line for line in lines if line]
    rows = _parse_all(lines)
    if rows is None or _repeats(block.text, rows, wanted):
        rows, numbers = _parse_each(lines, numbers, broken)
    escaped = "\\" in block.text
    columns = {
        name: Cells([row.get(name, MISSING) for row in rows], True)
        for name, required in wanted.items()
        if required or escaped or f'"{name}"' in block.text
    }
    return Chunk(numbers, columns, broken)


def _parse_all(lines: list[str]) -> list[dict[str, Any]] | None:
    """Every line as an object, or None where one is not: the fast way."""
    parse = _DECODER.raw_decode
    try:
        pairs = [parse(line) for line in lines]
    except (ValueError, RecursionError):
        return None
    if [end for _, end in pairs] != list(map(len, lines)):
        return None
    rows = [row for row, _ in pairs]
    return rows if set(map(type, rows)) <= {dict} else None


def _repeats(text: str, rows: list[dict[str, Any]], wanted: dict[str, bool]) -> bool:
    """Whether a wanted key may stand twice in some object: it stands in the text more often than in the rows."""
    if "\\" in text:
        return True
    return any(text.count(f'"{name}"') != sum(name in row for row in rows) for name in wanted)


def _parse_each(lines: list[str], numbers: Int64, broken: list[Broken]) -> tuple[list[dict[str, Any]], Int64]:
    rows, kept = [], []
    for index, line in enumerate(lines):
        parsed = _parsed(line, _CAREFUL)
        if isinstance(parsed, dict):
            rows.append(parsed)
            kept.append(index)
        else:
            broken.append(Broken(int(numbers[index]), "", "", f"is not a JSON object: {parsed}"))
    return rows, numbers[kept]


def _parsed(line: str, decoder: json.JSONDecoder) -> dict[str, Any] | str:
    """The line's object, or what is wrong with it."""
    try:
        parsed = decoder.decode(line)
    except json.JSONDecodeError as error:
        return f"{error.msg} at character {error.colno}"
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return str(error)
    return parsed if isinstance(parsed, dict) else shortened(line)
