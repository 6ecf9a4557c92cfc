"""Pieces that several reports share: latencies as a table, figures against targets, where results come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchsim.report.console import ABSENT, count, duration, number, percent
from batchsim.report.document import Block, Cell, Code, Facts, Section, Table, Tone, cell

Values = Mapping[str, Any]
LATENCIES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E", "e2el"))
COLUMNS = ("mean", "p50", "p90", "p99", "max")
TARGETS = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2e_ms": "E2E"}
DEFINITIONS = (
    ("TTFT", "time to first token: from arrival, queue included, to the first token"),
    ("TPOT", "time per output token: (E2E - TTFT) / (output tokens - 1), of answers of two tokens or more"),
    ("ITL", "gaps between consecutive tokens, of all requests together"),
    ("E2E", "from arrival to the last token"),
)


def time_cell(ms: float | None, *, tone: Tone = "plain", mark: bool = False) -> Cell:
    """A latency in a table."""
    return cell(duration(ms), ms, tone=tone, mark=mark)


def latency_table(summary: Values, targets: Mapping[str, float]) -> Table:
    """Mean, percentiles, maximum and sample size of each latency; p99 in the colour of its verdict."""
    rows = []
    for label, key in LATENCIES:
        limit = targets.get("e2e_ms" if key == "e2el" else f"{key}_ms")
        values = [
            time_cell(summary[f"{column}_{key}_ms"], tone=_tone(summary[f"{column}_{key}_ms"], limit, column))
            for column in COLUMNS
        ]
        limit_cell = cell(ABSENT if limit is None else f"≤ {duration(limit)}", limit)
        rows.append([cell(label), *values, limit_cell, cell(count(summary[f"n_{key}"]), summary[f"n_{key}"])])
    if targets:
        return Table(("latency", *COLUMNS, "target", "n"), rows)
    return Table(("latency", *COLUMNS, "n"), [[*row[:-2], row[-1]] for row in rows])


def _tone(value: float | None, limit: float | None, column: str) -> Tone:
    if limit is None or value is None or column != "p99":
        return "plain"
    return "good" if value <= limit else "bad"


def slo_of(scenario: Values) -> dict[str, float]:
    """The scenario's targets, ms, by key."""
    slo = scenario.get("slo") or {}
    return {key: float(slo[key]) for key in TARGETS if isinstance(slo.get(key), int | float)}


def targets_text(targets: Mapping[str, float]) -> str:
    """`TTFT ≤ 500 ms and TPOT ≤ 15 ms`."""
    return " and ".join(f"{TARGETS[key]} ≤ {duration(limit)}" for key, limit in targets.items()) or "their targets"


def provenance(
    scenario: Values,
    versions: Values,
    *,
    command: str | None,
    cost: Values | None,
    facts: Sequence[tuple[str, str]] = (),
    python: str = "",
) -> Section:
    """What the figures rest on, and how to get them again."""
    rows = [*cost_facts(cost), *facts, ("versions", ", ".join(f"{name} {text}" for name, text in versions.items()))]
    rows += [(name, text) for name, text in DEFINITIONS]
    blocks: list[Block] = [Facts(rows)]
    if command or python:
        blocks.append(Code(command or python, "The same result again:"))
    blocks.append(Code(yaml_text(scenario), "the scenario as run, defaults filled in", folded=True))
    return Section("Assumptions and provenance", blocks)


def cost_facts(cost: Values | None) -> list[tuple[str, str]]:
    """What priced the steps, and how well it is known."""
    if not cost:
        return []
    name = " ".join(str(cost[key]) for key in ("kind", "profile") if cost.get(key))
    known = []
    if cost.get("mape_percent") is not None:
        known.append(f"off by {cost['mape_percent']:g} % on average on held-out measurements")
    if cost.get("p95_percent") is not None:
        known.append(f"by {cost['p95_percent']:g} % or less on 95 % of them")
    rows = [("cost model", f"{name}: {', '.join(known)}" if known else name)]
    if cost.get("source") and cost.get("profile"):
        rows.append(("measured on", f"{cost['source']}; {', '.join(cost.get('calibrated_on') or [])}".rstrip("; ")))
    rows += [("its limits", "; ".join(cost["notes"]))] if cost.get("notes") else []
    return rows


def yaml_text(value: Any) -> str:
    """Plain values as YAML without the keys that say nothing."""
    import yaml

    return str(yaml.safe_dump(_told(value), sort_keys=False, allow_unicode=True, width=100))


def _told(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _told(entry) for key, entry in value.items() if entry is not None}
    return [_told(entry) for entry in value] if isinstance(value, list | tuple) else value


def shown(value: Any) -> str:
    """A swept value as it would be typed."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def share_cell(value: float | None, **marks: Any) -> Cell:
    """A share in a table."""
    return cell(percent(value), value, **marks)


def number_cell(value: float | None, **marks: Any) -> Cell:
    """A number in a table."""
    return cell(number(value), value, **marks)
