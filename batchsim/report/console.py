"""The table that `run` and `compare` print, for a terminal 100 wide. The caller prints; rich is loaded here alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

Summary = Mapping[str, Any]
WIDTH = 100
ABSENT = "–"
_ROWS = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E", "e2el"))
_COLUMNS = ("mean", "p50", "p90", "p99", "max")
_TARGETS = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2e_ms": "E2E"}


def run_table(
    summary: Summary, *, cost_model: str = "", wall_s: float | None = None, out: str | None = None
) -> RenderableType:
    """What a run came to: header, latencies, throughput, goodput, batch, KV, cost, stability, provenance.

    cost_model: what priced the steps and how well it is known.  wall_s: how long the simulation took.
    out: where the files went, None: nowhere.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(header(summary), style="bold"), Text(""), _latency_table(summary), Text("")]
    parts.append(_facts([*_facts_of(summary), ("", ""), *_provenance(summary, cost_model, wall_s, out)]))
    return Group(*parts)


def render(renderable: RenderableType, *, width: int = WIDTH, color: bool = False) -> str:
    """A renderable as text, for a file or a test; the command line prints to its own console instead."""
    import io

    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=color, highlight=False, _environ={}).print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def header(summary: Summary) -> str:
    """Name, model, hardware, scheduler and traffic in one line, as far as the scenario says."""
    scenario = summary["scenario"]
    parts = [str(scenario.get("name") or "unnamed"), _hardware(summary), _scheduler(scenario), _traffic(summary)]
    return " · ".join(part for part in parts if part)


def _hardware(summary: Summary) -> str:
    scenario = summary["scenario"]
    model, gpu = _name(scenario.get("model")), _name(scenario.get("gpu"))
    gpus = f"{summary['gpus']}× {gpu}" if gpu else ""
    if groups := summary.get("groups"):
        gpus = " + ".join(f"{group['gpus']}× {group['gpu']} ({group['name']})" for group in groups)
    return f"{model} on {gpus}" if model and gpus else model or gpus


def _name(entry: Any) -> str:
    return str(entry.get("name", "inline")) if isinstance(entry, Mapping) else str(entry or "")


def _scheduler(scenario: Mapping[str, Any]) -> str:
    scheduler = scenario.get("scheduler") or {}
    words = {
        "max_num_seqs": "max_num_seqs",
        "max_num_batched_tokens": "budget",
        "batch_size": "batch_size",
        "max_wait_ms": "max_wait_ms",
        "max_batch_size": "max_batch_size",
        "max_queue_delay_ms": "delay_ms",
    }
    given = [f"{word} {scheduler[key]:g}" for key, word in words.items() if isinstance(scheduler.get(key), int | float)]
    kind = str(scheduler.get("kind", ""))
    return f"{kind} ({', '.join(given)})" if given else kind


def _traffic(summary: Summary) -> str:
    workload = summary["scenario"].get("workload") or {}
    arrivals = workload.get("arrivals") or {}
    kind = str(arrivals.get("kind") or workload.get("kind") or "")
    rate = arrivals.get("rate_per_s")
    rate_text = f" {rate:g}/s" if isinstance(rate, int | float) else ""
    return f"{summary['submitted']:,} requests" + (f", {kind}{rate_text}" if kind else "")


def _latency_table(summary: Summary) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 1), show_edge=False)
    table.add_column("")
    for name in (*_COLUMNS, "n"):
        table.add_column(name, justify="right", header_style="dim", no_wrap=True)
    for label, key in _ROWS:
        values = [duration(summary[f"{column}_{key}_ms"]) for column in _COLUMNS]
        table.add_row(label, *values, count(summary[f"n_{key}"]))
    return table


def _facts(rows: Sequence[tuple[str, str]]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 1), show_header=False, show_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, text)
    return table


def _facts_of(summary: Summary) -> list[tuple[str, str]]:
    rows = [("throughput", _throughput(summary))]
    if summary["request_goodput"] is not None:
        rows.append(("goodput", _goodput(summary)))
        each = summary.get("slo_attainment_by_target") or {}
        if len(each) > 1:
            rows.append(("", ", ".join(f"{_TARGETS[key]} alone {percent(share)}" for key, share in each.items())))
    rows.append(("batch", _batch(summary)))
    if groups := summary.get("groups"):
        busy = (f"{group['name']} {percent(group['gpu_busy_fraction'])}" for group in groups)
        rows.append(("groups", f"GPUs busy: {', '.join(busy)}"))
    if phases := summary.get("phases"):
        means = (f"{name.replace('_', ' ')} {duration(phase['mean_ms'])}" for name, phase in phases.items())
        rows.append(("phases", f"{' · '.join(means)} (means)"))
    if summary.get("padded_fraction"):
        rows.append(("padding", f"{percent(summary['padded_fraction'])} of the computed tokens are for nobody"))
    rows.append(("KV cache", _kv(summary)))
    if summary["cost_per_million_output_tokens"] is not None:
        rows.append(("cost", _cost(summary)))
    rows.append(("stability", _stability(summary)))
    lost = {"rejected": "rejected", "cancelled": "cancelled", "running_at_end": "running", "waiting_at_end": "waiting"}
    if missing := [f"{summary[key]:,} {word}" for key, word in lost.items() if summary[key]]:
        rows.append(("not served", f"{', '.join(missing)} of {summary['submitted']:,} submitted"))
    return rows


