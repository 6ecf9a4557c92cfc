"""Trace files: `read` turns one into a workload, `FORMATS` are the formats, `detect` tells which one a file has."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from batchsim.errors import InvalidInput, problem
from batchsim.workload.columns import Int64
from batchsim.workload.traces import azure, batchsim, burstgpt, mooncake, vllm
from batchsim.workload.traces.cells import shortened, tokens
from batchsim.workload.traces.formats import Column, Format
from batchsim.workload.traces.reader import Trace, read_column, read_trace
from batchsim.workload.traces.rows import first_rows

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT for module in (azure, mooncake, burstgpt, vllm, batchsim)
}
"""Every trace format by name."""

__all__ = ["FORMATS", "Format", "Trace", "detect", "read", "read_lengths"]


def read(
    path: Path,
    *,
    format: str = "auto",  # noqa: A002  the scenario's own key
    limit: int | None = None,
    speedup: float = 1.0,
    skip_invalid: bool = False,
    hash_block_tokens: int | None = None,
    in_file_order: bool = False,
    where: str = "workload",
) -> Trace:
    """Read a trace file, plain or gzip; arrivals are shifted so that the first is at 0, then divided by `speedup`.

    `limit`: read that many rows from the top of the file and no further.  `hash_block_tokens`: prompt tokens of one
    hash id in the `vllm` format.  `in_file_order`: leave unsorted rows as they stand (a closed loop sends them so).
    Rows out of time order are sorted, ties in file order, and counted.  Bad rows are refused, all counted and the
    first 20 named, or with `skip_invalid` left out and counted; nothing is ever filled in.
    Raises InvalidInput with scenario paths below `where`.
    """
    notes: tuple[str, ...] = ()
    if format == "auto":
        form, told = detect(path, where=where)
        notes = (told,)
    else:
        form = FORMATS[format]
    if form is batchsim.FORMAT:
        notes += _unread(path, form, where)
    if hash_block_tokens is not None:
        if form.name != "vllm":
            rule = f"is for the format vllm; this trace is {form.name}"
            raise InvalidInput([problem(f"{where}.hash_block_tokens", hash_block_tokens, rule)])
        form = replace(form, block_tokens=hash_block_tokens)
    return read_trace(
        path,
        form,
        limit=limit,
        speedup=speedup,
        skip_invalid=skip_invalid,
        in_file_order=in_file_order,
        notes=notes,
        where=where,
    )


def detect(path: Path, *, where: str = "workload") -> tuple[Format, str]:
    """The format of a file, told by its columns, and a sentence that says so; InvalidInput when none fits."""
    names, rows = first_rows(path, f"{where}.path")
    fits = [form for form in FORMATS.values() if all(name in names for name, must in form.wanted.items() if must)]
    if not rows:
        fits = [form for form in fits if not form.blocks]
    elif {mooncake.FORMAT, vllm.FORMAT} <= set(fits):
        fits = [_by_blocks(rows)]
    else:
        fits = [form for form in fits if form.name == "batchsim"]
    if len(fits) != 1:
        found = ", ".join(shortened(name) for name in names[:20]) or "none"
        rule = f"format not recognised by its columns ({found}); set {where}.format, one of: {', '.join(FORMATS)}"
        if near := "" if fits else _nearest(names):
            rule += f"; {near}"
        raise InvalidInput([problem(f"{where}.path", path.name, rule)])
    told = ", ".join(name for name, must in fits[0].wanted.items() if must)
    blocks = f", with {fits[0].block_tokens}-token blocks" if fits[0].blocks else ""
    return fits[0], f"{path.name} read as {fits[0].name}: it has {told}{blocks}"


def _nearest(names: list[str]) -> str:
    """The format that lacks the fewest columns, and which; nothing where no format has more than half of its own."""
    formats = list(FORMATS.values())
    lacking = [[name for name, must in form.wanted.items() if must and name not in names] for form in formats]
    form, lacks = min(zip(formats, lacking, strict=True), key=lambda pair: len(pair[1]))
    if 2 * len(lacks) >= sum(form.wanted.values()):
        return ""
    return f"nearest is {form.name}, without {', '.join(lacks)}"


def _unread(path: Path, form: Format, where: str) -> tuple[str, ...]:
    """A note of the columns that the format does not know; one that looks like a misspelt one is refused."""
    names, _ = first_rows(path, f"{where}.path")
    unknown = [name for name in names if name not in form.wanted]
    free = {name.replace("_", "").lower(): name for name, must in form.wanted.items() if not must and name not in names}
    problems = []
    for name in unknown:
        if near := get_close_matches(name.replace("_", "").lower(), free, n=1, cutoff=0.8):
            rule = f"unknown column; did you mean {free[near[0]]!r}?"
            problems.append(problem(f"{path.name}: {shortened(name)}", None, rule))
    if problems:
        raise InvalidInput(problems[:20])
    told = ", ".join(shortened(name) for name in unknown[:20])
    return (f"{path.name}: not read: {told}",) if unknown else ()


def _by_blocks(rows: list[dict[str, Any]]) -> Format:
    """Mooncake or vLLM: whose block size makes more rows' hash ids cover their prompts; Mooncake in a tie."""

    def covered(form: Format) -> int:
        return sum(
            prompt // form.block_tokens <= len(ids) <= -(-prompt // form.block_tokens)
            for row in rows
            if isinstance(ids := row.get("hash_ids"), list) and type(prompt := row.get("input_length")) is int
        )

    return max(mooncake.FORMAT, vllm.FORMAT, key=covered)


def read_lengths(path: Path, column: str, where: str) -> Int64:
    """A column of whole numbers of at least 1 from a CSV or JSONL file; InvalidInput names every bad row."""
    return read_column(path, Column(column, "tokens", tokens), where)
