"""The report of one run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from batchsim.report import plots, study_plots
from batchsim.report.comparison import dominant
from batchsim.report.console import count, duration, header, money, number, percent
from batchsim.report.document import Block, Facts, Figure, Page, Section, Table, Tile, Tone, cell
from batchsim.report.pages import common

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchsim.records import Records
    from batchsim.simulation import Run


def run_page(run: Run, *, command: str | None = None) -> Page:
    """What a run came to, for people who were not there. command: the line that does it again."""
    summary, records = run.summary, run.records
    targets = common.slo_of(summary["scenario"])
    answer, tone = _answer(summary, targets)
    cdfs = [
        Figure(partial(plots.latency_cdf, records, metric, slo_ms=targets.get(f"{metric}_ms")))
        for metric in ("ttft", "tpot")
    ]
    sections = [
        Section(
            "Latency",
            [
                common.latency_table(summary, targets),
                Figure(partial(plots.latency_cdf, records, "itl", slo_ms=targets.get("itl_ms"))),
                Figure(partial(plots.latency_cdf, records, "e2e", slo_ms=targets.get("e2e_ms"))),
            ],
        ),
        Section("What takes the time", _time_blocks(summary, records), lead=_sentence(dominant(summary))),
        *_parts(summary, records),
        common.provenance(
            summary["scenario"], summary["versions"], command=command, cost=run.resolved.cost.describe(),
            facts=_facts(run), python='import batchsim as bs\nbs.simulate(bs.load("scenario.yaml"))',
        ),
    ]  # fmt: skip
    return Page(
        title=str(summary["scenario"].get("name") or "run"),
        kicker=header(summary),
        answer=answer,
        tone=tone,
        tiles=_tiles(summary, targets),
        hero=cdfs if summary["completed"] else (),
        sections=sections if summary["completed"] else sections[-1:],
        warnings=list(summary["warnings"]),
        foot=f"Simulated with batchsim {summary['versions']['batchsim']} in {run.wall_s:.2f} s.",
    )


def _answer(summary: common.Values, targets: dict[str, float]) -> tuple[str, Tone]:
    if not summary["completed"]:
        return f"None of the {summary['submitted']:,} requests completed.", "bad"
    if summary["stable"] is False:
        offered, served = (number(summary[f"{name}_rate_per_s"]) for name in ("offered", "served"))
        told = f"{offered} requests a second are too many: {served} are served"
        return f"{told}, and the queue grows for as long as they come.", "bad"
    served = _served(summary)
    latencies = f"p99 TTFT {duration(summary['p99_ttft_ms'])}"
    if summary["p99_tpot_ms"] is not None:
        latencies += f", p99 TPOT {duration(summary['p99_tpot_ms'])}"
    attained = summary["slo_attainment"]
    if attained is None:
        return f"{served} with {latencies}.", "plain"
    tone: Tone = "good" if attained >= 0.99 else "warn" if attained >= 0.9 else "bad"
    within = f"{percent(attained)} within {common.targets_text(targets)}"
    return f"{served}, {within}: {latencies}.", tone


def _served(summary: common.Values) -> str:
    """How much came and was answered."""
    if summary["offered_rate_per_s"] is not None:
        return f"{number(summary['offered_rate_per_s'])} requests a second are offered and kept up with"
    done, sent = summary["completed"], summary["submitted"]
    if sent == 1:
        return "A single request is served"
    return f"{done:,} requests are served" if done == sent else f"{done:,} of {sent:,} requests are served"


def _tiles(summary: common.Values, targets: dict[str, float]) -> list[Tile]:
    tiles = []
    for label, key in (("TTFT p99", "ttft"), ("TPOT p99", "tpot")):
        value, limit = summary[f"p99_{key}_ms"], targets.get(f"{key}_ms")
        tone: Tone = "plain" if limit is None or value is None else "good" if value <= limit else "bad"
        note = f"target {duration(limit)}" if limit is not None else f"median {duration(summary[f'p50_{key}_ms'])}"
        tiles.append(Tile(label, duration(value), note, tone))
    if summary["request_goodput"] is not None:
        share = f"{percent(summary['slo_attainment'])} of requests"
        tiles.append(Tile("goodput", f"{number(summary['request_goodput'])} /s", share))
    tiles.append(
        Tile(
            "throughput",
            f"{number(summary['output_throughput'])} tok/s",
            f"{number(summary['request_throughput'])} requests/s",
        )
    )
    if summary["cost_per_million_output_tokens"] is not None:
        tiles.append(Tile("cost", money(summary["cost_per_million_output_tokens"]), "per million output tokens"))
    tiles.append(
        Tile("batch", number(summary["mean_running"]), f"running on average, {number(summary['mean_waiting'])} waiting")
    )
    return tiles


def _time_blocks(summary: common.Values, records: Records) -> list[Block]:
    waited, longest = percent(summary.get("queue_share")), duration(summary.get("longest_wait_ms"))
    kv = f"peak {percent(summary['kv_peak_fraction'])}, mean {percent(summary['kv_mean_fraction'])}"
    rows = [
        ("GPU busy", percent(summary["gpu_busy_fraction"])),
        ("queue", f"{waited} of the requests' time; longest wait {longest}"),
        ("KV cache", f"{kv} of {summary['kv_blocks_total']:,} blocks"),
        ("preemptions", f"{summary['preemptions']:,}; {summary['recomputed_tokens']:,} tokens computed again"),
    ]
    if summary["prefix_hit_tokens"]:
        rows.append(("prefix cache", f"{summary['prefix_hit_tokens']:,} prompt tokens were not computed"))
    if summary["padded_fraction"]:
        rows.append(("padding", f"{percent(summary['padded_fraction'])} of the computed tokens are for nobody"))
    shown = _busiest(records)
    where = f" on replica {shown}" if records.replicas > 1 else ""
    longer = " Who was evicted waited longer still." if summary["preemptions"] else ""
    return [
        Facts(rows),
        Figure(partial(plots.batch_size, records, shown), f"Requests running and waiting{where}."),
        Figure(
            partial(plots.itl_spikes, records, shown), f"A line is the gap that streams saw at a step{where}.{longer}"
        ),
        Figure(partial(plots.kv_occupancy, records, shown), f"Blocks in use{where}; ticks on top are evictions."),
        Figure(partial(_stretch, records), _stretch_caption(records)),
    ]


def _busiest(records: Records) -> int:
    """The replica that computed most tokens of answers: of a fleet, figures of one replica are of this one."""
    import numpy as np

    rows = records.iterations
    return int(np.argmax(np.bincount(rows.replica, rows.decode_seqs * rows.repeats, minlength=records.replicas)))


def _stretch(records: Records, ax: Axes) -> Axes:
    return plots.timeline(records, 0.0, _stretch_end(records), ax=ax)


def _stretch_end(records: Records) -> float | None:
    import numpy as np

    from batchsim.metrics.latency import submitted

    arrivals = np.sort(records.requests.arrival_ns[submitted(records.requests)])
    return (float(arrivals[plots.STRETCH] / 1e9) or None) if len(arrivals) > plots.STRETCH else None


def _stretch_caption(records: Records) -> str:
    end = _stretch_end(records)
    return f"Who ran when: the first {end:.3g} s of {records.end_ns / 1e9:,.0f}." if end else "Who ran when."


def _parts(summary: common.Values, records: Records) -> list[Section]:
    """Classes of traffic, tenants and groups of replicas, where there are several."""
    sections = []
    classes = summary.get("classes") or {}
    if len(classes) > 1:
        sections.append(Section("Classes of traffic", [_classes(classes)]))
    if len(records.workload.tenants) > 1:
        sections.append(Section("Tenants", [Figure(partial(study_plots.tenant_service, records))]))
    groups = summary.get("groups") or []
    if len(groups) > 1:
        sections.append(Section("Groups of replicas", [_groups(groups)]))
    return sections


def _classes(classes: dict[str, Any]) -> Table:
    rows = []
    for name, entry in classes.items():
        times = [common.time_cell(entry[key]) for key in ("p50_ttft_ms", "p99_ttft_ms", "p99_tpot_ms", "p99_e2el_ms")]
        done = cell(count(entry["completed"]), entry["completed"])
        rows.append([cell(name), done, *times, common.share_cell(entry["slo_attainment"])])
    columns = ["class", "completed", "TTFT p50", "TTFT p99", "TPOT p99", "E2E p99", "within targets"]
    if all(entry["slo_attainment"] is None for entry in classes.values()):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table(columns, rows)


def _groups(groups: list[dict[str, Any]]) -> Table:
    rows = [
        [
            cell(str(one["name"])), cell(str(one["gpu"])), cell(count(one["gpus"]), one["gpus"]),
            cell(count(one["completed"]), one["completed"]), common.share_cell(one["gpu_busy_fraction"]),
            common.share_cell(one["kv_peak_fraction"]),
        ]
        for one in groups
    ]  # fmt: skip
    return Table(("group", "GPU", "GPUs", "completed", "busy", "KV peak"), rows, stubs=2)


def _facts(run: Run) -> list[tuple[str, str]]:
    summary = run.summary
    facts = [
        (
            "requests",
            f"{summary['submitted']:,} submitted, {summary['completed']:,} completed, {summary['failed']:,} failed",
        )
    ]
    facts.append(("seed", str(summary["scenario"].get("seed", 0))))
    if summary["extrapolated"]:
        facts.append(("extrapolated", f"{percent(summary['extrapolated'])} of the steps, outside the calibrated range"))
    return facts


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
