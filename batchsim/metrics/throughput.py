"""What a run got through and how busy it was, over one span: first arrival to last completion, or to the horizon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchsim.compact import narrow, part
from batchsim.metrics.latency import NS_PER_S, completed, submitted
from batchsim.metrics.ticks import blocks
from batchsim.records import NEVER, Iterations, Records


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the simulation's clock, ns."""

    start_ns: int
    end_ns: int

    @property
    def ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns

    @property
    def seconds(self) -> float | None:
        """Its length in seconds, None where it has none."""
        return self.ns / NS_PER_S if self.ns > 0 else None


def span_of(records: Records) -> Span:
    """First arrival to last completion, or to the horizon if one is set; to the last event where nothing completed."""
    requests = records.requests
    sent = submitted(requests)
    if not sent.any():
        return Span(0, 0)
    start = int(requests.arrival_ns[sent].min())
    if records.horizon_ns is not None:
        return Span(start, max(start, records.horizon_ns))
    done = completed(requests)
    return Span(start, max(start, int(requests.finished_ns[done].max()) if done.any() else records.end_ns))


def per_second(count: int, span: Span) -> float | None:
    """A rate over the span, None where the span has no length."""
    return None if span.seconds is None else count / span.seconds


def input_tokens(records: Records) -> int:
    """Prompt tokens of the requests whose prompt was computed: those with a first token."""
    requests = records.requests
    return int(requests.prompt_tokens[requests.first_token_ns != NEVER].sum())


def mean_running(records: Records, span: Span) -> float | None:
    """Requests holding a seat, averaged over time."""
    return None if span.ns <= 0 else float(records.requests.ran_ns.sum() / span.ns)


def mean_waiting(records: Records, span: Span) -> float | None:
    """Requests in the queue, averaged over time."""
    return None if span.ns <= 0 else float(records.requests.waited_ns.sum() / span.ns)


def gpu_busy_fraction(records: Records, span: Span) -> float | None:
    """Share of the span in which a replica was in a step, averaged over replicas."""
    if span.ns <= 0:
        return None
    rows = records.iterations
    return busy_ns(rows, slice(0, len(rows)), span) / (span.ns * records.replicas)


def busy_ns(rows: Iterations, some: slice, span: Span) -> int:
    """Time in steps of some rows, inside the span."""
    found = 0
    for block in blocks(some.stop - some.start):
        found += int(_inside_ns(rows, slice(block.start + some.start, block.stop + some.start), span).sum())
    return found


def kv_peak_fraction(records: Records) -> float | None:
    """The fullest that any replica's KV cache was, of its blocks."""
    rows = records.iterations
    if records.kv_blocks_total <= 0:
        return None
    if _alike(records):
        return float(narrow(rows, "kv_blocks_used").max(initial=0) / records.kv_blocks_total)
    return float((rows.kv_blocks_used / records.kv_blocks()[rows.replica]).max(initial=0.0))


def _alike(records: Records) -> bool:
    """Whether all replicas have as many KV blocks."""
    return len({pool.kv_blocks for pool in records.pools}) < 2


def kv_mean_fraction(records: Records, span: Span) -> float | None:
    """KV blocks in use averaged over time and replicas, of the blocks there are; an idle replica uses none.

    A run of equal steps fills evenly from its first step to its last: it counts with the mean of the two.
    """
    if span.ns <= 0 or records.kv_blocks_total <= 0:
        return None
    rows, used = records.iterations, 0.0
    for block in blocks(len(rows)):
        blocks_x2 = part(rows, "kv_blocks_first", block) + part(rows, "kv_blocks_used", block)
        used += float((blocks_x2 * _inside_ns(rows, block, span)).sum(dtype=np.float64))
    total = records.replicas * records.kv_blocks_total if _alike(records) else int(records.kv_blocks().sum())
    return used / (2 * span.ns * total)


def padded_fraction(iterations: Iterations) -> float | None:
    """Share of the computed tokens that were computed for nobody (static padding, rows that had ended)."""
    computed = padded = 0
    for block in blocks(len(iterations)):
        repeats = part(iterations, "repeats", block)
        tokens = part(iterations, "prefill_tokens", block) + part(iterations, "decode_seqs", block)
        computed += int((tokens * repeats).sum())
        padded += int((part(iterations, "padded_tokens", block) * repeats).sum())
    return padded / computed if computed else None


def cost_per_million_output_tokens(gpus: int, gpu_hour: float | None, span: Span, tokens: int) -> float | None:
    """Money for a million output tokens with every GPU paid for the whole span, idle time included."""
    if gpu_hour is None or span.seconds is None or tokens == 0:
        return None
    return gpus * gpu_hour * span.seconds / 3600 / tokens * 1e6


def _inside_ns(iterations: Iterations, block: slice, span: Span) -> NDArray[np.int64]:
    """How much of each of some rows lies inside the span, ns."""
    start = np.maximum(part(iterations, "start_ns", block), span.start_ns)
    return np.asarray(np.maximum(np.minimum(part(iterations, "end_ns", block), span.end_ns) - start, 0))
