"""Curves of a sweep: each a function from named lines of points to a matplotlib Axes, yours to change.

A line is a list of mappings with the columns of curve.csv, in the order of its x; `<column>_low` and `_high` are the
interval over seeds, drawn as a band from three seeds on. Undefined points are gaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim.report.console import duration, number
from batchsim.report.plots import BLUE, GREEN, ORANGE, RED, axes, log_scale, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Lines = Mapping[str, Sequence[Mapping[str, Any]]]
COLORS = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9", "#000000", "#999999")
RATE = "workload.arrivals.rate_per_s"
NAMES = {
    "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E", "offered_rate_per_s": "offered rate (req/s)",
    "request_throughput": "served rate (req/s)", RATE: "offered rate (req/s)",
}  # fmt: skip
BAND_SEEDS = 3
"""Of two seeds a t interval is thirteen times as wide as they lie apart: a band that hides the figure."""
Labels = list[tuple[float, str, str]]


def latency(
    lines: Lines, x: str, metric: str, *, window: bool = False, target_ms: float | None = None, ax: Axes | None = None
) -> Axes:
    """p50, p95 and p99 of a latency (ttft, tpot, itl, e2el) over the column `x`; of several lines p50 and p99.

    window: of the named part of the runs.  target_ms: drawn as a line.
    """
    ax = axes(ax)
    prefix, labels = "window." * window, Labels()
    styles = {"p99": "-", "p95": "--", "p50": ":"} if len(lines) == 1 else {"p99": "-", "p50": ":"}
    for place, (name, line) in enumerate(lines.items()):
        for q, style in styles.items():
            column = f"{prefix}{q}_{metric}_ms"
            labels += _line(ax, line, x, column, COLORS[place % 8], style, f"{name} {q}".strip(), band=q == "p99")
    if target_ms is not None:
        _target(ax, target_ms)
    _finish(ax, labels, x, f"{NAMES[metric]} (ms)")
    column = f"{prefix}p99_{metric}_ms"
    known = [entry[column] for line in lines.values() for entry in line if entry.get(column) is not None]
    text = f"p99 from {duration(min(known))} to {duration(max(known))}" if known else "nothing to show"
    ax.set_title(f"{NAMES[metric]}: {text}", loc="left")
    return ax


def latency_throughput(
    lines: Lines, column: str = "p99_e2el_ms", *, knees: Mapping[str, Mapping[str, Any] | None] | None = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """A latency over the served rate, the knee of each line as a square."""
    ax = axes(ax)
    labels = Labels()
    for place, (name, line) in enumerate(lines.items()):
        labels += _line(ax, line, "request_throughput", column, COLORS[place % 8], "-", name, mark="o")
        knee = (knees or {}).get(name)
        if knee is not None and knee.get(column) is not None:
            ax.plot([knee["request_throughput"]], [knee[column]], "s", color=COLORS[place % 8], markersize=8)
            text = f"knee {number(knee['request_throughput'])} /s"
            right = place % 2 == 0
            note(ax, text, (knee["request_throughput"], knee[column]), COLORS[place % 8],
                 offset=(7, -9) if right else (-7, 5), ha="left" if right else "right")  # fmt: skip
    quantile, _, metric = column.removesuffix("_ms").partition("_")
    _finish(ax, labels, "request_throughput", f"{quantile} {NAMES.get(metric, metric)} (ms)")
    top = max((entry.get("request_throughput") or 0.0 for line in lines.values() for entry in line), default=0.0)
    ax.set_title(f"at most {number(top)} requests a second are served", loc="left")
    return ax


def goodput(lines: Lines, x: str = RATE, *, ax: Axes | None = None) -> Axes:
    """Goodput over the offered rate, the served rate dotted; of one line each target alone too."""
    ax = axes(ax)
    labels = Labels()
    alone = _targets(lines) if len(lines) == 1 else []
    for place, (name, line) in enumerate(lines.items()):
        color = COLORS[place % 8]
        labels += _line(ax, line, x, "request_throughput", color, ":", f"{name} served".strip(), band=False)
        labels += _line(ax, line, x, "request_goodput", color, "-", f"{name} goodput".strip(), mark="o")
        for number_, key in enumerate(alone, 1):
            short = NAMES.get(key.removeprefix("goodput.").removesuffix("_ms"), key)
            labels += _line(ax, line, x, key, COLORS[number_ % 8], "--", f"{short} alone", band=False)
    _finish(ax, labels, x, "requests a second")
    best = max((entry.get("request_goodput") or 0.0 for line in lines.values() for entry in line), default=0.0)
    ax.set_title(f"goodput reaches {number(best)} requests a second" if best else "served rate", loc="left")
    return ax


def kv_occupancy(lines: Lines, x: str = RATE, *, ax: Axes | None = None) -> Axes:
    """KV blocks in use, mean and peak (dashed), in per cent of those there are."""
    ax = axes(ax)
    labels = Labels()
    for place, (name, line) in enumerate(lines.items()):
        labels += _line(ax, line, x, "kv_mean_fraction", COLORS[place % 8], "-", f"{name} mean".strip(), factor=100)
        labels += _line(ax, line, x, "kv_peak_fraction", COLORS[place % 8], "--", f"{name} peak".strip(), factor=100)
    ax.set_ylim(0, 103)
    _finish(ax, labels, x, "KV cache in use (%)")
    peak = max((entry.get("kv_peak_fraction") or 0.0 for line in lines.values() for entry in line), default=0.0)
    ax.set_title(f"the KV cache fills to {100 * peak:.0f} %", loc="left")
    return ax


def _targets(lines: Lines) -> list[str]:
    keys = [key for line in lines.values() for entry in line[:1] for key in entry if key.startswith("goodput.")]
    found = [key for key in keys if not key.endswith(("_low", "_high"))]
    return found if len(found) > 1 else []


def _line(
    ax: Axes, line: Sequence[Mapping[str, Any]], x: str, y: str, color: str, style: str, name: str,
    *, mark: str = "", factor: float = 1.0, band: bool = True,
) -> Labels:  # fmt: skip
    """Draws a line with its band; the label that its end should get."""
    known = [entry for entry in line if entry.get(x) is not None and entry.get(y) is not None]
    if not known:
        return []
    xs, ys = [entry[x] for entry in known], [factor * entry[y] for entry in known]
    ax.plot(xs, ys, linestyle=style, marker=mark or None, markersize=3.5, color=color, linewidth=1.6)
    if band and all(
        entry.get(f"{y}_low") is not None and entry.get("seeds", BAND_SEEDS) >= BAND_SEEDS for entry in known
    ):
        least = min(ys) / 2  # an interval may reach below 0, where no latency is and a log axis has no place
        low, high = ([max(factor * entry[f"{y}_{end}"], least) for entry in known] for end in ("low", "high"))
        ax.fill_between(xs, low, high, color=color, alpha=0.15, linewidth=0)
    return [(ys[-1], name, color)] if name else []


def _target(ax: Axes, limit: float) -> None:
    ax.axhline(limit, color=RED, linewidth=1.2, linestyle="--")
    note(ax, f"target {limit:g} ms", (0.02, limit), RED, offset=(0, 3), coords=("axes fraction", "data"))


def _finish(ax: Axes, labels: Labels, x: str, y_label: str) -> None:
    """Axes' names, a log scale where values span more than a factor of 20, and the lines' names at the right edge."""
    ax.set_xlabel(NAMES.get(x, x.rpartition(".")[2].replace("_", " ")))
    ax.locator_params(axis="x", nbins=7)
    ax.set_ylabel(y_label)
    data = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    values = np.concatenate(data) if data else np.empty(0)
    if len(values) and values.min() > 0 and values.max() > 20 * values.min() and y_label.endswith("(ms)"):
        log_scale(ax, "y")
        ax.set_ylim(0.7 * values.min(), 1.5 * values.max())
    else:
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter("{x:,g}")
    end_labels(ax, labels)


def end_labels(ax: Axes, labels: Labels, *, apart: float = 0.082) -> None:
    """Names at the right edge beside where their lines end, pushed apart where they would overlap.

    labels: (y in data, text, colour).  apart: least distance, in heights of the Axes.
    """
    low, high = ax.get_ylim()
    place = np.log if ax.get_yscale() == "log" else np.asarray
    span = float(place(high) - place(low))
    wanted = sorted((min(max(float(place(y) - place(low)) / span, 0.0), 1.0), text, color) for y, text, color in labels)
    heights = _apart([height for height, _, _ in wanted], apart)
    for height, (_, text, color) in zip(heights, wanted, strict=True):
        note(ax, text, (1.015, height), color, offset=(0, -3), coords="axes fraction")


def _apart(heights: list[float], least: float) -> list[float]:
    """Ascending heights moved as little as keeps `least` between neighbours: clusters are spread about their mean."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _low(groups[-1], least) < _high(groups[-2], least) + least:
            last = groups.pop()
            groups[-1] += last
    return [_low(group, least) + place * least for group in groups for place in range(len(group))]


def _low(group: list[float], least: float) -> float:
    return sum(group) / len(group) - least * (len(group) - 1) / 2


def _high(group: list[float], least: float) -> float:
    return _low(group, least) + least * (len(group) - 1)
