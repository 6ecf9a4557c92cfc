"""The picture of `batchsim trace --out`: requests over time, and how long they are. Functions from data to Axes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
    counts = np.bincount((times_s // width_s).astype(np.int64))
    edges = np.arange(len(counts) + 1) * width_s
    rates = counts / np.minimum(width_s, np.maximum(times_s[-1] - edges[:-1], 1e-9))  # the last stretch may be cut
    rates = rates[:-1] if len(rates) > 1 else counts / width_s
    ax.stairs(rates, edges[: len(rates) + 1], fill=True, color=BLUE, alpha=0.35)
    ax.stairs(rates, edges[: len(rates) + 1], color=BLUE, linewidth=1)
    ax.set_ylim(bottom=0)
    ax.set_xlim(0, float(edges[len(rates)]))
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
