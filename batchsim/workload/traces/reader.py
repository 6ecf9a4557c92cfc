"""From the chunks of a trace file to a workload: rows checked, collected in columns, put in order, shifted to zero."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchsim.errors import InvalidInput, Problem, problem
from batchsim.workload.columns import ABSENT, Int64, Prefixes, Workload
from batchsim.workload.fields import MAX_REQUESTS, MAX_TIME_S, NS_PER_S
from batchsim.workload.prefixes import numbered, offsets, taken, without_unique_tails
from batchsim.workload.traces.cells import MISSING, Cells, shortened
from batchsim.workload.traces.formats import Column, Format
from batchsim.workload.traces.lists import Lists
from batchsim.workload.traces.plain import Broken, Chunk
from batchsim.workload.traces.rows import chunks

NAMED = 20
"""Bad rows that a refusal names; the others are counted."""

_RELATIVE_BELOW_S, _EPOCH_ABOVE_S = 100_000_000, 1_000_000_000


class Trace(NamedTuple):
    """A trace as read. `workload` holds its rows, the first arrival at 0; its notes say what reading changed.

    rows: rows kept.  skipped: bad rows left out.  unsorted: rows that stood before an earlier one.
    block_tokens: prompt tokens of one hash id, 0 where the format has none.
    """

    workload: Workload
    format: str
    rows: int
    skipped: int
    unsorted: int
    block_tokens: int


class _Index(defaultdict[str, int]):
    """Numbers names in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


@dataclass(slots=True)
class _Collected:
    """The good rows so far, column by column, and what was bad."""

    sizes: list[int] = field(default_factory=list)  # good rows of each chunk
    columns: dict[str, dict[int, Int64]] = field(default_factory=lambda: defaultdict(dict))  # by field and chunk
    names: dict[str, _Index] = field(default_factory=lambda: defaultdict(_Index))
    segments: list[Int64] = field(default_factory=list)  # of each chunk, one row after the other
    rows: int = 0
    broken: list[Broken] = field(default_factory=list)
    broken_rows: int = 0

    def column(self, name: str, absent: int) -> Int64:
        """The field of all good rows; `absent` where a chunk lacked its column."""
        parts = self.columns.get(name, {})
        return np.concatenate(
            [parts[at] if at in parts else np.full(size, absent, np.int64) for at, size in enumerate(self.sizes)]
        )


def read_trace(
    path: Path,
    form: Format,
    *,
    limit: int | None,
    speedup: float,
    skip_invalid: bool,
    in_file_order: bool,
    notes: tuple[str, ...],
    where: str,
) -> Trace:
    """Read `path` in the format `form`; see `batchsim.workload.traces.read`."""
    collected = _Collected()
    for chunk in chunks(path, form.wanted, f"{where}.path"):
        room = None if limit is None else limit - collected.rows - (0 if skip_invalid else collected.broken_rows)
        _collect(collected, chunk, form, room)
        if collected.rows > MAX_REQUESTS:
            rule = f"has more than {MAX_REQUESTS} rows; read part of it with {where}.limit"
            raise InvalidInput([problem(f"{where}.path", path.name, rule)])
        if limit is not None and collected.rows + (0 if skip_invalid else collected.broken_rows) >= limit:
            break
    note = f"fix them, or set {where}.skip_invalid: true to leave them out (and count them)"
    _refuse_broken(collected, path.name, skip_invalid, f"{where}.path", note)
    if collected.broken_rows:
        notes = (
            *notes,
            f"{_rows(collected.broken_rows)} of {path.name} skipped as invalid, e.g. {_told(collected, path.name)}",
        )
    arrival_ns = collected.column("arrival_ns", 0)
    _check_origin(arrival_ns, path.name, where)
    unsorted = int(np.count_nonzero(arrival_ns < np.maximum.accumulate(arrival_ns)))
    order = None
    if unsorted and not in_file_order:
        order = np.argsort(arrival_ns, kind="stable")
        arrival_ns = arrival_ns[order]
        notes = (*notes, f"{_rows(unsorted)} of {path.name} stood out of time order; rows were sorted by arrival")
    arrival_ns = _sped(arrival_ns - arrival_ns.min(), speedup, where)
    workload = _workload(collected, arrival_ns, order, form, notes)
    return Trace(workload, form.name, len(workload), collected.broken_rows, unsorted, form.block_tokens)


