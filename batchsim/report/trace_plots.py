"""The picture of `batchsim trace --out`: requests over time, and how long they are. Functions from data to Axes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim.metrics.percentiles import percentile
from batchsim.report.plots import BLUE, ORANGE, axes, note, thin, write_figure
from batchsim.workload.columns import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 120
"""The rate is averaged over at most so many equal stretches, of whole seconds."""


def arrival_rate(workload: Workload, *, ax: Axes | None = None) -> Axes:
    """Requests a second over the length of the trace, its mean as a line."""
    ax = axes(ax)
    times_s = np.sort(workload.arrival_ns) / 1e9
    width_s = max(1.0, float(np.ceil(times_s[-1] / BINS)))
    edges = _edges(float(times_s[-1]), width_s)
    rates = np.histogram(times_s, edges)[0] / np.diff(edges)
    ax.stairs(rates, edges, fill=True, color=BLUE, alpha=0.35)
    ax.stairs(rates, edges, color=BLUE, linewidth=1)
    ax.set_ylim(bottom=0)
    ax.set_xlim(0, float(edges[-1]))
    ax.set_xlabel("time (s)")
    ax.set_ylabel(f"requests/s, over {width_s:g} s each")
    if times_s[-1] <= 0:
        ax.set_title("all arrive at once", loc="left")
        return ax
    mean = len(times_s) / float(times_s[-1])
    ax.axhline(mean, color="black", linewidth=0.8, linestyle=":")
    peak = float(rates.max())
    ax.set_title(f"{mean:.2f} requests/s on average, {peak / mean:.1f} times that at the peak", loc="left")
    return ax


def _edges(last_s: float, width_s: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Stretches of a width up to the last arrival: the last one is cut there, and one below half a width joins the one
    before, so that few requests make no peak."""
    whole = int(last_s // width_s)
    edges = np.arange(whole + 1) * width_s
    if not whole:
        return np.array([0.0, width_s])
    if last_s - edges[-1] < width_s / 2:
        return np.append(edges[:-1], max(last_s, float(edges[-1])))
    return np.append(edges, last_s)


def length_cdf(workload: Workload, *, ax: Axes | None = None) -> Axes:
    """The share of prompts and of answers up to a length, both medians marked."""
    ax = axes(ax)
    medians = {}
    for name, tokens, color, style in (
        ("prompt", workload.prompt_tokens, BLUE, "-"),
        ("output", workload.output_tokens, ORANGE, "--"),
    ):
        values = np.sort(tokens).astype(np.float64)
        x, y = thin(values, np.arange(1, len(values) + 1) / len(values))
        ax.step(x, y, where="post", color=color, linestyle=style, linewidth=1.8)
        medians[name] = percentile(values, 50) or 0.0
        ax.plot([medians[name]], [0.5], "o", color=color, markersize=4)
        note(ax, f"{name} {medians[name]:,.0f}", (medians[name], 0.5), color, offset=(7, -4))
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:,g}")
    low, high = ax.get_xlim()
    ax.set_xlim(low, max(high, 30 * max(medians.values())))
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("tokens")
    ax.set_ylabel("share of requests")
    ax.set_title(f"half have ≤ {medians['prompt']:,.0f} tokens in, ≤ {medians['output']:,.0f} out", loc="left")
    return ax


def write_trace_figure(path: Path, workload: Workload) -> Path:
    """Both side by side, at a size for a slide."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    arrival_rate(workload, ax=left)
    length_cdf(workload, ax=right)
    for axes_ in (left, right):
        axes_.title.set_fontsize(10)
    return write_figure(path, figure)
