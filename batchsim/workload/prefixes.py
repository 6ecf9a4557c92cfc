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
    """Each value's place among the distinct ones in ascending order; none is negative.

    Where they lie close together it looks them up instead of sorting: that takes a sixth of the time.
    """
    span = int(values.max(initial=0)) + 1
    if span > 4 * len(values):
        return np.unique(values, return_inverse=True)[1].astype(np.int64, copy=False)
    found = np.zeros(span, np.bool_)
    found[values] = True
    distinct = np.flatnonzero(found)
    number = np.empty(span, np.int64 if len(distinct) > 2**31 else np.int32)
    number[distinct] = np.arange(len(distinct))
    return number[values].astype(np.int64, copy=False)


def without_unique_tails(prefixes: Prefixes) -> Prefixes:
    """The same sharing without the entries behind a row's last shared segment: unnamed prompt is unique anyway.

    Segments are numbered from 0 without gaps, as `numbered` gives them.
    """
    starts, ends = prefixes.offset[:-1], prefixes.offset[1:]
    shared = np.flatnonzero((np.bincount(prefixes.segment) > 1)[prefixes.segment])
    last = np.append(shared, -1)[np.searchsorted(shared, ends) - 1]  # where the row has none: of an earlier row, or -1
    counts = np.maximum(last + 1 - starts, 0)
    kept = np.repeat(np.tile([True, False], len(counts)), np.column_stack([counts, ends - starts - counts]).ravel())
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
