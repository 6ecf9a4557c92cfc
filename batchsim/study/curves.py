"""Rows of runs -> curves: means over seeds with their intervals, the knee, and which points keep up.

An interval is Student's t (or a bootstrap) over independent seeds. One seed has none, and few seeds are said to be few.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from batchsim.metrics.statistics import Interval, bootstrap_interval, t_interval
from batchsim.rng import stream
from batchsim.study.grid import Point
from batchsim.study.work import UNFIT, Row

FEW_SEEDS = 5
"""Below this an interval is computed and called one from few samples."""
RATE = "workload.arrivals.rate_per_s"
LATENCIES = tuple(f"{q}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for q in ("mean", "p50", "p95", "p99"))
METRICS = (
    "offered_rate_per_s", "served_rate_per_s", "request_throughput", "output_throughput", "total_token_throughput",
    "request_goodput", "slo_attainment", *LATENCIES, "gpu_busy_fraction", "mean_running", "mean_waiting",
    "kv_mean_fraction", "kv_peak_fraction", "preemptions", "cost_per_million_output_tokens",
    "window.request_throughput", "window.output_throughput", *(f"window.{name}" for name in LATENCIES),
)  # fmt: skip
"""The columns of a row that become curves, where they are defined."""


def curve(rows: Sequence[Row], keys: Sequence[str], method: str = "t") -> list[Row]:
    """One entry a combination of the swept keys, in the order of the rows: for each metric its mean over seeds,
    `_low` and `_high`.

    A metric that is undefined for one seed is undefined: the mean of the others would be that of the survivors.
    method: t or bootstrap; ValueError for another.
    """
    if method not in ("t", "bootstrap"):
        raise ValueError(f"interval method {method!r}: must be t or bootstrap")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(json.dumps([row[key] for key in keys]), []).append(row)
    names = [name for name in (*METRICS, *_by_target(rows)) if any(row.get(name) is not None for row in rows)]
    return [_entry(group, keys, names, method, place) for place, group in groups.items()]


def _by_target(rows: Sequence[Row]) -> list[str]:
    names = dict.fromkeys(key for row in rows for key in row if key.startswith("slo_attainment."))
    return [name for key in names for name in (key, key.replace("slo_attainment.", "goodput."))]


def _entry(group: Sequence[Row], keys: Sequence[str], names: Sequence[str], method: str, place: str) -> Row:
    entry: Row = {key: group[0][key] for key in keys}
    entry["seeds"] = len(group)
    entry["interval"] = note(len(group), method)
    stable = [row.get("stable") for row in group]
    entry["stable"] = None if None in stable else all(stable)
    for name in names:
        values = [_value(row, name) for row in group]
        if any(value is None for value in values):
            entry |= {name: None, f"{name}_low": None, f"{name}_high": None}
            continue
        found = _interval(np.array(values, dtype=np.float64), method, f"{place}{name}")
        entry |= {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
    if any(row.get(UNFIT) for row in group):
        entry[UNFIT] = next(row[UNFIT] for row in group if row.get(UNFIT))
    return entry


def _value(row: Row, name: str) -> Any:
    """A metric of a row; `goodput.X`: requests a second that meet target X alone."""
    if not name.startswith("goodput."):
        return row.get(name)
    share, seconds = row.get(name.replace("goodput.", "slo_attainment.")), row.get("duration")
    return None if share is None or not seconds else share * row["submitted"] / seconds


def _interval(values: np.ndarray[Any, np.dtype[np.float64]], method: str, name: str) -> Interval:
    if method == "t":
        return t_interval(values)
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
    return bootstrap_interval(values, stream(seed, "study", "bootstrap"))


def note(seeds: int, method: str) -> str:
    """What an interval over so many seeds is worth."""
    if seeds < 2:
        return "none: one seed"
    name = "95 % t" if method == "t" else "95 % bootstrap"
    return f"{name}, few samples ({seeds} seeds)" if seeds < FEW_SEEDS else name


def lines(entries: Sequence[Row], keys: Sequence[str], x_key: str) -> dict[str, list[Row]]:
    """The entries of a curve by the values of the swept keys other than `x_key`, each ordered by `x_key`."""
    from batchsim.study.grid import label

    others = [key for key in keys if key != x_key]
    found: dict[str, list[Row]] = {}
    for entry in entries:
        found.setdefault(label({key: entry[key] for key in others}), []).append(entry)
    return {name: sorted(line, key=lambda entry: entry[x_key]) for name, line in found.items()}


def x_key_of(points: Sequence[Point]) -> str | None:
    """The swept key to draw along: the rate, else the first whose values are all numbers; None without."""
    if not points:
        return None
    keys = list(points[0])
    if RATE in keys:
        return RATE
    numeric = [key for key in keys if all(_is_number(point[key]) for point in points)]
    return numeric[0] if numeric else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def knee(line: Sequence[Mapping[str, Any]], latency: str = "mean_e2el_ms") -> Mapping[str, Any] | None:
    """The entry of a line at which served rate over latency is largest (Kleinrock's power): beyond it, latency grows
    faster than throughput.

    None with fewer than three defined points, or where the largest stands at an end: the sweep does not show the knee.
    """
    known = [entry for entry in line if entry.get("request_throughput") and entry.get(latency)]
    if len(known) < 3:
        return None
    power = [entry["request_throughput"] / entry[latency] for entry in known]
    best = int(np.argmax(power))
    return known[best] if 0 < best < len(known) - 1 else None
