"""Pure functions of a run's records: latencies, throughput, targets, stability, fairness, intervals, the summary."""

from __future__ import annotations

from batchsim.metrics.fairness import jain, longest_wait_ms
from batchsim.metrics.itl import itl_stats_ns
from batchsim.metrics.latency import e2e_ns, queue_ns, tpot_ns, ttft_ns
from batchsim.metrics.percentiles import Stats, describe, percentile, samples_needed
from batchsim.metrics.slo import Slo, Verdict, judge
from batchsim.metrics.stable import Stability, stability
from batchsim.metrics.statistics import Interval, batch_means, bootstrap_interval, t_interval
from batchsim.metrics.summary import SummaryContext, summary
from batchsim.metrics.throughput import Span, span_of
from batchsim.metrics.ticks import max_itl_ns
from batchsim.metrics.tokens import token_times_ns, tokens_between
from batchsim.metrics.windows import Window

__all__ = [
    "Interval", "Slo", "Span", "Stability", "Stats", "SummaryContext", "Verdict", "Window", "batch_means",
    "bootstrap_interval", "describe", "e2e_ns", "itl_stats_ns", "jain", "judge", "longest_wait_ms", "max_itl_ns",
    "percentile", "queue_ns", "samples_needed", "span_of", "stability", "summary", "t_interval", "token_times_ns",
    "tokens_between", "tpot_ns", "ttft_ns",
]  # fmt: skip
