"""Several runs of the same requests side by side: best value of each row marked, and what dominates each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from batchsim.report.console import Summary, count, duration, money, number, percent

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the comparison. better: -1 the least is best, 1 the most, 0 neither."""

    label: str
    key: str
    form: Callable[[Any], str]
    better: int


ROWS = (
    Row("TTFT mean", "mean_ttft_ms", duration, -1),
    Row("TTFT p99", "p99_ttft_ms", duration, -1),
    Row("TPOT mean", "mean_tpot_ms", duration, -1),
    Row("TPOT p99", "p99_tpot_ms", duration, -1),
    Row("ITL p99", "p99_itl_ms", duration, -1),
    Row("ITL max", "max_itl_ms", duration, -1),
    Row("E2E mean", "mean_e2el_ms", duration, -1),
    Row("E2E p99", "p99_e2el_ms", duration, -1),
    Row("requests/s", "request_throughput", number, 1),
    Row("output tok/s", "output_throughput", number, 1),
    Row("goodput req/s", "request_goodput", number, 1),
    Row("SLO attainment", "slo_attainment", percent, 1),
    Row("completed", "completed", count, 1),
    Row("running, mean", "mean_running", number, 0),
    Row("waiting, mean", "mean_waiting", number, -1),
    Row("GPU busy", "gpu_busy_fraction", percent, 0),
    Row("padding", "padded_fraction", percent, -1),
    Row("KV peak", "kv_peak_fraction", percent, 0),
    Row("preemptions", "preemptions", count, -1),
    Row("preemptions/s", "preemptions_per_s", number, -1),
    Row("recomputed", "recomputed_fraction", percent, -1),
    Row("recomputed tok/s", "recomputed_tokens_per_s", number, -1),
    Row("longest wait", "longest_wait_ms", duration, -1),
    Row("queue, mean", "mean_queue_ms", duration, -1),
    Row("service, mean", "mean_service_ms", duration, -1),
    Row("queue share", "queue_share", percent, -1),
    Row("Jain, tenants", "jain_weighted_tokens", number, 1),
    Row("steps at budget", "token_bound_fraction", percent, 0),
    Row("steps at seats", "seat_bound_fraction", percent, 0),
    Row("steps short of KV", "kv_bound_fraction", percent, 0),
    Row("$ per M output", "cost_per_million_output_tokens", money, -1),
)
CLASS_ROWS = (
    Row("TTFT p99", "p99_ttft_ms", duration, -1),
    Row("SLO attainment", "slo_attainment", percent, 1),
    Row("preemptions", "preemptions", count, -1),
    Row("longest wait", "longest_wait_ms", duration, -1),
    Row("queue share", "queue_share", percent, -1),
)
"""What is told of each class of traffic, where there are several."""
MOST_TENANTS = 8
"""Beyond so many the table leaves them to summary.json."""


def compare_table(summaries: Mapping[str, Summary]) -> RenderableType:
    """One column a run, by name; the best of each row starred and bold; then a line a run on what dominates it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_edge=False)
    table.add_column("")
    for name in summaries:
        table.add_column(name, justify="right", header_style="bold", no_wrap=True)
    for row, values in _lines(list(summaries.values())):
        if any(value is not None for value in values):
            marks = best(values, row.better)
            cells = [
                Text(f"{row.form(value)} *" if mark else f"{row.form(value)}  ", style="bold green" if mark else "")
                for value, mark in zip(values, marks, strict=True)
            ]
            table.add_row(row.label, *cells)
    lines = [Text(f" {name}: {dominant(summary)}", overflow="fold") for name, summary in summaries.items()]
    return Group(table, Text(" * best of the row, or within 0.5 % of it", style="dim"), Text(""), *lines)


def _lines(summaries: Sequence[Summary]) -> Iterable[tuple[Row, list[Any]]]:
    """Every row with its values: of the runs, of each class, and the longest wait of each tenant."""
    for row in ROWS:
        yield row, [summary.get(row.key) for summary in summaries]
    for name in _names(summaries, "classes"):
        sections = [(summary.get("classes") or {}).get(name) or {} for summary in summaries]
        for row in CLASS_ROWS:
            yield replace(row, label=f"{name}: {row.label}"), [section.get(row.key) for section in sections]
    waits = [(summary.get("tenants") or {}).get("longest_wait_ms") or {} for summary in summaries]
    tenants = list(dict.fromkeys(name for wait in waits for name in wait))
    if len(tenants) <= MOST_TENANTS:
        for name in tenants:
            yield Row(f"tenant {name}: longest wait", "longest_wait_ms", duration, -1), [w.get(name) for w in waits]


def _names(summaries: Sequence[Summary], section: str) -> list[str]:
    return list(dict.fromkeys(name for summary in summaries for name in summary.get(section) or {}))


def best(values: list[Any], better: int) -> list[bool]:
    """Which values are the best of a row, half a per cent being a tie: none where all tie or fewer than two exist."""
    known = [value for value in values if value is not None]
    if better == 0 or len(known) < 2:
        return [False] * len(values)
    top = max(known) if better > 0 else min(known)
    marks = [value is not None and abs(value - top) <= 0.005 * abs(top) for value in values]
    return marks if sum(marks) < len(known) else [False] * len(values)


def dominant(summary: Summary) -> str:
    """What costs this run most, in one line with its evidence."""
    if not summary["completed"]:
        return "nothing completed"
    return max(_causes(summary), key=lambda cause: cause[0])[1]


def _causes(summary: Summary) -> list[tuple[float, str]]:
    """(weight, sentence) of each thing that can dominate; the weight is roughly the share of time or work it takes."""
    queue, e2e = summary.get("mean_queue_ms") or 0.0, summary["mean_e2el_ms"] or 0.0
    waits = queue / e2e if e2e else 0.0
    busy = summary["gpu_busy_fraction"] or 0.0
    padded = summary.get("padded_fraction") or 0.0
    again = summary["recomputed_tokens"]
    computed = summary["total_input_tokens"] + summary["total_output_tokens"] + again
    stall = (summary["max_itl_ms"] or 0.0) / (summary["p50_itl_ms"] or 1.0)
    kind = (summary["scenario"].get("scheduler") or {}).get("kind")
    causes = [(0.05, f"nothing stands out: {percent(waits)} of a request's time is queue, GPU busy {percent(busy)}")]
    took = f"{duration(queue)} of {duration(e2e)} in the queue, GPU busy {percent(busy)}"
    if kind in ("static", "dynamic") and busy < 0.9:
        causes.append((waits, f"waiting for the batch to fill: {took}"))
    else:  # a busy GPU's queue is a symptom where something else wastes its time
        causes.append((waits / 2, f"queueing: {took}"))
    causes.append((padded, f"padding waste: {percent(padded)} of the computed tokens are for nobody"))
    if summary["preemptions"]:
        share = again / computed if computed else 0.0
        text = f"preemption: {summary['preemptions']:,} evictions, {percent(share)} of the tokens computed again"
        causes.append((3 * share, text))
    if stall >= 3:
        text = f"prefill stalls: the longest gap between tokens is {duration(summary['max_itl_ms'])}, "
        causes.append((min(0.2, 0.01 * stall), f"{text}{stall:.0f} times the median"))
    return causes
