"""Requests of a study, changed: sped up, cut to a window, and the rate over time that says which window is busiest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchsim.metrics.latency import NS_PER_S
from batchsim.scenario.scenario import Scenario
from batchsim.workload.arrivals import Piecewise
from batchsim.workload.columns import Int64, Prefixes, Workload
from batchsim.workload.description import Drawn, Mix, TraceFile
from batchsim.workload.prefixes import taken

FAR_BELOW = 0.2
"""A slice whose busiest window has less than this share of the peak's rate is warned of."""


def faster(workload: Workload, factor: float) -> Workload:
    """The same requests in the same order, arriving `factor` times as fast."""
    return (
        workload
        if factor == 1
        else replace(workload, arrival_ns=np.rint(workload.arrival_ns / factor).astype(np.int64))
    )


def offered_rate_per_s(workload: Workload) -> float | None:
    """Requests a second over the arrivals' span; None where all come at once or clients send in a closed loop."""
    arrivals = workload.arrival_ns
    if not workload.open_loop or workload.clients is not None or len(arrivals) < 2:
        return None
    length = int(arrivals.max() - arrivals.min())
    return (len(arrivals) - 1) / (length / NS_PER_S) if length else None


def nominal_rate_per_s(scenario: Scenario, workload: Workload) -> float | None:
    """The rate that the scenario states, else the one that its requests have."""
    stated = getattr(getattr(scenario.workload, "arrivals", None), "rate_per_s", None)
    if stated is not None and np.isfinite(stated):
        return float(stated)
    return offered_rate_per_s(workload)


def rows(workload: Workload, kept: Int64) -> Workload:
    """Some requests of a workload, by number; a prefix of one that is left out stays a shared prefix under a number
    of its own."""
    return replace(
        workload,
        **{
            name: getattr(workload, name)[kept]
            for name in (
                "arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "priority", "tenant", "traffic_class",
                "session", "cancel_ns",
            )
        },
        ids=None if workload.ids is None else tuple(workload.ids[place] for place in kept.tolist()),
        prefixes=None if workload.prefixes is None else _prefixes(workload.prefixes, kept, len(workload)),
    )  # fmt: skip


def _prefixes(prefixes: Prefixes, kept: Int64, count: int) -> Prefixes:
    place = np.full(count, -1, np.int64)
    place[kept] = np.arange(len(kept))
    cut = taken(prefixes, kept)
    named = cut.segment < 0
    other = np.where(named, -cut.segment - 1, 0)
    outside = int(prefixes.segment.max(initial=-1)) + 1 + other
    moved = np.where(place[other] >= 0, -(place[other] + 1), outside)
    return Prefixes(cut.offset, np.where(named, moved, cut.segment), cut.tokens)


