"""The report of several runs side by side."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from batchsim.report.comparison import ROWS, best, dominant
from batchsim.report.console import _hardware, _traffic, duration, number, percent
from batchsim.report.document import Block, Facts, Figure, Page, Section, Table, Tile, Tone, cell
from batchsim.report.pages import common

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchsim.study.comparing import Comparison


def compare_page(result: Comparison, *, command: str | None = None) -> Page:
    """Which of several runs is best at what, and what costs each of them most."""
    whole = result.to_dict()
    runs = whole["runs"]
    first = next(iter(runs.values()))
    answer, tone = _answer(runs)
    figures = [Figure(partial(_cdf, result, metric)) for metric in ("ttft", "tpot", "e2e", "itl")]
    return Page(
        title=f"{first['scenario'].get('name') or 'comparison'}: {' · '.join(runs)}",
        kicker=_kicker(first) if whole["same_requests"] else f"{len(runs)} scenarios",
        answer=answer,
        tone=tone,
        tiles=[_tile(name, summary) for name, summary in runs.items()],
        hero=figures[:2],
        sections=[
            Section(
                "Side by side",
                [_table(runs)],
                lead="The same requests through each of them." if whole["same_requests"] else "",
            ),
            Section("What costs each of them most", [Facts([(name, dominant(one)) for name, one in runs.items()])]),
            Section("Where the tails are", figures[2:]),
            _provenance(whole, result, command),
        ],
        warnings=whole["warnings"],
        foot=f"Simulated with batchsim {whole['versions']['batchsim']}.",
    )


def _kicker(summary: common.Values) -> str:
    return " · ".join(part for part in (_hardware(summary), _traffic(summary)) if part)


def _cdf(result: Comparison, metric: str, ax: Axes) -> Axes:
    from batchsim.report import study_plots

    return study_plots.latency_cdfs({name: run.records for name, run in result.items()}, metric, ax=ax)


def _answer(runs: dict[str, Any]) -> tuple[str, Tone]:
    """The best by goodput where there are targets, else by mean E2E, against the others."""
    judged = all(one["request_goodput"] is not None for one in runs.values())
    known = {name: one for name, one in runs.items() if one["completed"]}
    if not known:
        return "Nothing completed in any run.", "bad"

    def key(name: str) -> tuple[float, float]:
        good = runs[name]["request_goodput"] if judged else 0.0
        return (-round(good, 3), runs[name]["mean_e2el_ms"])

    order = sorted(known, key=key)
    top, rest = order[0], order[1:]
    shares = [one["slo_attainment"] or 0.0 for one in known.values()]
    if judged and len(known) > 1 and max(shares) - min(shares) < 0.005 and max(shares) > 0.9:
        top = min(known, key=lambda name: runs[name]["mean_e2el_ms"])
        said = [f"{name} {duration(runs[name]['mean_e2el_ms'])}" for name in known if name != top]
        text = f"All serve {percent(min(shares))} or more of the requests within their targets; {top} answers fastest, "
        text += f"in {duration(runs[top]['mean_e2el_ms'])} on average"
    elif judged:
        said = [f"{name} {percent(runs[name]['slo_attainment'])}" for name in rest]
        text = f"{top} serves {percent(runs[top]['slo_attainment'])} of the requests within their targets"
    else:
        said = [f"{name} {duration(runs[name]['mean_e2el_ms'])}" for name in rest]
        text = f"{top} answers fastest, in {duration(runs[top]['mean_e2el_ms'])} on average"
    text += f", {', '.join(said)}" if said else ""
    growing = [name for name, one in runs.items() if one["stable"] is False]
    if growing:
        text += f". The queue grows without end under {', '.join(growing)}"
    return f"{text}.", "plain"


def _tile(name: str, summary: common.Values) -> Tile:
    note = f"p99 TTFT; TPOT {duration(summary['p99_tpot_ms'])}, {number(summary['output_throughput'])} tok/s"
    tone: Tone = "bad" if summary["stable"] is False else "plain"
    return Tile(name, duration(summary["p99_ttft_ms"]), note, tone)


def _table(runs: dict[str, Any]) -> Table:
    rows = []
    for row in ROWS:
        values = [one.get(row.key) for one in runs.values()]
        if all(value is None or (row.better and value == 0) for value in values):
            continue  # nothing was preempted anywhere: the row says nothing
        marks = best(values, row.better)
        rows.append([
            cell(row.label),
            *(cell(row.form(value), value, mark=mark) for value, mark in zip(values, marks, strict=True)),
        ])  # fmt: skip
    return Table(("★ best of the row", *runs), rows)


def _provenance(whole: dict[str, Any], result: Comparison, command: str | None) -> Section:
    first = next(iter(result.values()))
    scenarios = {name: one["scenario"] for name, one in whole["runs"].items()}
    same = "the same for all runs" if whole["same_requests"] else "of each run its own"
    section = common.provenance(
        first.summary["scenario"], whole["versions"], command=command, cost=first.resolved.cost.describe(),
        facts=[
            ("requests", f"{first.summary['submitted']:,}, {same}"),
            ("seed", str(first.summary["scenario"].get("seed", 0))),
        ],
        python='import batchsim as bs\nbs.compare(bs.load("scenario.yaml"), ["static", "vllm"])',
    )  # fmt: skip
    blocks: list[Block] = list(section.blocks[:-1])
    from batchsim.report.document import Code

    for name, scenario in scenarios.items():
        blocks.append(Code(common.yaml_text(scenario), f"{name}: the scenario as run", folded=True))
    return Section(section.title, blocks)
