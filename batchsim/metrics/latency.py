"""Latencies of requests, one entry a request in file order, in ns.

TTFT = first token - arrival, queue included.  TPOT = (E2E - TTFT) / (output tokens - 1), undefined for one token.
E2E = last token - arrival.  Undefined whole numbers are NEVER (-1), undefined fractions NaN; `defined` drops both.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from batchsim.metrics.percentiles import Stats
from batchsim.records import NEVER, Requests, Status

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Column = TypeVar("Column", bound=NDArray[Any])
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def completed(requests: Requests) -> NDArray[np.bool_]:
    """Which requests got all their tokens."""
    return np.asarray(requests.status == Status.COMPLETED)


def submitted(requests: Requests) -> NDArray[np.bool_]:
    """Which requests reached the server."""
    return np.asarray(requests.status != Status.UNSENT)


def _since(end_ns: Int64, start_ns: Int64) -> Int64:
    return np.where((end_ns == NEVER) | (start_ns == NEVER), NEVER, end_ns - start_ns)


def queue_ns(requests: Requests) -> Int64:
    """From arrival to the start of the first step that scheduled it."""
    return _since(requests.admitted_ns, requests.arrival_ns)


def ttft_ns(requests: Requests) -> Int64:
    """From arrival to the first token, of every request that got one, finished or not."""
    return _since(requests.first_token_ns, requests.arrival_ns)


def e2e_ns(requests: Requests) -> Int64:
    """From arrival to the last token, of the completed."""
    return np.where(completed(requests), requests.finished_ns - requests.arrival_ns, NEVER)


def tpot_ns(requests: Requests) -> Float64:
    """Mean time per output token after the first, of the completed with two tokens or more."""
    gaps = requests.emitted_tokens - 1
    took = (requests.finished_ns - requests.first_token_ns).astype(np.float64)
    return np.where(completed(requests) & (gaps > 0), took / np.maximum(gaps, 1), np.nan)


def client_queue_ns(requests: Requests) -> Int64:
    """From the scheduled to the real sending, behind the client's own cap, of the submitted."""
    return np.where(submitted(requests), _since(requests.arrival_ns, requests.scheduled_ns), NEVER)


def from_schedule_ttft_ns(requests: Requests) -> Int64:
    """TTFT counted from when the schedule would have sent the request."""
    return _since(requests.first_token_ns, requests.scheduled_ns)


def from_schedule_e2e_ns(requests: Requests) -> Int64:
    """E2E counted from when the schedule would have sent the request."""
    return np.where(completed(requests), requests.finished_ns - requests.scheduled_ns, NEVER)


def defined(column: Column) -> Column:
    """The defined entries: those that are neither NEVER nor NaN."""
    return column[column >= 0]  # type: ignore[return-value]


def stat_keys(name: str, stats_ns: Stats) -> dict[str, float | int | None]:
    """The summary's keys of one latency, in ms: mean_X_ms, median_X_ms, std_X_ms, p50_X_ms …, max_X_ms, n_X."""
    ms = stats_ns.scaled(NS_PER_MS)
    p50, p90, p95, p99 = ms.percentiles
    return {
        f"mean_{name}_ms": ms.mean,
        f"median_{name}_ms": p50,
        f"std_{name}_ms": ms.std,
        f"p50_{name}_ms": p50,
        f"p90_{name}_ms": p90,
        f"p95_{name}_ms": p95,
        f"p99_{name}_ms": p99,
        f"max_{name}_ms": ms.max,
        f"n_{name}": ms.n,
    }
