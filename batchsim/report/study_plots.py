"""Figures of fleets, tenants and validation: each a function from data to a matplotlib Axes, yours to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchsim.metrics.burden import weighted_tokens
from batchsim.metrics.fairness import jain
from batchsim.records import NEVER, Records
from batchsim.report.console import duration, figure_words, number, percent
from batchsim.report.plots import BLUE, GREEN, GREY, ORANGE, POINTS, RED, axes, log_scale, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchsim.study.sensitivity import Curve, Variant

COLORS = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9")
SHOWN = 12.0
"""A latency axis ends at so many times its target."""


def rate_curves(
    curves: Sequence[Curve],
    name: str,
    *,
    limit: float,
    today_per_s: float | None = None,
    plan: int | None = None,
    error: float = 0.0,
    ax: Axes | None = None,
) -> Axes:
    """A target's figure against the offered rate, one line a size, with the target and today's rate.

    error: relative error of step times, drawn as a band.  plan: the size of the plan, drawn bold.
    """
    from batchsim.study.sensitivity import slowed

    ax = axes(ax)
    share = name.rpartition(".")[2] == "attainment"
    top = 1.05 if share else SHOWN * limit
    for place, curve in enumerate(curves):
        color = BLUE if curve.replicas == plan else (ORANGE, GREEN, "#CC79A7", "#56B4E9")[place % 4]
        known = [(r, v) for r, v in zip(curve.rates_per_s, curve.figures[name], strict=True) if v is not None]
        if not known:
            continue
        rates, values = np.array([r for r, _ in known]), np.array([v for _, v in known])
        ax.plot(
            rates, values, color=color, linewidth=2.2 if curve.replicas == plan else 1.3, marker="o", markersize=2.5
        )
        if error > 0 and not share:
            _band(ax, slowed(curve, name, error), slowed(curve, name, -error), color)
        inside = np.flatnonzero(values <= top)
        end = int(inside[-1]) if len(inside) else 0
        note(ax, f"{curve.replicas}×", (rates[end], min(values[end], top)), color, offset=(3, 2))
    ax.axhline(limit, color=RED, linewidth=1.2, linestyle="--")
    text = f"target {percent(limit)}" if share else f"target {duration(limit)}"
    note(ax, text, (0.01, limit), RED, offset=(0, 3), coords=("axes fraction", "data"))
    if today_per_s is not None:
        ax.axvline(today_per_s, color="#000000", linewidth=0.9, linestyle=":")
        note(ax, f"today {number(today_per_s)}/s", (today_per_s, 0.96), "#000000", offset=(-3, 0), ha="right",
             coords=("data", "axes fraction"))  # fmt: skip
    if not share:
        log_scale(ax, "y")
        ax.set_ylim(top=top)
    ax.set_xlim(left=0)
    ax.margins(x=0.08)
    ax.set_xlabel("offered rate (req/s)")
    ax.set_ylabel(axis_label(name))
    ax.set_title(_rate_title(curves, name, limit, plan, share), loc="left")
    return ax


def axis_label(name: str) -> str:
    """`p99_ttft_ms` -> `p99 TTFT (ms)`."""
    return f"{figure_words(name)} (ms)" if name.endswith("_ms") else figure_words(name)


def _band(ax: Axes, slow: tuple[list[float], list[float]], fast: tuple[list[float], list[float]], color: str) -> None:
    """The region between two curves that have rates of their own."""
    if len(slow[0]) < 2 or len(fast[0]) < 2:
        return
    xs = np.linspace(max(slow[0][0], fast[0][0]), min(slow[0][-1], fast[0][-1]), 120)
    low, high = (
        np.exp(np.interp(xs, rates, np.log(values))) for rates, values in (fast, slow)
    )  # straight on a log axis
    ax.fill_between(xs, np.minimum(low, high), np.maximum(low, high), color=color, alpha=0.22, linewidth=0)


def _rate_title(curves: Sequence[Curve], name: str, limit: float, plan: int | None, share: bool) -> str:
    words = axis_label(name).removesuffix(" (ms)")
    mine = next((curve for curve in curves if curve.replicas == plan), None)
    if mine is None:
        return f"{words} against the offered rate"
    rate = _crossing(mine.rates_per_s, mine.figures[name], limit, share)
    if rate is None:
        return f"{words}: {plan} hold all of these rates"
    return f"{words}: {plan} hold about {number(rate)} req/s" if rate else f"{words}: {plan} hold none of these rates"


def _crossing(rates: Sequence[float], values: Sequence[float | None], limit: float, share: bool) -> float | None:
    """The rate at which a curve first leaves its target, between two points by a straight line; None where it stays."""
    held: tuple[float, float] | None = None
    for rate, value in zip(rates, values, strict=True):
        if value is None or (value < limit if share else value > limit):
            if held is None:
                return 0.0
            part = 0.0 if value is None else (limit - held[1]) / (value - held[1])
            return held[0] + part * (rate - held[0])
        held = (rate, value)
    return None


def sensitivity(variants: Sequence[Variant], name: str, *, limit: float, base: float, ax: Axes | None = None) -> Axes:
    """A target's figure of the plan's fleet under each variant, beside what was assumed; those that break it orange."""
    ax = axes(ax)
    share = name.rpartition(".")[2] == "attainment"
    values = [next(figure for figure in one.figures if figure.name == name) for one in variants]
    known = [limit if figure.value is None else figure.value for figure in values]
    rows = np.arange(len(variants))
    for row, figure, value in zip(rows, values, known, strict=True):
        color = BLUE if figure.passes else ORANGE
        ax.plot([base, value], [row, row], color=color, linewidth=3, solid_capstyle="butt")
        ax.plot([value], [row], "o", color=color, markersize=4)
        text = "∞" if figure.value is None else percent(value) if share else duration(value)
        note(ax, text, (1.02, float(row)), color, offset=(0, -3), coords=("axes fraction", "data"))
    ax.axvline(base, color="#000000", linewidth=0.8)
    ax.axvline(limit, color=RED, linewidth=1.2, linestyle="--")
    ax.set_yticks(rows, [_folded(one.name) for one in variants])
    ax.set_ylim(len(variants) - 0.4, -0.9)
    low, high = min([*known, base, limit]), max([*known, base, limit])
    ax.set_xlim(max(0.0, low - 0.08 * (high - low)), high + 0.05 * (high - low))
    ax.set_xlabel(axis_label(name))
    ax.grid(visible=False, axis="y")
    broken = sum(not figure.passes for figure in values)
    text = f"{broken} of {len(variants)} changes break the target" if broken else "no change breaks the target"
    ax.set_title(f"{axis_label(name).removesuffix(' (ms)')}: {text}", loc="left")
    return ax


def _folded(name: str) -> str:
    """A long name in two lines, broken at a comma or colon, else at the middle space."""
    if len(name) <= 24:
        return name
    places = [place for place, sign in enumerate(name) if sign == " "]
    pause = next((place for place in places if name[place - 1] in ",:"), None)
    at = pause if pause is not None else min(places, key=lambda place: abs(place - len(name) / 2))
    return f"{name[:at]}\n{name[at + 1 :]}"


def tenant_service(records: Records, *, ax: Axes | None = None) -> Axes:
    """Tokens served to each tenant over time (prompt tokens once, two for one of output), a line a tenant.

    A request's prompt counts when its first token comes, its output evenly from then to its end.
    """
    ax = axes(ax)
    workload, end = records.workload, max(records.end_ns, 1)
    grid = np.linspace(0, end, min(POINTS, 400))
    final = []
    for number_, name in enumerate(workload.tenants):
        served = _served(records, workload.tenant == number_, grid)
        color = COLORS[number_ % len(COLORS)]
        ax.plot(grid / 1e9, served / 1e3, color=color, linewidth=1.6, linestyle=("-", "--", "-.", ":")[number_ % 4])
        note(ax, name, (end / 1e9, served[-1] / 1e3), color, offset=(4, -3))
        final.append(served[-1])
    ax.set_xlim(0, end / 1e9 * 1.12)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("time (s)")
    ax.set_ylabel("weighted tokens served (thousands)")
    index = jain(weighted_tokens(records))
    many = f"{len(workload.tenants)} tenants" if len(workload.tenants) > 1 else "one tenant"
    ax.set_title(f"{many}, Jain index {number(index)}" if index is not None else many, loc="left")
    return ax


def _served(records: Records, mine: NDArray[np.bool_], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted tokens of some requests by each instant of the grid."""
    requests = records.requests
    started = mine & (requests.first_token_ns != NEVER)
    first = requests.first_token_ns[started].astype(np.float64)
    last = np.where(requests.finished_ns == NEVER, records.end_ns, requests.finished_ns)[started].astype(np.float64)
    prompt = requests.prompt_tokens[started].astype(np.float64)
    output = 2.0 * requests.emitted_tokens[started]
    served = np.zeros(len(grid))
    for block in range(0, len(first), 4096):
        part = slice(block, block + 4096)
        stay = np.maximum(last[part] - first[part], 1.0)
        done = np.clip((grid[:, None] - first[part]) / stay, 0.0, 1.0)
        served += (done * output[part] + (grid[:, None] >= first[part]) * prompt[part]).sum(axis=1)
    return served


