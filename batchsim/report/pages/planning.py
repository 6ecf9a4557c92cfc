"""The capacity report: the answer first, then what binds, headroom, sensitivity, alternatives, and what it rests on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from batchsim.report import study_plots, study_text
from batchsim.report.console import ABSENT, duration, money, number, percent
from batchsim.report.document import Block, Cell, Facts, Figure, Page, Prose, Section, Table, Tile, Tone, cell
from batchsim.report.pages import common

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchsim.study.planning import Plan
    from batchsim.study.sensitivity import Curve, Variant

TONES: dict[str, Tone] = {"plan": "good", "over_max_replicas": "bad", "infeasible": "bad", "does_not_fit": "bad"}
Whole = dict[str, Any]
NEVER = 1e18
"""Sorts after every latency."""


def plan_page(found: Plan, *, command: str | None = None) -> Page:
    """The report of a plan. It runs simulations of its own: rates and sizes around the answer, and other traffic."""
    from batchsim.study import sensitivity

    whole = found.to_dict()
    curves, variants = sensitivity.curves(found.best), sensitivity.variants(found.best)
    error, known = sensitivity.error_of(found.best) if found.best.fleet is not None else (0.0, False)
    sections = [
        sizes(whole),
        _binds(whole),
        _headroom(whole, found),
        _sensitivity(whole, variants, error, known),
        alternatives(whole, found),
        _provenance(whole, found, command),
    ]
    name = whole["scenario"].get("name") or "plan"
    return Page(
        title=f"Capacity plan: {name}",
        kicker=_kicker(whole),
        answer=_answer(whole),
        tone=TONES[whole["status"]],
        tiles=_tiles(whole),
        hero=_hero(whole, curves, error),
        sections=[section for section in sections if section is not None],
        warnings=whole["warnings"],
        foot=f"Planned with batchsim {whole['versions']['batchsim']} in {found.wall_s:.1f} s.",
    )


def _label(name: str) -> str:
    """`p99_ttft_ms` -> `p99 TTFT`."""
    return study_plots.axis_label(name).removesuffix(" (ms)")


def _asked(name: str, target: Whole) -> str:
    """`≤ 500 ms`."""
    return f"{study_text._sign(name)} {study_text._limit(name, target)}"


def _text(name: str, value: float | None) -> str:
    return percent(value) if study_text._is_share(name) else "∞" if value is None else duration(value)


def _answer(whole: Whole) -> str:
    """The terminal's answer as a sentence, with the targets' names as people say them."""
    text = study_text.answer(whole)
    for name in whole["floor"] or {}:
        text = text.replace(name, _label(name))
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", ")")) else f"{text}."


def _kicker(whole: Whole) -> str:
    scenario = whole["scenario"]
    scheduler = scenario.get("scheduler") or {}
    model = scenario.get("model")
    named = model if isinstance(model, str) else (model or {}).get("name", "inline")
    rate = "" if whole["rate_per_s"] is None else f" · {number(whole['rate_per_s'])} requests a second"
    return f"{named} on {study_text._hardware(whole)} · {scheduler.get('kind', '')}{rate} · {_targets(whole)}"


def _targets(whole: Whole) -> str:
    targets = whole["targets"] or whole["floor"] or {}
    said = [f"{_label(name)} {_asked(name, target)}" for name, target in targets.items()]
    return ", ".join(said) or common.targets_text(common.slo_of(whole["scenario"]))


def _hero(whole: Whole, curves: list[Curve], error: float) -> list[Figure]:
    """Latency against the offered rate, a figure a target."""
    if not curves:
        return []
    caption = (
        f"One line a number of replicas; the band is an error of ±{100 * error:.3g} % of every step's time. "
        "First seed; the verdicts are of all seeds."
    )
    return [
        Figure(
            partial(
                study_plots.rate_curves, curves, name, limit=target["limit"], today_per_s=whole["rate_per_s"],
                plan=whole["replicas"], error=error,
            ),
            caption,
        )
        for name, target in whole["targets"].items()
    ]  # fmt: skip


def _tiles(whole: Whole) -> list[Tile]:
    tiles = []
    if whole["replicas"] is not None:
        gpus = f"{whole['gpus']:,} GPUs" if whole["gpus"] != whole["replicas"] else study_text._hardware(whole)
        tiles.append(Tile("replicas", f"{whole['replicas']:,}", gpus, "good"))
    for name, target in (whole["targets"] or {}).items():
        value = study_text._worst(name, target)
        text = _text(name, value)
        tone: Tone = "bad" if study_text._misses(name, target) else "good"
        label = _label(name)
        tiles.append(Tile(label, text, f"target {_asked(name, target)}, worst seed", tone))
    if whole["cost_per_hour"] is not None:
        each = f"{money(whole['cost_per_million_output_tokens'])} per million output tokens"
        tiles.append(Tile("cost", f"{money(whole['cost_per_hour'])}/h", each))
    if whole["headroom"] is not None:
        tone = "warn" if whole["headroom"] < 0.1 else "plain"
        most = f"up to {number(whole['max_rate_per_s'])} requests/s"
        tiles.append(Tile("headroom", percent(whole["headroom"]), most, tone))
    if whole["lower_bound_replicas"] is not None and whole["status"] in ("plan", "over_max_replicas"):
        used = "" if whole["utilisation"] is None else f"plan used to {percent(whole['utilisation'])}"
        note = f"replicas by work alone; {used}".rstrip("; ")
        tiles.append(Tile("lower bound", f"{whole['lower_bound_replicas']:,}", note))
    return tiles


def sizes(whole: Whole) -> Section | None:
    """Every size tried, with each target's figure by seed: the proof that the plan is the smallest."""
    if not whole["evidence"]:
        if not whole["floor"]:
            return None
        rows = [
            [cell(_label(name)), common.time_cell(one["value"], tone="plain" if one["passes"] else "bad"),
             cell(study_text._limit(name, one), one["limit"])]
            for name, one in whole["floor"].items()
        ]  # fmt: skip
        table = Table(("target", "best possible", "asked for"), rows)
        lead = "With a whole replica to itself a request takes at least this."
        return Section("Why no size will do", [table], lead=lead)
    names = list(whole["evidence"][0]["targets"])
    rows = []
    for entry in whole["evidence"]:
        figures = [_by_seed(name, entry["targets"][name]) for name in names]
        verdict = cell("meets them", tone="good") if entry["passes"] else cell("fails", tone="bad")
        busy = common.share_cell(entry["gpu_busy_fraction"])
        rows.append([cell(f"{entry['replicas']}", entry["replicas"]), *figures, busy, verdict])
    labels = [_label(name) for name in names]
    table = Table(("replicas", *(f"{label}, by seed" for label in labels), "busy", "targets"), rows)
    lead = "A size passes when every seed meets every target; the seeds are the same for all sizes."
    if whole["replicas"] is not None and whole["replicas"] > 1:
        size, below = (study_text._count(n, "replica") for n in (whole["replicas"], whole["replicas"] - 1))
        lead += (
            f" {size} meet them, {below} {'does' if whole['replicas'] == 2 else 'do'} not: no smaller fleet will do."
        )
    return Section("The sizes tried", [table], lead=lead)