def read_column(path: Path, column: Column, where: str) -> Int64:
    """One column of numbers of a table; bad rows are refused as those of a trace."""
    collected = _Collected()
    for chunk in chunks(path, {column.name: True}, where):
        _collect(collected, chunk, Format("", "", (column,)), None)
    _refuse_broken(collected, path.name, False, where, "")
    return collected.column(column.field, 0)


def _collect(collected: _Collected, chunk: Chunk, form: Format, room: int | None) -> None:
    """Add a chunk's rows, up to `room` of them, to `collected`."""
    rows = len(chunk.lines)
    wrong: dict[int, Broken] = {}
    values: dict[str, Int64] = {}

    def refuse(row: int, column: str, value: str, rule: str) -> None:
        wrong.setdefault(row, Broken(int(chunk.lines[row]), column, value, rule))

    for column in form.columns:
        if column.name not in chunk.columns:
            continue
        parsed = column.parse(chunk.columns[column.name])
        values[column.field or column.name] = parsed.values
        for row, (value, rule) in parsed.bad.items():
            refuse(row, column.name, value, rule)
    if "max_tokens" in values:
        over = (values["max_tokens"] != ABSENT) & (values["output_tokens"] > values["max_tokens"])
        for row in np.flatnonzero(over).tolist():
            rule = f"is above this row's max_tokens ({values['max_tokens'][row]})"
            refuse(row, "output_tokens", str(values["output_tokens"][row]), rule)
    texts = {name: _texts(chunk.columns[column], column, refuse) for name, column in form.texts
             if column in chunk.columns}  # fmt: skip
    segments = None
    if form.blocks in chunk.columns:
        segments = _hash_ids(chunk.columns[form.blocks], values["prompt_tokens"], form, refuse)
    if "id" in texts or "id" in collected.names:
        if "id" in texts and collected.rows and "id" not in collected.names:
            texts["id"] = [""] * rows  # the rows before have none
        _check_ids(texts.get("id", [""] * rows), collected.names["id"], wrong, refuse)
    good = np.ones(rows, np.bool_)
    good[list(wrong)] = False
    kept = np.flatnonzero(good)
    broken = sorted([*chunk.broken, *wrong.values()], key=lambda found: found.line)
    if room is not None:
        kept, broken = _first(kept, broken, chunk.lines, room)
    collected.broken += broken[: NAMED - len(collected.broken)] if len(collected.broken) < NAMED else []
    collected.broken_rows += len(broken)
    collected.rows += len(kept)
    at = len(collected.sizes)
    collected.sizes.append(len(kept))
    for name, column_values in values.items():
        collected.columns[name][at] = column_values[kept]
    for name, column_texts in texts.items():
        collected.columns[name][at] = _numbers(column_texts, kept, collected.names[name], distinct=name == "id")
    if segments is not None:
        segments = segments.take(kept)
        collected.columns["segments"][at] = segments.counts
        collected.segments.append(segments.flat)


def _first(kept: Int64, broken: list[Broken], lines: Int64, room: int) -> tuple[Int64, list[Broken]]:
    """Cut a chunk after `room` good rows, and forget what is broken after the last of them."""
    if len(kept) < room:
        return kept, broken
    kept = kept[:room]
    last = int(lines[kept[-1]])
    return kept, [found for found in broken if found.line < last]


