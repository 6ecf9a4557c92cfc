"""docs/reference/outputs.md names every field that runs write, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchsim.report import fields, reference
from batchsim.report.perfetto import Window, write_trace
from batchsim.scenario import load, scenario
from batchsim.simulation import Run, simulate
from batchsim.workload import traces
from batchsim.workload.describe import describe

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "outputs.md"
SHORT = ["workload.requests=30", "workload.max_concurrency=5"]


def names(table: tuple[fields.Field, ...], *, always: bool = False) -> list[str]:
    """The fields of a table; always: those that every run has."""
    return [field.name for field in table if not (always and field.when)]


def latency_keys() -> set[str]:
    """The keys of all latencies."""
    return {field.name.replace("X", name) for name in fields.LATENCIES for field in fields.STATISTICS}


@pytest.fixture(scope="module")
def run() -> Run:
    """A run with two classes, two tenants, sessions none, and a client's cap."""
    lengths = {"prompt_tokens": {"kind": "fixed", "tokens": 50}, "output_tokens": {"kind": "fixed", "tokens": 9}}
    given: dict[str, Any] = {
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "scheduler": {"kind": "vllm"}, "replicas": 2,
        "workload": {
            "requests": 30, "arrivals": {"kind": "poisson", "rate_per_s": 20}, "max_concurrency": 6,
            "mix": [{"name": name, "share": 0.5, "tenant": name} | lengths for name in ("a", "b")],
        },
    }  # fmt: skip
    return simulate(scenario(given), step_log=True)


def test_the_page_is_up_to_date() -> None:
    """The page is what `python -m batchsim.report.reference` prints."""
    assert PAGE.read_text(encoding="utf-8") == reference.page()


def test_every_key_of_a_summary_is_described(run: Run) -> None:
    """A run's summary has no key that the page lacks, and all that it says are always there."""
    plain = simulate(load("quickstart", ["workload.requests=30"])).summary
    for summary in (run.summary, plain):
        assert set(summary) <= set(names(fields.SUMMARY)) | latency_keys()
    assert set(names(fields.SUMMARY, always=True)) <= set(plain)
    assert latency_keys() <= set(run.summary)
    assert {"classes", "tenants"} <= set(run.summary)


def test_every_key_of_a_class_and_of_tenants_is_described(run: Run) -> None:
    """A class has the keys of its table and the latencies, tenants have those of theirs, and no other."""
    latencies = {key for key in latency_keys() if not key.rpartition("_ms")[0].endswith(("_queue", "_schedule_ttft"))}
    for section in run.summary["classes"].values():
        assert set(names(fields.CLASSES)) <= set(section)
        assert set(section) <= set(names(fields.CLASSES)) | latencies
    assert list(run.summary["tenants"]) == names(fields.TENANTS)


def test_every_column_is_described_in_order(run: Run) -> None:
    """The columns of both tables are those of the page, in its order."""
    columns = list(run.requests.columns)
    assert [name for name in names(fields.REQUESTS) if name in columns] == columns
    assert set(names(fields.REQUESTS, always=True)) <= set(columns)
    assert list(run.iterations.columns) == names(fields.ITERATIONS)


def test_every_key_of_steps_and_traces_is_described(run: Run, tmp_path: Path) -> None:
    """The same of a line of steps.jsonl, of a trace's description, and of the counters of trace.json."""
    assert run.records.step_log
    assert list(run.records.step_log[0]) == names(fields.STEPS)
    file = tmp_path / "t.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,1,1\n")
    assert sorted(describe(traces.read(file)).to_dict()) == sorted(names(fields.TRACE))
    write_trace(tmp_path / "trace.json", run.records, Window(0, 1))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "C"} == set(fields.PERFETTO[2].name.split(", "))


def test_nothing_is_described_twice() -> None:
    """Each table names a field once, with a meaning."""
    for table in (
        fields.SUMMARY,
        fields.CLASSES,
        fields.TENANTS,
        fields.REQUESTS,
        fields.ITERATIONS,
        fields.STEPS,
        fields.TRACE,
        fields.STATISTICS,
    ):
        assert len(set(names(table))) == len(table)
        assert all(field.meaning for field in table)
