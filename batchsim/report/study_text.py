"""What `sweep` and `plan` print: the answer first, then the figures that it rests on, 100 columns wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from batchsim.report.console import duration, figure_words, money, number, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

Values = Mapping[str, Any]
ROWS = 40
"""Lines of a curve that a terminal is shown; the files have them all."""
CURVE = (
    ("served/s", "request_throughput", number), ("goodput/s", "request_goodput", number),
    ("TTFT p50", "p50_ttft_ms", duration), ("TTFT p99", "p99_ttft_ms", duration), ("TPOT p99", "p99_tpot_ms", duration),
    ("E2E p99", "p99_e2el_ms", duration), ("KV peak", "kv_peak_fraction", percent),
    ("busy", "gpu_busy_fraction", percent),
)  # fmt: skip


def sweep_table(whole: Values, *, computed: int, out: str) -> RenderableType:
    """The curve, one line a point, and the knee of each line."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_edge=False)
    keys = list(whole["over"])
    for key in keys:
        table.add_column(
            key.rpartition(".")[2].replace("_", " "), justify="right", header_style="bold", overflow="fold"
        )
    for label, _, _ in CURVE:
        table.add_column(label, justify="right", header_style="dim", no_wrap=True)
    for entry in whole["curve"][:ROWS]:
        mark = " !" if entry["stable"] is False else ""
        cells = [form(entry.get(column)) for _, column, form in CURVE]
        table.add_row(*(_shown(entry[key]) for key in keys), cells[0] + mark, *cells[1:])
    lines = [] if len(whole["curve"]) <= ROWS else [f"… and {len(whole['curve']) - ROWS:,} more in curve.csv"]
    if any(entry["stable"] is False for entry in whole["curve"]):
        lines.append("! more come than leave: latencies are those of a run of this length")
    lines += [_knee(name, entry) for name, entry in whole["knees"].items()]
    for name, found in whole.get("saturation", {}).items():
        lines.append(f"{name + ': ' if name else ''}saturation at {number(found['rate_per_s'])} req/s (to 1 %)")
    stored = len(whole["rows"]) - computed
    told = f" ({computed:,} now, {stored:,} from the store)" if stored else ""
    interval = whole["interval"].replace("none: one seed", "one seed: no intervals")
    lines.append(f"{_count(len(whole['rows']), 'run')}{told} · {interval} · files in {out}")
    return Group(table, Text(""), *(Padding(Text(line, overflow="fold"), (0, 0, 0, 1)) for line in lines))


