"""Figures of studies, each a method that returns its matplotlib Axes, yours to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim.report import curve_plots, plots, study_plots
from batchsim.report.study_plots import axis_label
from batchsim.simulation import Run
from batchsim.study import curves, grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from batchsim.study.planning import Plan
    from batchsim.study.sweeping import Sweep


class SweepPlots:
    """Curves of a sweep: one line a combination of the other swept keys, a band for the interval over seeds."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep

    def latency(
        self, metric: str = "ttft", *, against: str = "offered", window: bool = False, ax: Axes | None = None
    ) -> Axes:
        """p50, p95 and p99 of a latency (ttft, tpot, itl, e2el) against the offered or served rate, or the swept key.

        window: of the named part of the runs instead of the whole runs. The target of the scenario is a line.
        """
        slo = self._sweep.scenario.slo
        limit = None if slo is None else slo.targets_ms().get("e2e" if metric == "e2el" else metric)
        return curve_plots.latency(self._lines(), self._x(against), metric, window=window, target_ms=limit, ax=ax)

    def latency_throughput(self, column: str = "p99_e2el_ms", *, ax: Axes | None = None) -> Axes:
        """A latency against the served rate, the knee marked."""
        lines = self._lines()
        knees = {name: curves.knee(line) for name, line in lines.items()}
        return curve_plots.latency_throughput(lines, column, knees=knees, ax=ax)

    def goodput(self, *, ax: Axes | None = None) -> Axes:
        """Served rate and goodput against the offered rate; of a single line each target alone too."""
        return curve_plots.goodput(self._lines(), self._x("offered"), ax=ax)

    def kv(self, *, ax: Axes | None = None) -> Axes:
        """KV blocks in use, mean and peak, of the blocks there are."""
        return curve_plots.kv_occupancy(self._lines(), self._x("offered"), ax=ax)

    def figure(self) -> Figure:
        """curves.png: three latencies, latency against throughput, goodput, KV cache."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(15, 8.4), layout="constrained")
        grid_of_axes = figure.subplots(2, 3).ravel()
        for ax, metric in zip(grid_of_axes, ("ttft", "tpot", "e2el"), strict=False):
            self.latency(metric, ax=ax)
        self.latency_throughput(ax=grid_of_axes[3])
        self.goodput(ax=grid_of_axes[4])
        self.kv(ax=grid_of_axes[5])
        for ax in grid_of_axes:
            ax.title.set_fontsize(10)
        note = curves.note(len(self._sweep.seeds), self._sweep.interval)
        figure.suptitle(f"{self._sweep.scenario.settings.name} · interval over seeds: {note}", fontsize=10)
        return figure

    def _lines(self) -> dict[str, list[Any]]:
        key = self._sweep.x_key
        if key is None:
            raise ValueError("no swept key is a number: there is no curve to draw; see table()")
        lines = curves.lines(self._sweep.entries, self._sweep.keys, key)
        others = [name for name in self._sweep.keys if name != key]
        if len(others) != 1:
            return lines
        return {str(line[0][others[0]]): line for line in lines.values()}  # one key: its value says it all

    def _x(self, against: str) -> str:
        """The column for the x axis: the rates where the rate is what was swept, else the swept key itself."""
        if against not in ("offered", "served"):
            raise ValueError(f"against {against!r}: must be offered or served")
        if against == "served":
            return "request_throughput"
        return str(self._sweep.x_key)


class PlanPlots:
    """Figures of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def sizes(self, target: str | None = None, *, ax: Axes | None = None) -> Axes:
        """A target's figure at every size tried, one dot a seed, with its limit."""
        ax = plots.axes(ax)
        entries = self._plan.to_dict()["evidence"]
        names = list(entries[0]["targets"]) if entries else []
        name = target or (names[0] if names else "")
        if name not in names:
            raise ValueError(f"target {name!r}: must be one of {', '.join(names) or 'none: no size was tried'}")
        for entry in entries:
            values = [value for value in entry["targets"][name]["per_seed"] if value is not None]
            color = plots.BLUE if entry["passes"] else plots.ORANGE
            ax.plot([entry["replicas"]] * len(values), values, "o", color=color)
        limit = entries[0]["targets"][name]["limit"]
        ax.axhline(limit, color=plots.RED, linewidth=1.2, linestyle="--")
        plots.note(ax, f"limit {limit:g}", (0.02, limit), plots.RED, offset=(0, 3), coords=("axes fraction", "data"))
        ax.set_xlabel("replicas")
        ax.set_ylabel(axis_label(name))
        ax.set_xticks(sorted({entry["replicas"] for entry in entries}))
        found = self._plan.replicas
        ax.set_title(
            f"{found} replicas meet {axis_label(name)}" if found else f"no size tried meets {axis_label(name)}",
            loc="left",
        )
        _log_where_wide(ax)
        return ax

    def pareto(self, target: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Cost an hour (GPUs without a price) against a target's figure, one dot an option, the front joined."""
        ax = plots.axes(ax)
        entries = [entry for entry in self._plan.to_dict().get("options", []) if entry["status"] == "plan"]
        if not entries:
            raise ValueError("no option has a plan: there is nothing to draw")
        name = target or next(iter(entries[0]["targets"]))
        priced = all(entry["cost_per_hour"] is not None for entry in entries)
        at = [
            (entry["cost_per_hour" if priced else "gpus"], entry["targets"][name]["worst"], entry) for entry in entries
        ]
        for cost, value, entry in at:
            ax.plot([cost], [value], "o", color=plots.BLUE if entry["pareto"] else plots.GREY)
            plots.note(
                ax,
                grid.label(entry["point"]),
                (cost, value),
                plots.BLUE if entry["pareto"] else "#777777",
                offset=(5, 4),
            )
        front = sorted((cost, value) for cost, value, entry in at if entry["pareto"])
        ax.plot([cost for cost, _ in front], [value for _, value in front], color=plots.BLUE, linewidth=1, zorder=0)
        ax.set_xlabel("cost an hour ($)" if priced else "GPUs")
        ax.set_ylabel(axis_label(name))
        ax.set_title(f"{len(front)} of {len(at)} options are not beaten in cost and latency", loc="left")
        return ax

    def traffic(self, *, ax: Axes | None = None) -> Axes:
        """Requests a second by window, the busiest marked; ValueError where the rate does not vary."""
        seen = self._plan.to_dict()["traffic"]
        if seen is None:
            raise ValueError("the rate does not vary: there are no windows to draw")
        ax = plots.axes(ax)
        starts = [place * seen["window_s"] for place in range(len(seen["rate_per_s"]))]
        hours = [start / 3600 for start in starts]
        colors = [plots.ORANGE if place == seen["busiest"] else plots.BLUE for place in range(len(starts))]
        ax.bar(hours, seen["rate_per_s"], width=0.95 * seen["window_s"] / 3600, align="edge", color=colors)
        ax.axhline(seen["mean_per_s"], color=plots.GREY, linestyle="--", linewidth=1)
        ax.set_xlabel("time (h)")
        ax.set_ylabel("requests/s")
        ax.set_title(f"the busiest window has {seen['peak_to_mean']:.2f} times the mean rate", loc="left")
        return ax

    def figure(self) -> Figure:
        """plan.png: every target by size, then the options or the traffic where there are any."""
        from matplotlib.figure import Figure

        whole = self._plan.to_dict()
        names = list(whole["evidence"][0]["targets"])
        options = [entry for entry in whole.get("options", []) if entry["status"] == "plan"]
        count = len(names) + bool(options) + (whole["traffic"] is not None)
        figure = Figure(figsize=(5.2 * count, 4.2), layout="constrained")
        places = list(figure.subplots(1, count, squeeze=False)[0])
        for name in names:
            self.sizes(name, ax=places.pop(0))
        if options:
            self.pareto(ax=places.pop(0))
        if whole["traffic"] is not None:
            self.traffic(ax=places.pop(0))
        return figure


class ComparePlots:
    """Figures of several runs together."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self._runs = runs

    def latency_cdf(self, metric: str = "ttft", *, ax: Axes | None = None) -> Axes:
        """The distribution of a latency (ttft, tpot, itl, e2e), one line a run."""
        return study_plots.latency_cdfs({name: run.records for name, run in self._runs.items()}, metric, ax=ax)

    def bars(self, key: str = "p99_ttft_ms", *, ax: Axes | None = None) -> Axes:
        """One figure of the summary, one bar a run; undefined ones are left empty."""
        ax = plots.axes(ax)
        names = list(self._runs)
        values = [run.summary.get(key) for run in self._runs.values()]
        ax.barh(names, [0.0 if value is None else value for value in values], color=plots.BLUE)
        ax.invert_yaxis()
        ax.set_xlabel(key.replace("_", " "))
        known = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        ax.set_title(
            f"{key}: least for {min(known, key=lambda name: known[name])}" if known else f"{key}: undefined", loc="left"
        )
        return ax


def _log_where_wide(ax: Axes) -> None:
    """A log axis where values span more than a factor of 20 and none is 0."""
    data = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    values = np.concatenate(data) if data else np.empty(0)
    if len(values) and values.min() > 0 and values.max() > 20 * values.min():
        plots.log_scale(ax, "y")