def measured_predicted(
    measured: Sequence[float] | NDArray[np.float64],
    predicted: Sequence[float] | NDArray[np.float64],
    *,
    unit: str = "ms",
    what: str = "",
    outside: Sequence[bool] | NDArray[np.bool_] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Predictions over measurements, one dot each, on equal log axes with the diagonal and a band of ±10 %.

    outside: which points lie outside the calibrated range; they are drawn hollow.  ValueError for values not above 0.
    """
    ax = axes(ax)
    x, y = np.asarray(measured, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if len(x) == 0 or len(x) != len(y) or not (np.all(x > 0) and np.all(y > 0)):
        raise ValueError("measured and predicted: must be equally many values above 0")
    far = np.zeros(len(x), bool) if outside is None else np.asarray(outside, dtype=bool)
    low, high = 0.8 * min(x.min(), y.min()), 1.25 * max(x.max(), y.max())
    line = np.array([low, high])
    ax.fill_between(line, 0.9 * line, 1.1 * line, color=GREY, alpha=0.35, linewidth=0)
    ax.plot(line, line, color="#000000", linewidth=0.8)
    ax.plot(x[~far], y[~far], "o", color=BLUE, markersize=3.5, alpha=0.8, markeredgewidth=0)
    ax.plot(x[far], y[far], "o", color=ORANGE, markersize=3.5, fillstyle="none")
    log_scale(ax, "x")
    log_scale(ax, "y")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_xlabel(f"measured {what} ({unit})".replace("  ", " "))
    ax.set_ylabel(f"predicted ({unit})")
    off = np.abs(y / x - 1)
    title = f"{what or 'prediction'}: off by {100 * off.mean():.1f} % on average, {100 * off.max():.0f} % at most"
    ax.set_title(title + (f"; {int(far.sum())} outside the calibrated range" if far.any() else ""), loc="left")
    return ax


def resource_words(name: str) -> str:
    """`kv` -> `KV memory`, `token_budget` -> `token budget`."""
    return {"kv": "KV memory"}.get(name, name.replace("_", " "))


def loads(load: Mapping[str, float], replicas: int, *, ax: Axes | None = None) -> Axes:
    """How much of the plan each resource's work takes at least, as a share of its replicas."""
    ax = axes(ax)
    names = sorted(load, key=lambda name: load[name])
    shares = [100 * load[name] / replicas for name in names]
    words = [resource_words(name) for name in names]
    ax.barh(words, shares, color=[GREY] * (len(names) - 1) + [BLUE], height=0.6)
    for row, share in enumerate(shares):
        note(ax, f"{share:.3g} %", (share, row), "#000000", offset=(4, -3))
    ax.axvline(100, color=RED, linewidth=1.2, linestyle="--")
    note(ax, "all there is", (100, 0.02), RED, offset=(-4, 0), coords=("data", "axes fraction"), ha="right")
    ax.set_xlim(0, max(115.0, 1.2 * max(shares)))
    ax.set_xlabel("of what the plan has (%), at perfect batching")
    ax.grid(visible=False, axis="y")
    ax.set_title(f"{words[-1]} takes the largest part, {shares[-1]:.3g} %", loc="left")
    return ax


def latency_cdfs(runs: Mapping[str, Records], metric: str = "ttft", *, ax: Axes | None = None) -> Axes:
    """The share of requests (ITL: of gaps) within a latency, a line a run, each named where lines are far apart."""
    from batchsim.report.plots import LABELS, _distribution

    ax = axes(ax)
    found = {name: _distribution(records, metric) for name, records in runs.items()}
    known = {name: parts for name, parts in found.items() if len(parts[0])}
    for place, (name, (values, shares, _)) in enumerate(known.items()):
        color, style = COLORS[place % len(COLORS)], ("-", "--", "-.", ":")[place % 4]
        ax.step(values, shares, where="post", color=color, linewidth=1.7, linestyle=style)
        height = 0.12 + 0.72 * (place + 0.5) / max(len(known), 1)
        at = values[min(int(np.searchsorted(shares, height)), len(values) - 1)]
        note(ax, name, (at, height), color, offset=(5, -3))
    ax.set_ylim(0, 1.02)
    ax.set_xlabel(f"{LABELS[metric]} (ms)")
    ax.set_ylabel("share of gaps" if metric == "itl" else "share of requests")
    if known:
        low = min(float(parts[0][0]) for parts in known.values())
        high = max(float(parts[0][-1]) for parts in known.values())
        if low > 0 and high > 20 * low:
            log_scale(ax, "x")
        middle = {name: parts[2][0.99] for name, parts in known.items()}
        least = min(middle, key=lambda name: middle[name])
        most = max(middle, key=lambda name: middle[name])
        text = f"p99 {LABELS[metric]} from {duration(middle[least])} ({least}) to {duration(middle[most])} ({most})"
        ax.set_title(text if len(known) > 1 else f"p99 {LABELS[metric]} {duration(middle[least])}", loc="left")
    return ax