def _knee(name: str, entry: Values | None) -> str:
    label = f"{name}: " if name else ""
    if entry is None:
        return f"{label}no knee inside the sweep (throughput over mean E2E is largest at an end)"
    return (
        f"{label}knee at {number(entry['request_throughput'])} req/s served: beyond it latency grows faster than "
        f"throughput (mean E2E {duration(entry['mean_e2el_ms'])}, p99 {duration(entry['p99_e2el_ms'])})"
    )


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def plan_text(whole: Values, *, wall_s: float, out: str | None) -> RenderableType:
    """The answer, the sizes tried, what binds, headroom, cost; for several options their table."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(answer(whole), style="bold", overflow="fold"), Text("")]
    if whole["evidence"]:
        parts += [_sizes(whole), Text("")]
    if "options" in whole:
        parts += [_options(whole["options"]), Text("")]
    from batchsim.report.console import _facts

    parts.append(_facts([*_facts_of(whole), ("planned", _provenance(whole, wall_s, out))]))
    return Group(*parts)


def answer(whole: Values) -> str:
    """The plan, or why there is none, in a sentence or two."""
    hardware = _hardware(whole)
    if whole["status"] == "does_not_fit":
        return f"does not fit: {whole['reason']}"
    if whole["status"] == "infeasible":
        return f"infeasible with any number of replicas of {hardware}: {whole['reason']}"
    if whole["status"] == "over_max_replicas":
        return (
            f"no plan within {whole['max_replicas']:,} replicas of {hardware}: {whole['reason']} (raise --max-replicas)"
        )
    rate = f"{number(whole['rate_per_s'])} req/s" if whole["rate_per_s"] is not None else "this traffic"
    if whole["traffic"] is not None:
        rate += " (the busiest window)"
    cost = "" if whole["cost_per_hour"] is None else f", for {money(whole['cost_per_hour'])} an hour"
    serve = "serves" if whole["replicas"] == 1 else "serve"
    text = f"{_count(whole['replicas'], 'replica')} of {hardware} {serve} {rate} with {_met(whole['targets'])}{cost}."
    lost = whole["one_replica_lost"]
    if lost is not None and lost["replicas"]:
        missed = [_miss(name, target) for name, target in lost["targets"].items() if _misses(name, target)]
        do = "does" if lost["replicas"] == 1 else "do"
        text += f" {_count(lost['replicas'], 'replica')} {do} not: {', '.join(missed)}."
    return text


def _hardware(whole: Values) -> str:
    scenario = whole["scenario"]
    gpu = scenario["gpu"] if isinstance(scenario["gpu"], str) else (scenario["gpu"] or {}).get("name", "inline")
    across = scenario["tensor_parallel"]
    return f"{across}× {gpu}" if across > 1 else str(gpu)


def _held(lost: Values) -> str:
    """What a fleet without one of its replicas holds, but for the unit."""
    holds = "holds" if lost["replicas"] == 1 else "hold"
    return f"{_count(lost['replicas'], 'replica')} {holds} {number(lost['max_rate_per_s'])}"


def _count(many: int, word: str) -> str:
    return f"{many:,} {word}" if many == 1 else f"{many:,} {word}s"


def _met(found: Values) -> str:
    return " and ".join(
        f"{_figure(name, target['worst'])} ({_sign(name)} {_limit(name, target)})" for name, target in found.items()
    )


def _is_share(name: str) -> bool:
    return name.rpartition(".")[2] == "attainment"


def _sign(name: str) -> str:
    return "≥" if _is_share(name) else "≤"


def _limit(name: str, target: Values) -> str:
    return percent(target["limit"]) if _is_share(name) else duration(target["limit"])


def _figure(name: str, value: float | None) -> str:
    return f"{figure_words(name)} {_value(name, value)}"


def _value(name: str, value: float | None) -> str:
    if _is_share(name):
        return percent(value)
    return "without end" if value is None else duration(value)


def _miss(name: str, target: Values) -> str:
    """A figure beyond its target; with more digits where three would read as the target itself."""
    worst = _worst(name, target)
    if worst is None or _value(name, worst) != _limit(name, target):
        return _figure(name, worst)
    return f"{figure_words(name)} " + (f"{100 * worst:.6g} %" if _is_share(name) else f"{worst:.6g} ms")


def _worst(name: str, target: Values) -> float | None:
    values = target["per_seed"]
    return None if None in values else min(values) if _is_share(name) else max(values)


def _misses(name: str, target: Values) -> bool:
    worst = _worst(name, target)
    return worst is None or (worst < target["limit"] if _is_share(name) else worst > target["limit"])


def _sizes(whole: Values) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 1), show_edge=False)
    table.add_column("replicas", justify="right", header_style="dim")
    for name in whole["evidence"][0]["targets"]:
        table.add_column(f"{figure_words(name)} by seed", header_style="dim")
    table.add_column("busy", justify="right", header_style="dim")
    table.add_column("", justify="left")
    for entry in whole["evidence"]:
        cells = [
            " · ".join(
                percent(value) if _is_share(name) else "∞" if value is None else duration(value)
                for value in target["per_seed"]
            )
            for name, target in entry["targets"].items()
        ]
        verdict = Text("meets them", style="green") if entry["passes"] else Text("fails", style="red")
        table.add_row(str(entry["replicas"]), *cells, percent(entry["gpu_busy_fraction"]), verdict)
    return table


def _options(options: Sequence[Values]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 1), show_edge=False)
    names = list(next((entry["targets"] for entry in options if entry["status"] == "plan"), {}))
    for key in options[0]["point"]:
        table.add_column(key.rpartition(".")[2].replace("_", " "), header_style="bold")
    for name in ("status", "replicas", "GPUs", "cost/h", *map(figure_words, names), "max req/s", ""):
        table.add_column(name, justify="right", header_style="dim")
    for entry in options:
        plan = entry["status"] == "plan"
        values = [_value(name, entry["targets"][name]["worst"]) if plan else "–" for name in names]
        table.add_row(
            *(_shown(value) for value in entry["point"].values()),
            entry["status"].replace("_", " "), _dash(entry["replicas"]), _dash(entry["gpus"]),
            money(entry["cost_per_hour"]), *values,
            number(entry["max_rate_per_s"]), "Pareto" if entry["pareto"] else "",
        )  # fmt: skip
    return table


def _dash(value: Any) -> str:
    return "–" if value is None else f"{value:,}"


def _facts_of(whole: Values) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if whole["lower_bound_replicas"] is not None:
        text = f"{_count(whole['lower_bound_replicas'], 'replica')} by work alone"
        if whole["utilisation"] is not None:
            text += f": the plan is used to {percent(whole['utilisation'])}"
        rows.append(("lower bound", text))
    if whole["binding"] is not None:
        share = percent(whole["pressure"][whole["binding"]])
        binding = {"kv": "KV memory"}.get(whole["binding"], whole["binding"].replace("_", " "))
        rows.append(("binds", f"{binding}, in {share} of the busy time: {whole['helps']}"))
    if whole["max_rate_per_s"] is not None:
        rows.append(
            (
                "headroom",
                f"{percent(whole['headroom'])}: the targets hold up to {number(whole['max_rate_per_s'])} req/s",
            )
        )
    lost = whole["one_replica_lost"]
    if lost is not None:
        rows.append(("one lost", f"{_held(lost)} req/s" if lost["replicas"] else "nothing is left"))
    rows += _money(whole) + _room(whole) + _traffic(whole)
    return rows


def _money(whole: Values) -> list[tuple[str, str]]:
    if whole["cost_per_hour"] is None:
        return []
    each = [("output", whole["cost_per_million_output_tokens"]), ("total", whole["cost_per_million_total_tokens"])]
    said = " · ".join(f"{money(value)} per million {name} tokens" for name, value in each if value is not None)
    return [("cost", f"{money(whole['cost_per_hour'])} an hour · {said} (idle time paid for)")]


def _room(whole: Values) -> list[tuple[str, str]]:
    found = whole["concurrency"]
    if found is None:
        return []
    room, used = found["per_replica"], found["in_use"]
    text = (
        f"a replica's KV pool holds {number(room['concurrent_requests_at_max_model_len'])} concurrent requests at "
        f"max_model_len, {number(room['concurrent_requests_at_mean_context'])} at the mean context"
    )
    rows = [("concurrency", text)]
    if used is not None:
        gib = "" if used["kv_gib"] is None else f" = {number(used['kv_gib'])} GiB of KV"
        rows.append(("", f"{number(used['concurrent_requests'])} are in the fleet on average{gib}"))
    return rows


def _traffic(whole: Values) -> list[tuple[str, str]]:
    seen = whole["traffic"]
    if seen is None:
        return []
    rows = [(
        "traffic",
        f"windows of {duration(1000 * seen['window_s'])}: peak {number(seen['peak_per_s'])} req/s, mean "
        f"{number(seen['mean_per_s'])}, ratio {seen['peak_to_mean']:.2f}",
    )]  # fmt: skip
    shown = seen["rate_per_s"][:24]
    more = "" if len(seen["rate_per_s"]) <= 24 else f" … ({len(seen['rate_per_s'])} windows)"
    rows.append(("req/s", " ".join(number(rate) for rate in shown) + more))
    if seen.get("replica_hours_fixed") is not None:
        rows.append((
            "scaling",
            f"{number(seen['replica_hours_fixed'])} replica-hours as planned, {number(seen['replica_hours_ideal'])} "
            "if the fleet followed the rate",
        ))  # fmt: skip
    return rows


def _lengths(whole: Values) -> str:
    """How many requests the seeds of the plan were judged on, where they did not all do with what the scenario asks."""
    counts: Sequence[int] = next(
        (entry["requests"] for entry in whole["evidence"] if entry["replicas"] == whole["replicas"]), []
    )
    if not whole["lengthened"]:
        return ""
    shown = " · ".join(f"{count:,}" for count in counts[:8]) + (" …" if len(counts) > 8 else "")
    return f" ({shown} requests, as many as settle it)"


def _provenance(whole: Values, wall_s: float, out: str | None) -> str:
    seeds = ", ".join(map(str, whole["seeds"][:8])) + (" …" if len(whole["seeds"]) > 8 else "")
    where = f"files in {out}" if out else "--out DIR keeps the files"
    seeds += _lengths(whole)
    far = (
        f" · {percent(whole['extrapolated'])} of the steps outside the calibrated range"
        if whole["extrapolated"]
        else ""
    )
    return f"in {wall_s:.1f} s, seeds {seeds or 'none'}, the same for every size{far}; {where}"
