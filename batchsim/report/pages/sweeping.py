"""The report of a sweep: curves, where they bend, and the points behind them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from batchsim.report import curve_plots
from batchsim.report.console import ABSENT, duration, number, percent
from batchsim.report.document import Block, Cell, Figure, Page, Section, Table, Tile, Tone, cell
from batchsim.report.pages import common

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from batchsim.study.saturating import Saturation
    from batchsim.study.sweeping import Sweep

COLUMNS = (
    ("served/s", "request_throughput", number), ("tok/s out", "output_throughput", number),
    ("goodput/s", "request_goodput", number), ("TTFT p50", "p50_ttft_ms", duration),
    ("TTFT p99", "p99_ttft_ms", duration), ("TPOT p99", "p99_tpot_ms", duration), ("E2E p99", "p99_e2el_ms", duration),
    ("KV peak", "kv_peak_fraction", percent), ("busy", "gpu_busy_fraction", percent),
)  # fmt: skip


def sweep_page(
    result: Sweep, *, command: str | None = None, saturation: Mapping[str, Saturation] | None = None
) -> Page:
    """The curves of a sweep. saturation: of each line, where it was looked for."""
    whole = result.to_dict()
    rates = {name: found.rate_per_s for name, found in (saturation or {}).items()}
    named = _named(whole)
    curves = [Figure(partial(_latency, result, metric), named) for metric in ("ttft", "tpot", "e2el")]
    through: list[Block] = [Figure(partial(draw, result), named) for draw in (_throughput, _goodput, _kv)]
    drawable = result.x_key is not None
    return Page(
        title=f"{whole['scenario'].get('name') or 'sweep'}: {' × '.join(_short(key) for key in whole['over'])}",
        kicker=f"{len(whole['rows']):,} runs: {_grid(whole)}",
        answer=_answer(whole, rates),
        tone="plain",
        tiles=_tiles(whole, rates),
        hero=curves[:2] if drawable else (),
        sections=[
            *([Section("Latency against throughput", [curves[2], *through], lead=_knees(whole))] if drawable else []),
            Section("Every point", [_table(whole)], lead="A click on a column's name sorts."),
            common.provenance(
                whole["scenario"], whole["versions"], command=command, cost=_cost(result),
                facts=[("seeds", ", ".join(map(str, whole["seeds"]))), ("intervals", whole["interval"])],
                python='import batchsim as bs\n'
                'bs.sweep(bs.load("scenario.yaml"), {"workload.arrivals.rate_per_s": [1, 2, 4]})',
            ),
        ],
        warnings=whole["warnings"],
        foot=f"Simulated with batchsim {whole['versions']['batchsim']}.",
    )  # fmt: skip


def _cost(result: Sweep) -> dict[str, Any] | None:
    from batchsim.errors import DoesNotFit
    from batchsim.scenario.resolve import resolve

    try:
        return resolve(result.scenario).cost.describe()
    except DoesNotFit:
        return None  # the base of a sweep over memory need not fit itself


def _latency(result: Sweep, metric: str, ax: Axes) -> Axes:
    return result.plot.latency(metric, ax=ax)


def _throughput(result: Sweep, ax: Axes) -> Axes:
    return result.plot.latency_throughput("p99_e2el_ms", ax=ax)


def _goodput(result: Sweep, ax: Axes) -> Axes:
    return result.plot.goodput(ax=ax)


def _kv(result: Sweep, ax: Axes) -> Axes:
    return result.plot.kv(ax=ax)


def _short(key: str) -> str:
    """`workload.arrivals.rate_per_s` -> `rate per s`: with spaces, a narrow column can break it."""
    return key.rpartition(".")[2].replace("_", " ")


def _words(line: str) -> str:
    """A line's name, `max_num_batched_tokens 512`, so that it can be broken."""
    return line.replace("_", " ")


def _named(whole: dict[str, Any]) -> str:
    """What the names of the lines are values of, and what the bands are."""
    others = [key for key in whole["over"] if key != whole["x_key"]]
    seeds = len(whole["seeds"])
    said = [f"Lines by {_short(others[0])}."] if len(others) == 1 else []
    if seeds >= curve_plots.BAND_SEEDS:
        said.append(f"Bands: {whole['interval']} over {seeds} seeds.")
    elif seeds > 1:
        said.append(f"No bands: {seeds} seeds say little of how far they scatter.")
    return " ".join(said)


