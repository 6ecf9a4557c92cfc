"""Figures: each a function from data to a matplotlib Axes, yours to change. matplotlib is loaded here alone.

Titles say the finding, lines carry their own names, colours are Okabe and Ito's (told apart by colour-blind readers
and, with the line styles, in grey).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchsim.compact import narrow, part
from batchsim.metrics import latency
from batchsim.metrics.itl import histogram, pooled_gaps, quantiles_ns
from batchsim.metrics.percentiles import at, percentile
from batchsim.metrics.slo import Slo
from batchsim.metrics.throughput import span_of
from batchsim.metrics.ticks import slot_gaps_ns, ticks_of
from batchsim.records import FS_PER_NS, NEVER, Records, Status
from batchsim.report.console import duration, percent
from batchsim.report.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Float64 = NDArray[np.float64]
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#BBBBBB"
LABELS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}
STRETCH = 80
"""The timeline of a longer run shows the time in which so many requests arrive: as many as one can tell apart."""
MARKS = (0.5, 0.99)
POINTS = 2000
"""A curve is drawn through at most so many points."""


def latency_cdf(
    records: Records, metric: str = "ttft", *, slo_ms: float | None = None, ax: Axes | None = None, label: str = ""
) -> Axes:
    """The share of requests (ITL: of gaps) within a latency; p50 and p99 marked, the target as a line.

    metric: ttft, tpot, itl or e2e; ValueError for another.  slo_ms: the target of this metric.
    Calls on the same Axes add runs to it; give each a `label`.
    """
    ax = axes(ax)
    color = (BLUE, ORANGE, GREEN, RED)[len(ax.get_lines()) % 4]
    values, shares, marks = _distribution(records, metric)
    ax.set_xlabel(f"{LABELS[metric]} (ms)")
    ax.set_ylabel("share of gaps" if metric == "itl" else "share of requests")
    ax.set_ylim(0, 1.02)
    if len(values) == 0:
        ax.set_title(f"{LABELS[metric]}: nothing to show", loc="left")
        return ax
    ax.step(values, shares, where="post", color=color, linewidth=1.8)
    if values[0] > 0 and values[-1] > 20 * values[0]:
        log_scale(ax, "x")
    for q, value in marks.items():
        ax.plot([value], [q], "o", color=color, markersize=4)
        name = f"{label} " if label else ""  # right of and below a point of a rising curve nothing else is drawn
        note(ax, f"{name}p{100 * q:.0f} {duration(value)}", (value, q), color, offset=(7, -13 if q > 0.9 else -4))
    title = f"{LABELS[metric]}: p50 {duration(marks[0.5])}, p99 {duration(marks[0.99])}"
    if slo_ms is not None:
        within = float(np.concatenate([[0.0], shares])[np.searchsorted(values, slo_ms, side="right")])
        _limit(ax, slo_ms, f"target {slo_ms:g} ms")
        title = f"{LABELS[metric]}: {percent(within)} within {slo_ms:g} ms"
    _make_room(ax, marks[0.99])
    ax.set_title(title, loc="left")
    return ax


def timeline(
    records: Records,
    start_s: float | None = None,
    end_s: float | None = None,
    *,
    limit: int = 400,
    ax: Axes | None = None,
) -> Axes:
    """Who ran when, one row a request by arrival: waiting, prefill, decode, evicted.

    start_s, end_s: the part of the run to show, all of it by default. Beyond `limit` requests only the first are drawn
    and the title says so. Evicted is the stretch from a preemption to the next seat.
    """
    ax = axes(ax)
    requests = records.requests
    start = 0.0 if start_s is None else start_s
    end = records.end_ns / 1e9 if end_s is None else end_s
    last = np.where(requests.finished_ns == NEVER, records.end_ns, requests.finished_ns)
    there = latency.submitted(requests) & (requests.arrival_ns / 1e9 < end) & (last / 1e9 > start)
    order = np.flatnonzero(there)
    order = order[np.argsort(requests.arrival_ns[order], kind="stable")]
    total, shown = len(order), order[:limit]
    row = {index: place for place, index in enumerate(shown.tolist())}
    bars = _bars(records, shown, last)
    bars["evicted"] = _evictions(records, row)
    height = 0.85 if len(shown) <= 80 else 1.0
    colors = {"waiting": GREY, "prefill": ORANGE, "decode": BLUE, "evicted": RED}
    from matplotlib.collections import PolyCollection

    for name, (place, begin, stop) in bars.items():
        corners = [
            [(b, p - height / 2), (b, p + height / 2), (e, p + height / 2), (e, p - height / 2)]
            for p, b, e in zip(place.tolist(), begin.tolist(), stop.tolist(), strict=True)
            if e > b
        ]
        if corners:
            ax.add_collection(PolyCollection(corners, facecolors=colors[name], linewidths=0, label=name))
    ax.set_xlim(start, end if end > start else start + 1)
    ax.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    ax.set_xlabel("time (s)")
    ax.set_ylabel("requests, by arrival")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(ncols=4, loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, handlelength=1)
    ax.set_title(_timeline_title(bars, len(shown), total), loc="left")
    return ax


def kv_occupancy(records: Records, replica: int = 0, *, ax: Axes | None = None) -> Axes:
    """KV blocks in use over time on one replica, of the blocks there are; evictions as ticks on top."""
    ax = axes(ax)
    times, values = _peaks(*_steps(records, replica, "kv_blocks_used"))
    values = values / max(int(records.kv_blocks()[replica]), 1)
    ax.fill_between(times, 100 * values, step="post", color=BLUE, alpha=0.25, linewidth=0)
    ax.step(times, 100 * values, where="post", color=BLUE, linewidth=1)
    mine = (records.iterations.replica == replica) & (records.iterations.preempted > 0)
    evicted = records.iterations.start_ns[mine] / 1e9
    ax.plot(evicted, np.full(len(evicted), 103.0), "|", color=RED, markersize=6)
    ax.set_ylim(0, 108)
    ax.set_xlabel("time (s)")
    ax.set_ylabel("KV blocks in use (%)")
    count = int(records.iterations.preempted[mine].sum())
    text = f"KV cache: at most {percent(float(values.max(initial=0)))} of {records.kv_blocks_total:,} blocks"
    ax.set_title(f"{text}, {count:,} evictions" if count else f"{text}, no eviction", loc="left")
    return ax


def batch_size(
    records: Records,
    replica: int = 0,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Requests running and waiting over time on one replica; the averages are the whole run's."""
    ax = axes(ax)
    requests, span_ns = records.requests, span_of(records).ns
    means: dict[str, float] = {}
    for name, color, style in (("running", BLUE, "-"), ("waiting", ORANGE, "--")):
        stair = _queue(records, replica) if name == "waiting" else _steps(records, replica, name, start_s, end_s)
        times, values = _peaks(*_between(*stair, start_s, end_s))
        ax.step(times, values, where="post", color=color, linewidth=1.2, linestyle=style)
        total = (requests.ran_ns if name == "running" else requests.waited_ns)[requests.replica == replica].sum()
        means[name] = float(total / max(span_ns, 1))
        if len(times):
            peak = int(np.argmax(values))
            late = times[peak] > times[0] + 0.8 * (times[-1] - times[0])
            where = {"offset": (-4, 3), "ha": "right"} if late else {"offset": (4, 3)}
            note(ax, name, (times[peak], values[peak]), color, **where)
    ax.set_ylim(bottom=0)
    ax.margins(y=0.2)
    ax.set_xlabel("time (s)")
    ax.set_ylabel("requests")
    title = f"{means['running']:.1f} running, {means['waiting']:.1f} waiting on average"
    ax.set_title(title + (" over the whole run" if end_s is not None else ""), loc="left")
    return ax


