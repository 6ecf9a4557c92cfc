"""Shared prompt prefixes as ragged columns: building them, picking rows, dropping what nobody shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchsim.workload.columns import Int64, Prefixes


def rows_of(prefixes: Prefixes) -> Int64:
    """The row that each entry belongs to."""
    return np.repeat(np.arange(len(prefixes.offset) - 1), np.diff(prefixes.offset))


def taken(prefixes: Prefixes, rows: NDArray[np.intp]) -> Prefixes:
    """The prefixes of `rows`, in that order; segments that name a request (below 0) keep their number."""
    counts = np.diff(prefixes.offset)[rows]
    offset = offsets(counts)
    entries = np.repeat(prefixes.offset[rows] - offset[:-1], counts) + np.arange(offset[-1])
    return Prefixes(offset, prefixes.segment[entries], prefixes.tokens[entries])


def numbered(values: Int64) -> Int64:
    """Each value's place among the distinct ones in ascending order; without sorting where they lie close together."""
    low = int(values.min(initial=0))
    span = int(values.max(initial=0)) - low + 1
    if span > 4 * len(values):
        return np.unique(values, return_inverse=True)[1].astype(np.int64, copy=False)
    found = np.zeros(span, np.bool_)
    found[values - low] = True
    distinct = np.flatnonzero(found)
    number = np.empty(span, np.int64)
    number[distinct] = np.arange(len(distinct))
    return number[values - low]


def without_unique_tails(prefixes: Prefixes) -> Prefixes:
    """The same sharing without the entries behind a row's last shared segment: unnamed prompt is unique anyway."""
    named = numbered(prefixes.segment)
    shared = (np.bincount(named) > 1)[named] | (prefixes.segment < 0)
    row = rows_of(prefixes)
    last = np.full(len(prefixes.offset) - 1, -1, np.int64)
    last[row[shared]] = np.flatnonzero(shared)  # of those of one row the last one stays
    kept = np.arange(len(row)) <= last[row]
    counts = np.bincount(row[kept], minlength=len(last)).astype(np.int64)
    return Prefixes(offsets(counts), prefixes.segment[kept], prefixes.tokens[kept])


def stacked(segments: list[Int64], tokens: list[Int64]) -> Prefixes | None:
    """Prefixes of rows whose k-th segment is `segments[k]`, `tokens[k]` long; 0 tokens: none. None if all are."""
    segment, size = np.stack(segments, axis=1), np.stack(tokens, axis=1)
    named = size > 0
    if not named.any():
        return None
    return Prefixes(offsets(named.sum(axis=1)), segment[named], size[named])


def offsets(counts: NDArray[np.integer]) -> Int64:
    """Where each row starts, and the end: the running sum of `counts` from 0."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