def _grid(whole: dict[str, Any]) -> str:
    parts = [f"{_short(key)} {_range(values)}" for key, values in whole["over"].items()]
    seeds = len(whole["seeds"])
    return " × ".join(parts) + (f" × {seeds} seeds" if seeds > 1 else "")


def _range(values: list[Any]) -> str:
    texts = [common.shown(value) for value in values]
    return ", ".join(texts) if len(texts) <= 4 else f"{texts[0]} … {texts[-1]} ({len(texts)} values)"


def _answer(whole: dict[str, Any], rates: dict[str, float]) -> str:
    entries = [entry for entry in whole["curve"] if entry.get("request_throughput") is not None]
    if not entries:
        return "No point of the sweep has figures."
    good = [entry for entry in entries if entry.get("request_goodput")]
    top = max(good, key=lambda e: e["request_goodput"]) if good else max(entries, key=lambda e: e["request_throughput"])
    at = ", ".join(f"{_short(key)} {common.shown(top[key])}" for key in whole["over"])
    if good:
        text = f"Goodput is largest at {at}: {number(top['request_goodput'])} requests a second within the targets"
    else:
        text = f"Most is served at {at}: {number(top['request_throughput'])} requests a second"
    text += f", p99 TTFT {duration(top.get('p99_ttft_ms'))}, p99 TPOT {duration(top.get('p99_tpot_ms'))}."
    if rates:
        said = ", ".join(
            f"{number(rate)} a second{f' with {_words(name)}' if name else ''}" for name, rate in rates.items()
        )
        text += f" The queue starts to grow at {said}."
    return text


def _tiles(whole: dict[str, Any], rates: dict[str, float]) -> list[Tile]:
    entries = whole["curve"]
    served = max((entry.get("request_throughput") or 0.0 for entry in entries), default=0.0)
    tiles = [Tile("most served", f"{number(served)} /s", "requests a second, at any point")]
    good = [entry["request_goodput"] for entry in entries if entry.get("request_goodput") is not None]
    if good:
        tiles.append(Tile("most goodput", f"{number(max(good))} /s", "within all targets"))
    for name, entry in whole["knees"].items():
        if entry is not None:
            note = f"{_words(name) + ': ' if name else ''}p99 E2E {duration(entry['p99_e2el_ms'])}"
            tiles.append(Tile("knee", f"{number(entry['request_throughput'])} /s", note))
    tiles += [Tile("saturation", f"{number(rate)} /s", _words(name) or "to 1 %") for name, rate in rates.items()]
    growing = sum(entry["stable"] is False for entry in entries)
    if growing:
        tiles.append(Tile("points overloaded", str(growing), f"of {len(entries)}: their queue grows", "warn"))
    return tiles[:8]


def _knees(whole: dict[str, Any]) -> str:
    said = []
    for name, entry in whole["knees"].items():
        label = f"{_words(name)}: " if name else ""
        if entry is not None:
            rate = number(entry["request_throughput"])
            said.append(f"{label}beyond {rate} requests a second latency grows faster than throughput.")
    return " ".join(said) or "The sweep does not show a knee: served rate over mean E2E is largest at an end."


def _stub(value: Any) -> Cell:
    return cell(common.shown(value), float(value) if isinstance(value, int | float) else None)


def _table(whole: dict[str, Any]) -> Table:
    keys = list(whole["over"])
    columns = [entry for entry in COLUMNS if any(point.get(entry[1]) is not None for point in whole["curve"])]
    rows = []
    for point in whole["curve"]:
        tone: Tone = "bad" if point["stable"] is False else "plain"
        stubs = [_stub(point[key]) for key in keys]
        values = [cell(form(point.get(column)), point.get(column), tone=tone) for _, column, form in columns]
        keeps = ABSENT if point["stable"] is None else "yes" if point["stable"] else "no"
        rows.append([*stubs, *values, cell(keeps, tone=tone)])
    return Table((*map(_short, keys), *(label for label, _, _ in columns), "keeps up"), rows, stubs=len(keys))
