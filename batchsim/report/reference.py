"""The page docs/reference/outputs.md, made from `fields`: what `python -m batchsim.report.reference` prints."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from batchsim.report import fields
from batchsim.report.fields import Field

INTRO = """# Every field of the output files

Made by `python -m batchsim.report.reference`; a test holds it against real runs.

Undefined is `null` in JSON and an empty field in CSV (null in Parquet), never 0 or NaN. Times are on the simulation's
clock, which starts at 0; they are written with all their nanoseconds. Counts have no unit.
"""


def page() -> str:
    """The page as Markdown."""
    return "\n".join([INTRO, *_sections()])


def _sections() -> Iterable[str]:
    yield from _section(
        "summary.json", "The keys of `vllm bench serve` under its names, and what people ask for next. `--json` prints "
        "it.", fields.SUMMARY,
    )  # fmt: skip
    yield "### Latencies in the summary\n"
    yield "Each of these has the keys of the table below, with its name in the place of X:\n"
    yield from (f"- `{name}`: {meaning}" for name, meaning in fields.LATENCIES.items())
    yield "\nThe `client_queue` and `from_schedule` ones are there where `workload.max_concurrency` is set.\n"
    yield from _table(fields.STATISTICS)
    yield "### A class in `classes`\n\nPadding, and what bound a step, belong to steps and not to classes.\n"
    yield from _table(fields.CLASSES)
    yield "### `tenants`\n"
    yield from _table(fields.TENANTS)
    yield from _section("requests.csv, requests.parquet", "One row a request, in file order.", fields.REQUESTS)
    yield from _section(
        "iterations.csv", "One row a step, or a run of equal decode steps, by replica and time. Idle time has no row.",
        fields.ITERATIONS,
    )  # fmt: skip
    yield from _section("steps.jsonl (`--step-log`)", "One line a step, every request named.", fields.STEPS)
    yield from _section(
        "trace.json (`--trace`)", "Chrome trace events, for ui.perfetto.dev. A process a replica.", fields.PERFETTO
    )
    yield (
        "## timeline.png, latency.png\n\nWho ran when (waiting, prefill, decode, evicted) while the first requests "
        "arrive, with the batch size under it; and the\ndistributions of TTFT, TPOT and ITL with p50, p99 and the "
        "targets. `batchsim.report.plots` has them as functions.\n"
    )
    yield from _section(
        "trace-summary.json, trace.png (`batchsim trace --out`)", "What a trace holds; `--json` prints the first. The "
        "picture shows the rate over time and the lengths.", fields.TRACE,
    )  # fmt: skip


def _section(title: str, about: str, table: Sequence[Field]) -> Iterable[str]:
    yield f"## {title}\n\n{about}\n"
    yield from _table(table)


def _table(table: Sequence[Field]) -> Iterable[str]:
    yield "| field | unit | meaning |"
    yield "|---|---|---|"
    for field in table:
        when = f" (only with: {field.when})" if field.when else ""
        yield f"| `{field.name}` | {field.unit or '–'} | {field.meaning}{when} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
