"""The figures and computed tables of plan-azure-conversation.md: `python docs/how-to/azure_plan.py` writes them anew.

The table from the shape to the trace needs the trace file, in the folder that BATCHSIM_DATA names; without, it stays.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import batchsim as bs
from batchsim import catalog
from batchsim.report import plots, study_plots
from batchsim.report.console import duration
from batchsim.scenario import resolve
from batchsim.simulation import simulate
from batchsim.study import bounds, sensitivity
from batchsim.study.planning import Plan
from batchsim.study.sized import Sized
from batchsim.study.targets import goals_of
from batchsim.study.traffic import window_of, windows
from batchsim.study.work import drawn
from batchsim.workload.columns import Workload

HERE = Path(__file__).parent
PAGE = HERE / "plan-azure-conversation.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PRICES = {"h100-sxm": 2.0, "a100-80-sxm": 1.2, "l40s": 0.8}
"""Dollars an hour, invented: GPUs' list prices differ by a factor of three between sellers."""
COLORS = {"h100-sxm": plots.BLUE, "a100-80-sxm": plots.ORANGE, "l40s": plots.GREEN}
TPOT_MS = (10, 15, 20, 25, 30, 40, 50, 60)


def tail_error(gpu: str) -> float:
    """The 95th percentile of the cost model's relative error on held-out measurements."""
    profile = catalog.profile(gpu)
    assert profile is not None
    assert profile.p95_percent is not None
    return profile.p95_percent / 100


def base(tpot_ms: float = 15) -> bs.Scenario:
    """The scenario of the page: 20 requests a second of the trace's shape."""
    return bs.load("plan-conversations").replace({"slo.tpot_ms": tpot_ms})


def planned(tpot_ms: float) -> Plan:
    """The plan of the three GPUs at a target."""
    return bs.plan(base(tpot_ms), vary={"gpu": list(PRICES)}, gpu_hours=PRICES)


def costs() -> Figure:
    """Dollars an hour of the smallest fleet of each GPU against the TPOT target."""
    plans = {tpot_ms: planned(tpot_ms) for tpot_ms in TPOT_MS}
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    ax = plots.axes(figure.add_subplot())
    for place, gpu in enumerate(PRICES):
        known = [(t, found.options[place]) for t, found in plans.items() if found.options[place].status == "plan"]
        targets, fleets = [t for t, _ in known], [option.cost_per_hour or 0.0 for _, option in known]
        ax.plot(targets, fleets, "o-", color=COLORS[gpu], linewidth=1.8, markersize=4)
        for (target, option), cost in zip(known, fleets, strict=True):
            plots.note(ax, f"{option.replicas}", (target, cost), COLORS[gpu], offset=(0, 5))
        plots.note(ax, gpu, (targets[-1], fleets[-1]), COLORS[gpu], offset=(8, -3))
    ax.set_yscale("log")
    ax.set_yticks([2, 5, 10, 20, 50], ["$2", "$5", "$10", "$20", "$50"])
    ax.minorticks_off()
    ax.set_xlim(8, 72)
    ax.set_xlabel("target: p99 TPOT at most (ms); p99 TTFT at most 500 ms throughout")
    ax.set_ylabel("smallest fleet, $ an hour (numbers: replicas)")
    ax.set_title("The target for time per token decides the GPU: 20 req/s of conversations", loc="left")
    return figure


def rates() -> Figure:
    """p99 TPOT of one, two and three H100 against the offered rate, with the doubt about step times as a band."""
    found = bs.plan(base()).best
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    ax = figure.add_subplot()
    study_plots.rate_curves(
        sensitivity.curves(found), "p99_tpot_ms", limit=15, today_per_s=20, plan=found.replicas,
        error=tail_error("h100-sxm"), ax=ax,
    )  # fmt: skip
    error = 100 * tail_error("h100-sxm")
    ax.set_title(f"One, two and three h100-sxm; bands: every step {error:g} % slower or faster", loc="left")
    return figure


def shape_table() -> str:
    """The requests that the scenario draws, as `batchsim trace` tells the trace's."""
    work = drawn(base())
    rows = []
    for name, lengths in (("prompt", work.prompt_tokens), ("output", work.output_tokens)):
        figures = [lengths.mean(), *np.percentile(lengths, (50, 90, 99)), lengths.max()]
        rows.append(f"| {name} | " + " | ".join(f"{round(float(value)):,}" for value in figures) + " |\n")
    return "| drawn, tokens | mean | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|\n" + "".join(rows)


def doubt_table() -> str:
    """Replicas of each GPU were its steps slower or faster by the cost model's error, mean and 95th percentile."""
    lines = [
        "| GPU | p99 TPOT at most | plan | steps off by | if slower | if faster |\n",
        "|---|---|---|---|---|---|\n",
    ]
    for gpu, tpot_ms in (("h100-sxm", 15), ("a100-80-sxm", 15), *((gpu, 50) for gpu in PRICES)):
        found = bs.plan(base(tpot_ms).replace({"gpu": gpu})).best
        mean, _ = sensitivity.error_of(found)
        for error in (mean, tail_error(gpu)):
            slow, fast = (_needed(found, tpot_ms, factor) for factor in (1 + error, 1 - error))
            lines.append(f"| {gpu} | {tpot_ms} ms | {found.replicas} | {100 * error:.3g} % | {slow} | {fast} |\n")
    return "".join(lines)