@dataclass(frozen=True, slots=True)
class Windows:
    """Traffic in windows of `window_s` from the start of the clock; the last may be shorter, or a little longer.

    requests, tokens: arrivals and their tokens, prompt and output.  busiest: the number of the window with the most
    work.  seconds: of each window.
    """

    window_s: float
    requests: Int64
    tokens: Int64
    seconds: np.ndarray[Any, np.dtype[np.float64]]
    busiest: int

    @property
    def rates_per_s(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Requests a second in each window."""
        return np.asarray(self.requests / self.seconds)

    @property
    def peak_per_s(self) -> float:
        """Requests a second in the busiest window."""
        return float(self.rates_per_s[self.busiest])

    @property
    def mean_per_s(self) -> float:
        """Requests a second over all windows."""
        return float(self.requests.sum() / self.seconds.sum())

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "window_s": self.window_s,
            "rate_per_s": self.rates_per_s.tolist(),
            "requests": self.requests.tolist(),
            "tokens": self.tokens.tolist(),
            "busiest": self.busiest,
            "peak_per_s": self.peak_per_s,
            "mean_per_s": self.mean_per_s,
            "peak_to_mean": self.peak_per_s / self.mean_per_s,
        }


def varies(scenario: Scenario) -> bool:
    """Whether the scenario's rate changes over time by design: a trace, or piecewise arrivals."""
    kind = getattr(getattr(scenario.workload, "arrivals", None), "kind", None)
    if isinstance(scenario.workload, TraceFile):
        return kind is None
    return isinstance(scenario.workload, Drawn | Mix) and kind in ("piecewise", "trace")


def default_window_s(span_s: float) -> float:
    """A twelfth of the span, from a minute to an hour."""
    return float(min(3600.0, max(60.0, span_s / 12)))


def windows(workload: Workload, window_s: float | None, token_work: tuple[float, float] = (0.0, 0.0)) -> Windows:
    """Traffic by window. token_work: work of one prompt token and one output token in any unit, to find the busiest;
    without, requests count alike."""
    arrivals = workload.arrival_ns
    span_s = max(int(arrivals.max()) / NS_PER_S, 1e-9)
    wide_s = min(window_s or default_window_s(span_s), span_s)
    count = max(1, math.ceil(span_s / wide_s - 0.05))  # a twentieth of a window joins the one before
    place = np.minimum((arrivals / (wide_s * NS_PER_S)).astype(np.int64), count - 1)
    seconds = np.full(count, wide_s)
    seconds[-1] = max(span_s - wide_s * (count - 1), 1e-9)
    work = token_work[0] * workload.prompt_tokens + token_work[1] * workload.output_tokens
    if not work.any():
        work = np.ones(len(workload))
    whole = seconds >= 0.5 * wide_s  # a short rest at the end would make a rate of few requests
    load = np.where(whole, np.bincount(place, work, minlength=count) / seconds, -1.0)
    tokens = np.bincount(place, workload.prompt_tokens + workload.output_tokens, minlength=count)
    return Windows(
        wide_s, np.bincount(place, minlength=count), tokens.astype(np.int64), seconds,
        int(np.argmax(load)),
    )  # fmt: skip


def window_of(workload: Workload, found: Windows) -> Workload:
    """The requests of the busiest window, moved to start at 0."""
    start = round(found.busiest * found.window_s * NS_PER_S)
    end = start + round(found.seconds[found.busiest] * NS_PER_S)
    last = found.busiest == len(found.requests) - 1
    arrivals = workload.arrival_ns
    kept = np.flatnonzero((arrivals >= start) & ((arrivals < end) | last))
    cut = rows(workload, kept)
    return replace(cut, arrival_ns=cut.arrival_ns - start)


def slice_warning(scenario: Scenario, workload: Workload, window_s: float | None) -> str | None:
    """A sentence where the scenario plays only a part of its traffic, and that part lies far below the whole's peak."""
    if not varies(scenario):
        return None
    whole = _whole(scenario)
    if whole is None or len(whole) <= len(workload):
        return None
    wide = window_s or default_window_s(float(whole.arrival_ns.max()) / NS_PER_S)
    played, peak = windows(workload, wide).peak_per_s, windows(whole, wide).peak_per_s
    if played >= FAR_BELOW * peak:
        return None
    return (
        f"the part of the traffic that is played peaks at {played:.3g} req/s, {played / peak:.0%} of the whole's "
        f"{peak:.3g}: a plan on it says nothing about the peak; leave out limit, requests or duration_s"
    )


def _whole(scenario: Scenario) -> Workload | None:
    """The traffic without its limit; None where there is none."""
    cut = [name for name in ("limit", "requests", "duration_s") if getattr(scenario.workload, name, None) is not None]
    if not cut:
        return None
    changes: dict[str, Any] = {f"workload.{name}": None for name in cut}
    arrivals = getattr(scenario.workload, "arrivals", None)
    if isinstance(arrivals, Piecewise):
        changes["workload.duration_s"] = sum(segment.duration_s for segment in arrivals.segments)
    from batchsim.study.work import drawn

    return drawn(scenario.replace(changes))