def _texts(cells: Cells, column: str, refuse: Any) -> list[str]:
    """The column's names, empty where there is none."""
    if not cells.is_json:
        return [text.strip() for text in cells.raw]
    names = []
    for row, value in enumerate(cells.raw):
        if value is None or value is MISSING:
            names.append("")
        elif type(value) in (str, int):
            names.append(str(value))
        else:
            refuse(row, column, *cells.refuse(row, "a name"))
            names.append("")
    return names


def _check_ids(ids: list[str], known: _Index, wrong: dict[int, Broken], refuse: Any) -> None:
    """Every row needs an id of its own where the file has a column of them."""
    here = set(ids)
    if len(here) == len(ids) and "" not in here and known.keys().isdisjoint(here):
        return
    here.clear()
    for row, name in enumerate(ids):
        if row in wrong:
            continue
        if not name:
            refuse(row, "id", "", "missing, while other rows have one")
        elif name in known or name in here:
            refuse(row, "id", shortened(name), "stands in an earlier row too")
        here.add(name)


def _numbers(names: list[str], kept: Int64, index: _Index, *, distinct: bool) -> Int64:
    if len(kept) < len(names):
        names = [names[row] for row in kept.tolist()]
    if distinct:
        numbers = np.arange(len(index), len(index) + len(names))
        index.update(zip(names, numbers.tolist(), strict=True))
        return numbers
    return np.fromiter(map(index.__getitem__, names), np.int64, len(names))


def _hash_ids(cells: Cells, prompt_tokens: Int64, form: Format, refuse: Any) -> Lists:
    """Each row's ids, which must name every block of its prompt; the last, partial block may lack one."""
    lists, given = (cells.raw, slice(None)) if isinstance(cells.raw, Lists) else _lists(cells, form, refuse)
    least, full = prompt_tokens // form.block_tokens, -(-prompt_tokens // form.block_tokens)
    wrong = np.zeros(len(lists), np.bool_)
    wrong[given] = ((lists.counts < least) | (lists.counts > full))[given]
    for row in np.flatnonzero(wrong).tolist():
        rule = f"must name the {full[row]} blocks of {form.block_tokens} in {prompt_tokens[row]} tokens"
        refuse(row, form.blocks, f"{lists.counts[row]} ids", rule)
    return lists


def _lists(cells: Cells, form: Format, refuse: Any) -> tuple[Lists, Int64]:
    """(the ids of each row, none where it has no list or a bad one; the rows that have a good one)."""
    rows: list[list[int]] = [[]] * len(cells.raw)
    given: list[int] = []
    for row, ids in enumerate(cells.raw):
        if ids is MISSING or ids is None:
            continue
        if not isinstance(ids, list) or not set(map(type, ids)) <= {int}:
            refuse(row, form.blocks, "", f"{shortened(repr(ids))} is not a list of whole numbers")
        elif ids and (min(ids) < 0 or max(ids) >= 2**63):
            refuse(row, form.blocks, "", "holds a number that is not between 0 and 2**63 - 1")
        else:
            rows[row] = ids
            given.append(row)
    return Lists.of(rows), np.array(given, np.int64)


def _refuse_broken(collected: _Collected, name: str, skip_invalid: bool, key: str, note: str) -> None:
    total = collected.rows + collected.broken_rows
    if collected.broken_rows and not skip_invalid:
        plural = "row" if collected.broken_rows == 1 else "rows"
        problems = [Problem(key, f"{name} has {collected.broken_rows} bad {plural} (of {total})")]
        problems += [_problem(found, name) for found in collected.broken]
        if (more := collected.broken_rows - len(collected.broken)) > 0:
            problems.append(Problem(name, f"and {more} more"))
        raise InvalidInput(problems, note)
    if not collected.rows:
        rule = f"has no valid row (of {total})" if total else "has no rows"
        raise InvalidInput([problem(key, name, rule)])


def _problem(found: Broken, name: str) -> Problem:
    place = f"{name}:{found.line}"
    return Problem(f"{place}: {found.column}" if found.column else place, found.rule, found.value)