def _needed(found: Sized, tpot_ms: float, stretch: float) -> str:
    """Replicas were each step `stretch` times as long: the same schedule on a clock that much slower."""
    rate = float(found.scenario.given["workload"]["arrivals"]["rate_per_s"])
    stretched = found.scenario.replace({
        "workload.arrivals.rate_per_s": rate * stretch, "slo.tpot_ms": tpot_ms / stretch, "slo.ttft_ms": 500 / stretch,
    })  # fmt: skip
    answer = bs.plan(stretched)
    return f"{answer.replicas}" if answer.replicas else answer.status.replace("_", " ")


def between_table() -> str:
    """p99 TPOT of two h100-sxm at 20 req/s, from the drawn shape to the trace's busiest window, a change a line."""
    shape = base().replace({"replicas": 2})
    trace, window = busiest()
    lengths = {
        f"workload.{name}": {"kind": "lognormal", "mean": float(column.mean()), "p99": float(np.percentile(column, 99))}
        for name, column in (("prompt_tokens", window.prompt_tokens), ("output_tokens", window.output_tokens))
    }
    instants = np.random.default_rng(0).integers(0, int(window.arrival_ns.max()), len(window))
    runs = {
        "the drawn shape": bs.simulate(shape),
        "mean and p99 of the window's lengths": bs.simulate(shape.replace(lengths)),
        "the window's own lengths, at random instants": simulate(
            trace, workload=replace(window, arrival_ns=np.sort(instants))
        ),
        "the window itself": simulate(trace, workload=window),
    }
    rows = [f"| {name} | {run.summary['p99_tpot_ms']:.1f} ms |\n" for name, run in runs.items()]
    return "| requests | p99 TPOT of two h100-sxm |\n|---|---|\n" + "".join(rows)


def floor_table() -> str:
    """p99 TPOT of each GPU when a request has it to itself: no number of replicas goes below."""
    lines = ["| GPU | p99 TPOT on an idle replica |\n", "|---|---|\n"]
    for gpu in PRICES:
        case = base().replace({"gpu": gpu})
        (floor,) = (one for one in bounds.floor(resolve(case), drawn(case), goals_of(case)) if "tpot" in one.name)
        lines.append(f"| {gpu} | {duration(floor.value)} |\n")
    return "".join(lines)


def sensitivity_table() -> str:
    """The plan of two h100-sxm under other traffic and other step times, as its report has it."""
    lines = ["| change | p99 TTFT | p99 TPOT | replicas needed |\n", "|---|---|---|---|\n"]
    for one in sensitivity.variants(bs.plan(base()).best):
        figures = " | ".join(duration(figure.value) for figure in one.figures)
        lines.append(f"| {one.name} | {figures} | {one.needs or 'more than tried'} |\n")
    return "".join(lines)


def busiest() -> tuple[bs.Scenario, Workload]:
    """The trace at the page's speed, and the requests of its busiest window."""
    path = Path(os.environ["BATCHSIM_DATA"], "data", "traces", "AzureLLMInferenceTrace_conv.csv")
    trace = base().replace({"workload": {"kind": "trace", "path": str(path), "format": "azure", "speedup": 2.74}})
    whole = drawn(trace)
    return trace.replace({"replicas": 2}), window_of(whole, windows(whole, None, (1.0, 3.0)))


def window_table() -> str:
    """Lengths of the busiest window."""
    _, window = busiest()
    lines = ["| window, tokens | mean | p50 | p90 | p99 |\n", "|---|---|---|---|---|\n"]
    for name, lengths in (("prompt", window.prompt_tokens), ("output", window.output_tokens)):
        figures = [lengths.mean(), *np.percentile(lengths, (50, 90, 99))]
        lines.append(f"| {name} | " + " | ".join(f"{round(float(value)):,}" for value in figures) + " |\n")
    return "".join(lines)


TABLES = {
    "shape": shape_table, "doubt": doubt_table, "between": between_table, "floor": floor_table,
    "sensitivity": sensitivity_table, "window": window_table,
}  # fmt: skip
OF_THE_TRACE = ("between", "window")


def main() -> None:
    """Figures and tables, written beside this file."""
    for name, figure in (("azure-costs", costs()), ("azure-rates", rates())):
        figure.savefig(HERE / "images" / f"{name}.png", dpi=100)
    text = PAGE.read_text(encoding="utf-8")
    known = [name for name in TABLES if name not in OF_THE_TRACE or os.environ.get("BATCHSIM_DATA")]
    PAGE.write_text(
        BLOCK.sub(lambda part: part[1] + TABLES[part[2]]() + part[4] if part[2] in known else part[0], text),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