def itl_spikes(records: Records, replica: int = 0, *, slo_ms: float | None = None, ax: Axes | None = None) -> Axes:
    """The gap that streams saw, step by step, on one replica: prefills between tokens stand out."""
    ax = axes(ax)
    ticks = ticks_of(records.iterations, records.replicas)
    gaps = slot_gaps_ns(ticks) / 1e6
    rows = ticks.rows
    first = (rows.replica == replica) & (rows.steady_seqs > 0)
    further = (rows.replica == replica) & (rows.streaming_seqs > 0) & (ticks.count > 1)
    times = np.concatenate([ticks.first_end_ns[first], rows.end_ns[further]]) / 1e9
    values = np.concatenate([gaps[0::2][first], gaps[1::2][further]])
    ax.set_xlabel("time (s)")
    ax.set_ylabel("gap between tokens (ms)")
    if len(values) == 0:
        ax.set_title("no stream had two tokens", loc="left")
        return ax
    order = np.argsort(times, kind="stable")
    shown_at, tops = _peaks(times[order], values[order], POINTS // 2)
    ax.vlines(shown_at, 0, tops, color=BLUE, linewidth=0.8)
    middle = percentile(values, 50) or 0.0
    ax.axhline(middle, color="black", linewidth=0.8, linestyle=":")
    note(ax, f"median {duration(middle)}", (0.01, middle), "black", offset=(0, 3), coords=("axes fraction", "data"))
    if slo_ms is not None:
        ax.axhline(slo_ms, color=RED, linewidth=1.2, linestyle="--")
        edge = ("axes fraction", "data")
        note(ax, f"target {duration(slo_ms)}", (0.99, slo_ms), RED, offset=(0, 3), ha="right", coords=edge)
    ax.set_ylim(bottom=0)
    longest = float(values.max())
    ax.set_title(
        f"longest gap {duration(longest)}, {longest / max(middle, 1e-9):.1f} times the median step", loc="left"
    )
    return ax


def timeline_figure(records: Records) -> Figure:
    """The timeline with the batch size under it; of a long run, while the first STRETCH requests arrive."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.2), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    arrivals = np.sort(records.requests.arrival_ns[latency.submitted(records.requests)])
    end = arrivals[STRETCH] / 1e9 if len(arrivals) > STRETCH else None
    timeline(records, 0.0, float(end) if end else None, ax=top)
    batch_size(records, end_s=float(end) if end else None, ax=bottom)
    if records.replicas > 1:
        bottom.set_ylabel("requests\non replica 0")
    top.set_xlabel("")
    if end:
        bottom.set_xlabel(f"time (s), of {records.end_ns / 1e9:,.1f}")
    return figure


def latency_figure(records: Records, slo: Slo | None = None) -> Figure:
    """The distributions of TTFT, TPOT and ITL side by side, with their targets."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), layout="constrained")
    targets: Mapping[str, float] = slo.targets() if slo is not None else {}
    for ax, metric in zip(figure.subplots(1, 3), ("ttft", "tpot", "itl"), strict=True):
        latency_cdf(records, metric, slo_ms=targets.get(f"{metric}_ms"), ax=ax)
        ax.title.set_fontsize(10)
    return figure


def write_figures(folder: Path, records: Records, slo: Mapping[str, Slo] | None = None) -> list[Path]:
    """timeline.png and latency.png, at a size for a slide. slo: by class; drawn where all classes have the same."""
    targets = [(slo or {}).get(name) for name in records.workload.classes]
    shared = targets[0] if all(target == targets[0] for target in targets) else None
    figures = {"timeline.png": timeline_figure(records), "latency.png": latency_figure(records, shared)}
    return [write_figure(folder / name, figure) for name, figure in figures.items()]


def write_figure(path: Path, figure: Figure) -> Path:
    """A figure as a file of its suffix's kind, complete or not there."""
    kind = path.suffix.removeprefix(".")
    return write_atomically(path, lambda stream: figure.savefig(stream, format=kind, dpi=160), binary=True)


def axes(ax: Axes | None) -> Axes:
    """The given Axes, or new ones of a size for a slide; without the upper and right frame."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def log_scale(ax: Axes, which: str) -> None:
    """A log axis, `x` or `y`, with ticks at 1, 2 and 5; on a wide one only the powers of ten are named."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set(**{f"{which}scale": "log"})
    axis = ax.xaxis if which == "x" else ax.yaxis

    def name(value: float, _: int) -> str:
        low, high = sorted(axis.get_view_interval())
        power = 10.0 ** np.floor(np.log10(value) + 1e-9)
        if high > 60 * max(low, 1e-300) and value > 1.5 * power:
            return ""
        return f"{value:,.0f}" if value >= 1 else f"{value:g}"

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(name))
    axis.set_minor_formatter(NullFormatter())