def _by_seed(name: str, target: Whole) -> Cell:
    values = target["per_seed"]
    texts = [_text(name, value) for value in values]
    worst = study_text._worst(name, target)
    tone: Tone = "bad" if study_text._misses(name, target) else "good"
    return cell(" · ".join(texts), NEVER if worst is None else worst, tone=tone)


def _binds(whole: Whole) -> Section | None:
    if whole["binding"] is None:
        return None
    share = percent(whole["pressure"][whole["binding"]])
    where = "the largest size tried"
    if whole["replicas"]:
        where = "one replica fewer" if whole["replicas"] > 1 else "the rate that breaks it"
    what = {"kv": "KV memory"}.get(whole["binding"], whole["binding"].replace("_", " ").capitalize())
    why, _, remedy = whole["helps"].partition(": ")
    lead = f"{what}, in {share} of the busy time at {where}: {why}. What would help most: {remedy}."
    blocks: list[Block] = []
    if whole["load_replicas"] and whole["replicas"]:
        blocks.append(Figure(
            partial(study_plots.loads, whole["load_replicas"], whole["replicas"]),
            "The work that must be done at all, whatever the scheduler does.",
        ))  # fmt: skip
    waited = [f"{study_plots.resource_words(name)} {percent(value)}" for name, value in whole["pressure"].items()]
    rows = [("waited for", ", ".join(waited))]
    rows += [row for row in study_text._facts_of(whole) if row[0] in ("concurrency", "")]
    if whole["kv_peak_fraction"] is not None:
        rows.append(("KV cache", f"peak {percent(whole['kv_peak_fraction'])}; {whole['preemptions']:,} preemptions"))
    return Section("What binds", [*blocks, Facts(rows)], lead=lead)