def _told(collected: _Collected, name: str) -> str:
    return str(_problem(collected.broken[0], name))


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _check_origin(arrival_ns: Int64, name: str, where: str) -> None:
    low_s, high_s = int(arrival_ns.min()) / NS_PER_S, int(arrival_ns.max()) / NS_PER_S
    if low_s < _RELATIVE_BELOW_S and high_s > _EPOCH_ABOVE_S:
        rule = f"mixes two origins of time: arrivals run from {low_s:.3f} s to {high_s:.3f} s (an epoch)"
        raise InvalidInput([problem(f"{where}.path", name, rule)])


def _sped(arrival_ns: Int64, speedup: float, where: str) -> Int64:
    if speedup == 1:
        return arrival_ns
    if float(arrival_ns.max()) / speedup > MAX_TIME_S * NS_PER_S:
        rule = f"stretches the trace beyond {MAX_TIME_S} s"
        raise InvalidInput([problem(f"{where}.speedup", speedup, rule)])
    return np.rint(arrival_ns / speedup).astype(np.int64)


def _workload(
    collected: _Collected, arrival_ns: Int64, order: NDArray[np.intp] | None, form: Format, notes: tuple[str, ...]
) -> Workload:
    rows = len(arrival_ns)

    def column(name: str, absent: int) -> Int64:
        values = collected.column(name, absent)
        return values if order is None else values[order]

    def named(name: str) -> tuple[Int64, tuple[str, ...]]:
        index = collected.names.get(name, _Index())
        numbers = column(name, index[""] if len(collected.columns.get(name, ())) < len(collected.sizes) else 0)
        return numbers, tuple(text or "default" for text in index)

    tenant, tenants = named("tenant")
    traffic_class, classes = named("traffic_class")
    session = column("session", ABSENT)
    sessions = tuple(collected.names["session"]) if "session" in collected.names else ()
    if "" in sessions:
        session, sessions = _without_empty(session, sessions)
    ids = None
    if "id" in collected.names:
        texts = list(collected.names["id"])
        ids = tuple(texts[number] for number in column("id", 0).tolist())
    return Workload(
        arrival_ns=arrival_ns,
        prompt_tokens=column("prompt_tokens", 0),
        output_tokens=column("output_tokens", 0),
        max_tokens=column("max_tokens", ABSENT),
        priority=column("priority", 0),
        tenant=tenant,
        traffic_class=traffic_class,
        session=session,
        cancel_ns=np.full(rows, ABSENT, np.int64),
        tenants=tenants,
        classes=classes,
        sessions=sessions,
        ids=ids,
        prefixes=_prefixes(collected, order, form),
        notes=notes,
    )


def _without_empty(session: Int64, sessions: tuple[str, ...]) -> tuple[Int64, tuple[str, ...]]:
    """Rows of the session without a name belong to none."""
    empty = sessions.index("")
    moved = np.where(session == empty, ABSENT, session - (session > empty))
    return moved, sessions[:empty] + sessions[empty + 1 :]


def _prefixes(collected: _Collected, order: NDArray[np.intp] | None, form: Format) -> Prefixes | None:
    """Hash ids as shared segments of a block each; the last takes what is left of the prompt."""
    if not collected.columns.get("segments"):
        return None
    counts = collected.column("segments", 0)
    prompt = collected.column("prompt_tokens", 0)
    segment = numbered(np.concatenate(collected.segments))
    if not len(segment):
        return None
    size = np.full(len(segment), form.block_tokens, np.int64)
    some = counts > 0
    last = np.cumsum(counts)[some] - 1
    size[last] = np.minimum(prompt[some] - (counts[some] - 1) * form.block_tokens, form.block_tokens)
    prefixes = without_unique_tails(Prefixes(offsets(counts), segment, size))
    return prefixes if order is None else taken(prefixes, order)