def note(
    ax: Axes,
    text: str,
    at: tuple[float, float],
    color: str,
    *,
    offset: tuple[int, int] = (0, 0),
    ha: str = "left",
    coords: Any = "data",
) -> None:
    """A label beside what it names, readable over a line."""
    back = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.8}
    ax.annotate(
        text, at, xycoords=coords, xytext=offset, textcoords="offset points", color=color, fontsize=9, ha=ha, bbox=back
    )


def _make_room(ax: Axes, value: float) -> None:
    """Widen the axis so that `value` lies in its left 72 %: the label beside it needs the rest."""
    low, high = ax.get_xlim()
    place, _ = ax.transAxes.inverted().transform(ax.transData.transform((value, 0.0)))
    if place > 0.72 and ax.get_xscale() == "log":
        ax.set_xlim(right=low * (high / low) ** (place / 0.72))
    elif place > 0.72:
        ax.set_xlim(right=low + (high - low) * place / 0.72)


def _limit(ax: Axes, value: float, text: str) -> None:
    ax.axvline(value, color=RED, linewidth=1.2, linestyle="--")
    right = value > sum(ax.get_xlim()) / 2
    note(ax, text, (value, 0.03), RED, offset=(-4 if right else 4, 0), ha="right" if right else "left",
          coords=("data", "axes fraction"))  # fmt: skip