def _headroom(whole: Whole, found: Plan) -> Section | None:
    if whole["max_rate_per_s"] is None:
        return None
    most = f"{number(whole['max_rate_per_s'])} requests a second"
    rows = [("breaks beyond", f"{most}, {percent(whole['headroom'])} above what is asked for")]
    lost = whole["one_replica_lost"]
    if lost is not None and lost["replicas"]:
        share = lost["max_rate_per_s"] / whole["rate_per_s"] if lost["max_rate_per_s"] else 0.0
        left = f"{study_text._held(lost)} requests a second"
        out = [f"{_label(name)} {_text(name, study_text._worst(name, one))}" for name, one in lost["targets"].items()]
        rows += [("one replica lost", f"{left}, {percent(share)} of the load"), ("while it is out", "; ".join(out))]
    elif lost is not None:
        rows.append(("one replica lost", "nothing is left: two replicas are the least that survive a failure"))
    blocks: list[Block] = [Facts(rows)]
    seen = whole["traffic"]
    lead = f"The fleet takes {percent(whole['headroom'])} more than it was sized for."
    if seen is not None:
        said = [row for row in study_text._traffic(whole) if row[0] != "req/s"]
        blocks += [Facts(said), Figure(partial(_traffic, found))]
        lead += f" It is sized for the busiest window, {seen['peak_to_mean']:.2f} times the mean rate."
    return Section("Headroom", blocks, lead=lead)


def _traffic(found: Plan, ax: Axes) -> Axes:
    return found.plot.traffic(ax=ax)


def _sensitivity(whole: Whole, variants: list[Variant], error: float, known: bool) -> Section | None:
    if not variants:
        return None
    breaks = [one for one in variants if not one.passes]
    lead = (
        f"{len(breaks)} of {len(variants)} changes would break the plan: {'; '.join(one.name for one in breaks)}."
        if breaks
        else "None of these changes breaks the plan."
    )
    figures: list[Block] = [
        Figure(partial(study_plots.sensitivity, variants, name, limit=target["limit"], base=target["worst"]),
               "Line: as planned; dashes: the target.", tall=True)
        for name, target in whole["targets"].items() if target["worst"] is not None
    ]  # fmt: skip
    names = list(whole["targets"])
    rows = []
    for one in variants:
        figures_of = {figure.name: figure for figure in one.figures}
        cells = [_figure_cell(figures_of[name]) for name in names]
        needs = "more than tried" if one.needs is None else f"{one.needs}"
        rows.append([cell(one.name), *cells, cell(needs, one.needs, tone="plain" if one.passes else "bad")])
    labels = [_label(name) for name in names]
    source = (
        "the cost model's own error on held-out measurements" if known else "assumed: the cost model states no error"
    )
    note = f"Worst of all seeds, with the plan's {whole['replicas']} replicas. Steps: ±{100 * error:.3g} % is {source}."
    table = Table(("change", *labels, "replicas needed"), rows)
    return Section("Sensitivity", [*figures, table, Prose(note)], lead=lead)


