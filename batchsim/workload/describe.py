"""What a trace holds, without simulating it: rows, span, rate over time, lengths, burstiness, prefix sharing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from batchsim.workload.columns import Int64, Prefixes, Workload
from batchsim.workload.fields import NS_PER_S
from batchsim.workload.prefixes import rows_of
from batchsim.workload.traces import Trace

MINUTE_NS = 60 * NS_PER_S
DEFAULT_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Lengths of prompts or answers, tokens; percentiles by linear interpolation."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: int
    total: int


@dataclass(frozen=True, slots=True)
class Description:
    """A trace in figures. None where a figure is undefined (a rate of one arrival, a gap of none).

    span_s: first arrival to last.  mean_rate_per_s: rows over the span.
    minute_arrivals: arrivals in each minute from the first; the last minute may be cut short, and the rates of the
    slowest and the busiest minute leave it out unless it is the only one.
    gap_cv: standard deviation of the gaps over their mean (1 for Poisson).
    dispersion: variance of arrivals a minute over their mean, whole minutes only (1 for Poisson).
    prefix_share: share of all prompt tokens that an earlier prompt began with, in full blocks of
    `prefix_block_tokens`: what a prefix cache without a size limit would hit.  None where the trace names no prefixes.
    """

    format: str
    rows: int
    skipped: int
    unsorted: int
    span_s: float
    mean_rate_per_s: float | None
    slowest_minute_per_s: float | None
    busiest_minute_per_s: float | None
    gap_cv: float | None
    dispersion: float | None
    prompt_tokens: LengthSummary
    output_tokens: LengthSummary
    prefix_share: float | None
    prefix_block_tokens: int | None
    tenants: int
    classes: int
    sessions: int
    minute_arrivals: tuple[int, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain values, ready for JSON."""
        return asdict(self)


def describe(trace: Trace) -> Description:
    """The figures of a trace that was read with `batchsim.workload.traces.read`."""
    work = trace.workload
    arrival_ns = np.sort(work.arrival_ns)
    span_ns = int(arrival_ns[-1] - arrival_ns[0])
    minutes = np.bincount((arrival_ns - arrival_ns[0]) // MINUTE_NS)
    whole = minutes[: span_ns // MINUTE_NS]
    rated = whole / 60 if len(whole) else None
    block_tokens = trace.block_tokens or DEFAULT_BLOCK_TOKENS
    shared = None if work.prefixes is None else prefix_share(work, block_tokens)
    if shared is None and trace.block_tokens:
        shared = 0.0
    return Description(
        format=trace.format,
        rows=len(work),
        skipped=trace.skipped,
        unsorted=trace.unsorted,
        span_s=span_ns / NS_PER_S,
        mean_rate_per_s=len(work) / (span_ns / NS_PER_S) if span_ns else None,
        slowest_minute_per_s=None if rated is None else float(rated.min()),
        busiest_minute_per_s=None if rated is None else float(rated.max()),
        gap_cv=_gap_cv(arrival_ns),
        dispersion=float(whole.var() / whole.mean()) if len(whole) > 1 and whole.any() else None,
        prompt_tokens=_lengths(work.prompt_tokens),
        output_tokens=_lengths(work.output_tokens),
        prefix_share=shared,
        prefix_block_tokens=None if shared is None else block_tokens,
        tenants=len(work.tenants),
        classes=len(work.classes),
        sessions=len(work.sessions),
        minute_arrivals=tuple(minutes.tolist()),
        notes=work.notes,
    )


def prefix_share(work: Workload, block_tokens: int) -> float:
    """Share of the prompt tokens that an earlier request's prompt began with, counted in full blocks."""
    if work.prefixes is None:
        return 0.0
    order = np.argsort(work.arrival_ns, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    hit = _seen_tokens(work.prefixes, rank)
    return float((hit // block_tokens * block_tokens).sum() / work.prompt_tokens.sum())


def _seen_tokens(prefixes: Prefixes, rank: Int64) -> Int64:
    """Leading tokens of each row's prefix that a row of lower rank began with as well.

    Rows are compared segment by segment: `chain` numbers what stands before, segments and how much of each; of the
    next segment a row has seen as much as the longest part that any earlier row with the same chain took of it.
    """
    row, size = rows_of(prefixes), np.diff(prefixes.offset)
    depth = np.arange(len(row)) - prefixes.offset[row]
    hit = np.zeros(len(size), np.int64)
    chain = np.zeros(len(size), np.int64)
    for level in range(int(size.max(initial=0))):
        entries = np.flatnonzero(depth == level) if level else prefixes.offset[:-1][size > 0]
        here, taken = row[entries], prefixes.tokens[entries]
        named = _numbered(chain[here], prefixes.segment[entries])
        hit[here] += np.minimum(_longest_before(named, rank[here], taken), taken)
        chain[here] = _numbered(named, taken)
    return hit


def _numbered(first: Int64, second: Int64) -> Int64:
    """Equal pairs get equal numbers, from 0."""
    _, numbers = np.unique(np.stack([first, second], axis=1), axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)


def _longest_before(group: Int64, rank: Int64, tokens: Int64) -> Int64:
    """For each entry the most tokens of an entry of its group with a lower rank, 0 where there is none."""
    order = np.lexsort((rank, group))
    sorted_group, sorted_tokens = group[order], tokens[order]
    # A running maximum that starts anew in each group: groups are lifted above one another.
    lift = sorted_group * (int(tokens.max(initial=0)) + 1)
    highest = np.maximum.accumulate(sorted_tokens + lift) - lift
    longest = np.zeros(len(group), np.int64)
    same = np.flatnonzero(sorted_group[1:] == sorted_group[:-1]) + 1
    longest[order[same]] = highest[same - 1]
    return longest


def _gap_cv(arrival_ns: Int64) -> float | None:
    gaps = np.diff(arrival_ns)
    return float(gaps.std() / gaps.mean()) if len(gaps) and gaps.any() else None


def _lengths(tokens: Int64) -> LengthSummary:
    p50, p90, p99 = (float(value) for value in np.percentile(tokens, [50, 90, 99]))
    return LengthSummary(float(tokens.mean()), p50, p90, p99, int(tokens.max()), int(tokens.sum()))