def _distribution(records: Records, metric: str) -> tuple[Float64, Float64, dict[float, float]]:
    """(values in ms, share at or below each, {share: percentile} of MARKS), in order, thinned to about POINTS."""
    if metric == "itl":
        return _itl_distribution(records)
    columns: dict[str, Any] = {"ttft": latency.ttft_ns, "tpot": latency.tpot_ns, "e2e": latency.e2e_ns}
    if metric not in columns:
        raise ValueError(f"metric {metric!r}: must be one of {', '.join(LABELS)}")
    values = np.sort(latency.defined(columns[metric](records.requests))) / 1e6
    marks = {q: at(values, (len(values) - 1) * q) for q in MARKS} if len(values) else {}
    return *thin(values, np.arange(1, len(values) + 1) / max(len(values), 1)), marks


def _itl_distribution(records: Records) -> tuple[Float64, Float64, dict[float, float]]:
    """Exact where all gaps are at hand; of a long run, whose steps stay folded, in bins a thousandth wide."""
    gaps = pooled_gaps(records)
    if gaps.runs is None:
        parts = [*gaps.blocks()] or [(np.empty(0, np.int64), np.empty(0, np.int64))]
        values = np.concatenate([values for values, _ in parts]) / 1e6
        weights = np.concatenate([weights for _, weights in parts])
    else:
        edges, weights = histogram(gaps, gaps.runs)
        values = edges[1 : len(weights) + 1] / (1e6 * FS_PER_NS)
        values, weights = values[weights > 0], weights[weights > 0]
    count = int(weights.sum())
    if count == 0:
        return np.empty(0), np.empty(0), {}
    found = quantiles_ns(gaps, tuple(100 * q for q in MARKS), count)
    return *thin(values, np.cumsum(weights) / count), {q: ns / 1e6 for q, ns in zip(MARKS, found, strict=True)}