def _throughput(summary: Summary) -> str:
    return (
        f"{number(summary['request_throughput'])} req/s · {number(summary['output_throughput'])} output tok/s · "
        f"{number(summary['total_token_throughput'])} total tok/s"
    )


def _goodput(summary: Summary) -> str:
    slo = summary["scenario"].get("slo") or {}
    limits = [f"{word} ≤ {slo[key]:g} ms" for key, word in _TARGETS.items() if isinstance(slo.get(key), int | float)]
    share = f"{number(summary['request_goodput'])} req/s ({percent(summary['slo_attainment'])}"
    return f"{share} within {' and '.join(limits)})" if limits else f"{share} of those that have targets meet them)"


def _batch(summary: Summary) -> str:
    text = f"{number(summary['mean_running'])} running, {number(summary['mean_waiting'])} waiting on average"
    return f"{text} · GPU busy {percent(summary['gpu_busy_fraction'])}"


def _kv(summary: Summary) -> str:
    text = f"peak {percent(summary['kv_peak_fraction'])}"
    if len({group["kv_blocks_total"] for group in summary.get("groups", ())}) < 2:
        text += f" of {summary['kv_blocks_total']:,} blocks"
    text += f" · {_plural(summary['preemptions'], 'preemption')}"
    if summary["recomputed_tokens"]:
        text += f", {summary['recomputed_tokens']:,} tokens computed again"
    if summary["prefix_hit_tokens"]:
        text += f" · {summary['prefix_hit_tokens']:,} prompt tokens from the cache"
    return text


def _cost(summary: Summary) -> str:
    price = (summary["scenario"].get("price") or {}).get("gpu_hour")
    text = f"{money(summary['cost_per_million_output_tokens'])} per million output tokens"
    return text + (f" at {money(price)} per GPU-hour" if isinstance(price, int | float) else "")


def _stability(summary: Summary) -> str:
    if summary["stable"] is None:
        return "no offered rate to hold against (burst, closed loop, or too few arrivals)"
    rates = f"offered {number(summary['offered_rate_per_s'])} req/s"
    if summary["stable"]:
        return f"stable: {rates}, served {number(summary['served_rate_per_s'])}"
    from batchsim.metrics.summary import hardly_waits

    rates += f", served {number(summary['served_rate_per_s'])}"
    if hardly_waits(summary):
        return f"not settled: {rates}; hardly any wait: too short a run to tell"
    return f"NOT stable: {rates}: the queue grows"


def _provenance(summary: Summary, cost_model: str, wall_s: float | None, out: str | None) -> list[tuple[str, str]]:
    scenario = summary["scenario"]
    engine = scenario.get("engine")
    parts = [cost_model or str((scenario.get("cost_model") or {}).get("kind", ""))]
    parts += [f"engine {_name(engine)}"] if engine else []
    parts += [f"seed {scenario['seed']}"] if "seed" in scenario else []
    if summary["extrapolated"]:
        parts.append(f"{percent(summary['extrapolated'])} of the iterations outside the calibrated range")
    rows = [("cost model", " · ".join(part for part in parts if part))]
    if wall_s is not None:
        rate = f" ({number(summary['submitted'] / wall_s)} req/s)" if wall_s > 0 else ""
        where = f"files in {out}" if out else "--out DIR keeps the files"
        rows.append(("simulated", f"{summary['submitted']:,} requests in {wall_s:.2f} s{rate}; {where}"))
    return rows


def duration(ms: float | None) -> str:
    """A time in the unit a person would use: 310 µs, 61.2 ms, 2.1 s, 4.2 min."""
    if ms is None:
        return ABSENT
    for limit, unit, factor in ((0.9995, "µs", 1e3), (999.5, "ms", 1.0), (599_500.0, "s", 1e-3)):
        if abs(ms) < limit and ms != 0:
            return f"{_three(ms * factor)} {unit}"
    return "0 ms" if ms == 0 else f"{_three(ms / 60_000)} min"


def figure_words(name: str) -> str:
    """A target's figure as people say it: `p99_ttft_ms` -> `p99 TTFT`, `chat.attainment` -> `chat attainment`."""
    found = re.fullmatch(r"(?:(.+)\.)?(p\d+(?:\.\d+)?_\w+|attainment)", name)
    class_, figure = (found[1] or "", found[2]) if found else ("", name)
    words = figure.removesuffix("_ms").replace("_", " ")
    for short in ("ttft", "tpot", "itl", "e2e"):
        words = words.replace(short, short.upper())
    return f"{class_} {words}".lstrip()


def number(value: float | None) -> str:
    """Three significant digits below a thousand, thousands separated above."""
    return ABSENT if value is None else _three(value)


def money(value: float | None) -> str:
    """`$4.00`; below one, three digits that count: `$0.265`."""
    if value is None:
        return ABSENT
    return f"${value:,.2f}" if value >= 0.9995 or value == 0 else f"${value:.3g}"


def count(value: int | None) -> str:
    """A whole number, thousands separated."""
    return ABSENT if value is None else f"{value:,}"


def percent(share: float | None) -> str:
    """A share in per cent; never 100 % or 0 % by rounding alone."""
    if share is None:
        return ABSENT
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _three(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    decimals = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    if size < 0.0995:
        return f"{value:.2g}"
    return f"{value:,.{decimals}f}"


def _plural(value: int, word: str) -> str:
    return f"{value:,} {word}" + ("" if value == 1 else "s")