def _figure_cell(figure: Any) -> Cell:
    text = _text(figure.name, figure.value)
    if not figure.passes and text == study_text._limit(figure.name, {"limit": figure.limit}):
        text = f"{figure.value:.5g}{' ms' if figure.name.endswith('_ms') else ''}"  # a narrow miss
    return cell(text, NEVER if figure.value is None else figure.value, tone="good" if figure.passes else "bad")


def alternatives(whole: Whole, found: Plan) -> Section | None:
    if "options" not in whole and whole["status"] != "plan":
        return None
    if "options" not in whole:
        return Section(
            "Alternatives",
            [],
            lead="None were compared: --vary gpu=h100-sxm,h200-sxm or --vary scheduler.max_num_seqs=64,256 sizes each "
            "and marks the Pareto front of cost and latency.",
        )
    options = whole["options"]
    plans = [one for one in options if one["status"] == "plan"]
    names = list(next((one["targets"] for one in plans), {}))
    rows = []
    for one in options:
        stubs = [cell(common.shown(value)) for value in one["point"].values()]
        figures = [_option_cell(name, one) for name in names]
        rows.append([
            *stubs, cell(one["status"].replace("_", " "), tone="plain" if one["status"] == "plan" else "bad"),
            _count_cell(one["replicas"]), _count_cell(one["gpus"]),
            cell(money(one["cost_per_hour"]), one["cost_per_hour"]), *figures,
            common.number_cell(one["max_rate_per_s"]), cell("★" if one["pareto"] else "", float(one["pareto"])),
        ])  # fmt: skip
    labels = [_label(name) for name in names]
    keys = [key.rpartition(".")[2].replace("_", " ") for key in options[0]["point"]]
    columns = (*keys, "status", "replicas", "GPUs", "cost/h", *labels, "max req/s", "Pareto")
    blocks: list[Block] = [Figure(partial(_pareto, found, name)) for name in names] if plans else []
    blocks.append(Table(columns, rows, stubs=len(options[0]["point"])))
    best = ", ".join(f"{key.rpartition('.')[2]} {common.shown(value)}" for key, value in whole["point"].items())
    lead = "No option meets the targets."
    if plans:
        lead = f"{len(options)} options were sized; the cheapest that meets the targets is {best}."
    return Section("Alternatives", blocks, lead=lead)


def _pareto(found: Plan, name: str, ax: Axes) -> Axes:
    return found.plot.pareto(name, ax=ax)


def _option_cell(name: str, option: Whole) -> Cell:
    if option["status"] != "plan":
        return cell(ABSENT)
    worst = option["targets"][name]["worst"]
    return common.share_cell(worst) if study_text._is_share(name) else common.time_cell(worst)


def _count_cell(value: int | None) -> Cell:
    return cell(ABSENT if value is None else f"{value:,}", value)


def _provenance(whole: Whole, found: Plan, command: str | None) -> Section:
    facts = [("seeds", (", ".join(map(str, whole["seeds"])) or "none") + study_text._lengths(whole))]
    facts += [row for row in study_text._facts_of(whole) if row[0] in ("lower bound", "cost")]
    if whole["extrapolated"]:
        facts.append(("extrapolated", f"{percent(whole['extrapolated'])} of the steps, outside the calibrated range"))
    cost = found.best.resolved.cost.describe() if found.best.fleet is not None else None
    return common.provenance(
        whole["scenario"], whole["versions"], command=command, cost=cost, facts=facts,
        python='import batchsim as bs\nbs.plan(bs.load("scenario.yaml"))',
    )  # fmt: skip