def thin(values: Float64, shares: Float64) -> tuple[Float64, Float64]:
    """About POINTS points of a curve, spread over the shares, its tail kept."""
    if len(values) <= POINTS:
        return values, shares
    wanted = np.concatenate([np.linspace(0, 1, POINTS // 2), 1 - np.logspace(-2, -7, POINTS // 4), [0.5, 0.99]])
    place = np.unique(np.minimum(np.searchsorted(shares, np.sort(wanted) - 1e-12), len(values) - 1))
    return values[place], shares[place]


def _steps(
    records: Records, replica: int, name: str, start_s: float | None = None, end_s: float | None = None
) -> tuple[Float64, Float64]:
    """(times in s, values) of a column as a stair: a row's value from start to end, 0 while the replica idles."""
    rows = records.iterations
    mine = np.flatnonzero(narrow(rows, "replica") == replica)
    start = part(rows, "start_ns", mine)
    first = 0 if start_s is None else max(int(np.searchsorted(start, start_s * 1e9)) - 1, 0)
    last = len(mine) if end_s is None else int(np.searchsorted(start, end_s * 1e9, side="right")) + 1
    mine, start = mine[first:last], start[first:last]
    end, values = part(rows, "end_ns", mine), part(rows, name, mine).astype(np.float64)
    if len(mine) == 0:
        return np.empty(0), np.empty(0)
    idle = np.append(start[1:] > end[:-1], True)
    times = np.concatenate([start, end[idle]])
    order = np.argsort(times, kind="stable")
    return times[order] / 1e9, np.concatenate([values, np.zeros(int(idle.sum()))])[order]


def _between(times: Float64, values: Float64, start_s: float | None, end_s: float | None) -> tuple[Float64, Float64]:
    """The part of a stair from start_s to end_s, with the step that leads into it."""
    first = 0 if start_s is None else max(int(np.searchsorted(times, start_s, side="right")) - 1, 0)
    last = len(times) if end_s is None else int(np.searchsorted(times, end_s, side="right")) + 1
    return times[first:last], values[first:last]


def _peaks(times: Float64, values: Float64, most: int = POINTS) -> tuple[Float64, Float64]:
    """A stair of at most `most` steps."""
    if len(times) <= most:
        return times, values
    heads = np.linspace(0, len(times) - 1, most).astype(np.int64)
    return times[heads], np.maximum.reduceat(values, heads)  # the peaks stay


def _queue(records: Records, replica: int) -> tuple[Float64, Float64]:
    """(times in s, requests waiting), idle time included, when a batch may be filling.

    Iterations say nothing of idle time, requests nothing of the queueing after a preemption: with preemptions the queue
    is read off the iterations.
    """
    requests = records.requests
    mine = (requests.replica == replica) & ~np.isin(requests.status, (Status.UNSENT, Status.REJECTED))
    if requests.preemptions[mine].any():
        return _steps(records, replica, "waiting")
    came, went = requests.arrival_ns[mine], (requests.arrival_ns + requests.waited_ns)[mine]
    times = np.concatenate([came, went])
    order = np.argsort(times, kind="stable")
    change = np.concatenate([np.ones(len(came)), -np.ones(len(went))])
    return times[order] / 1e9, np.cumsum(change[order])


Bars = dict[str, tuple[Any, Any, Any]]


def _bars(records: Records, shown: NDArray[np.int64], last: NDArray[np.int64]) -> Bars:
    """(row, begin in s, end in s) of every request's waiting, prefill and decode."""
    requests = records.requests
    final = last[shown]
    admitted, first = requests.admitted_ns[shown], requests.first_token_ns[shown]
    seated = np.where(admitted == NEVER, final, admitted)
    streamed = np.where(first == NEVER, final, first)
    place = np.arange(len(shown))
    arrival = requests.arrival_ns[shown]
    return {
        "waiting": (place, arrival / 1e9, seated / 1e9),
        "prefill": (place, seated / 1e9, streamed / 1e9),
        "decode": (place, streamed / 1e9, final / 1e9),
    }


def _evictions(records: Records, row: Mapping[int, int]) -> tuple[Any, Any, Any]:
    """(row, begin in s, end in s) of every stretch between losing a seat and having one again."""
    evicted = records.evictions
    mine = np.isin(evicted.index, list(row))
    place = np.array([row[index] for index in evicted.index[mine].tolist()], dtype=np.int64)
    end = np.where(evicted.resumed_ns == NEVER, records.end_ns, evicted.resumed_ns)[mine]
    return place, evicted.evicted_ns[mine] / 1e9, end / 1e9


def _timeline_title(bars: Bars, shown: int, total: int) -> str:
    def sum_of(name: str) -> float:
        return float(np.maximum(bars[name][2] - bars[name][1], 0).sum())

    stay = sum_of("waiting") + sum_of("prefill") + sum_of("decode")
    title = f"{percent(sum_of('waiting') / stay)} of the requests' time is waiting" if stay else "nothing ran"
    return title + (f" (first {shown:,} of {total:,})" if shown < total else "")
