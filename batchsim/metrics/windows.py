"""A named part of a run: latencies of the requests that arrive in it, throughput of the tokens that come in it.

A request belongs to the window by its arrival (start included, end not), whenever it ends; a token by the time at
which it comes (start not included, end included: a step's tokens come at its end). Whole-request filters would lose the
tokens of requests that straddle an edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from batchsim.metrics.itl import gaps_of, stats_ns
from batchsim.metrics.latency import NS_PER_S, completed, defined, e2e_ns, stat_keys, submitted, tpot_ns, ttft_ns
from batchsim.metrics.percentiles import describe
from batchsim.metrics.throughput import Span
from batchsim.metrics.tokens import tokens_between
from batchsim.records import Records

RULE = "latency by request start, throughput by token time"


@dataclass(frozen=True, slots=True)
class Window:
    """From start_s to end_s on the simulation's clock; None: to the end of the run. skip_first: requests left out."""

    start_s: float = 0.0
    end_s: float | None = None
    skip_first: int = 0
    name: str = "steady state"


def window_section(records: Records, window: Window, run: Span) -> dict[str, Any]:
    """The summary's `window`: rule, edges, counts in and out, throughput, latencies."""
    requests = records.requests
    start = round(window.start_s * NS_PER_S)
    end = run.end_ns if window.end_s is None else round(window.end_s * NS_PER_S)
    sent = submitted(requests)
    last = window.end_s is None
    inside = sent & (requests.arrival_ns >= start) & ((requests.arrival_ns < end) | last)
    if window.skip_first:
        order = np.argsort(np.where(sent, requests.arrival_ns, np.iinfo(np.int64).max), kind="stable")
        inside[order[: window.skip_first]] = False
    seconds = (end - start) / NS_PER_S
    done = completed(requests) & (requests.finished_ns > start) & (requests.finished_ns <= end)
    tokens = tokens_between(records, start, end)
    itl = gaps_of(records, inside)
    section: dict[str, Any] = {
        "name": window.name,
        "rule": RULE,
        "start_s": start / NS_PER_S,
        "end_s": end / NS_PER_S,
        "included_requests": int(inside.sum()),
        "excluded_requests": int((sent & ~inside).sum()),
        "total_output_tokens": tokens,
        "excluded_output_tokens": int(requests.emitted_tokens.sum()) - tokens,
        "request_throughput": int(done.sum()) / seconds if seconds > 0 else None,
        "output_throughput": tokens / seconds if seconds > 0 else None,
    }
    section |= stat_keys("ttft", describe(defined(ttft_ns(requests)[inside])))
    section |= stat_keys("tpot", describe(defined(tpot_ns(requests)[inside])))
    section |= stat_keys("itl", stats_ns(itl))
    return section | stat_keys("e2el", describe(defined(e2e_ns(requests)[inside])))
