"""trace.json against the Chrome trace event format, and against the records that it shows."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.errors import InvalidInput
from batchsim.records import Records
from batchsim.report import perfetto
from batchsim.report.perfetto import Window, states, write_trace
from batchsim.scenario import scenario
from batchsim.simulation import simulate
from tests.metrics.naive import Rules, random_rows, run
from tests.study.given import given as plain

Event = dict[str, Any]
RULES = st.builds(
    Rules,
    seats=st.integers(1, 5),
    preempt=st.sampled_from([0.0, 0.15]),
    rest=st.sampled_from([0.0, 0.1]),
    collapse=st.booleans(),
    replicas=st.integers(1, 3),
    horizon_fs=st.sampled_from([None, 400 * 10**12]),
)


def events_of(path: Path, records: Records, window: Window | None = None) -> list[Event]:
    """The events of the file that `write_trace` leaves."""
    write_trace(path, records, window)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert set(document) == {"displayTimeUnit", "traceEvents"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    return list(document["traceEvents"])


def check_format(events: list[Event]) -> None:
    """The Chrome trace event format: what each phase must have, slices that nest, beginnings that end."""
    slices: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    open_: dict[tuple[int, str], list[tuple[str, float]]] = defaultdict(list)
    for event in events:
        assert isinstance(event["name"], str)
        assert event["name"]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["ts"], (int, float))
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
            assert event["args"]
        elif event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name")
            assert set(event["args"]) & {"name", "sort_index"}
        elif event["ph"] in "be":
            assert isinstance(event["cat"], str)
            stack = open_[event["pid"], event["id2"]["local"]]
            if event["ph"] == "b":
                assert not stack or event["ts"] >= stack[-1][1]
                stack.append((event["name"], event["ts"]))
            else:
                name, began = stack.pop()
                assert name == event["name"]
                assert event["ts"] >= began
        else:
            raise AssertionError(f"an unknown phase {event['ph']!r}")
    assert not any(open_.values())
    for track in slices.values():
        # the naive run rounds starts down and ends to the nearest: 1 ns apart
        assert all(end <= start + 1.1e-3 for (_, end), (start, _) in pairwise(track))


@given(st.integers(0, 10_000), RULES)
@settings(max_examples=60, deadline=None)
def test_any_run_is_a_valid_trace(tmp_path_factory: pytest.TempPathFactory, seed: int, rules: Rules) -> None:
    """Every run makes a trace that keeps to the format, with a slice a row and a request slice for each submitted."""
    everyone, records = run(random_rows(seed, 15), rules, seed)
    events = events_of(tmp_path_factory.mktemp("trace") / "trace.json", records)
    check_format(events)
    slices = [event for event in events if event["ph"] == "X"]
    assert [round(event["ts"] * 1000) for event in slices] == records.iterations.start_ns.tolist()
    assert sum(event["args"]["repeats"] for event in slices) == int(records.iterations.repeats.sum())
    asked = {one.index for one in everyone if one.since != -2}
    assert {int(event["id2"]["local"]) for event in events if event["ph"] == "b"} == asked


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2]))
@settings(max_examples=40, deadline=None)
def test_states_fill_a_request_without_gaps(seed: int, preempt: float) -> None:
    """Queued, prefill, decode and evicted follow one another from arrival to end; evicted lasts as long as recorded."""
    _, records = run(random_rows(seed, 15), Rules(preempt=preempt), seed)
    requests, evicted = records.requests, records.evictions
    for index in range(len(requests)):
        mine = evicted.index == index
        lost = sorted(zip(evicted.evicted_ns[mine].tolist(), evicted.resumed_ns[mine].tolist(), strict=True))
        times = (requests.arrival_ns, requests.admitted_ns, requests.first_token_ns, requests.finished_ns)
        found = list(states(*(int(column[index]) for column in times), lost))
        assert found[0][1] == requests.arrival_ns[index]
        assert found[-1][2] == requests.finished_ns[index]
        assert all(before[2] == after[1] for before, after in pairwise(found))
        assert sum(end - begin for state, begin, end in found if state == "evicted") == sum(b - a for a, b in lost)


def test_counters_are_those_of_the_steps(tmp_path: Path) -> None:
    """Running, waiting and KV blocks stand as the iterations say at the start of each."""
    _, records = run(random_rows(5, 12), Rules(), 5)
    events = events_of(tmp_path / "trace.json", records)
    standing: dict[str, int] = {}
    at: dict[float, dict[str, int]] = {}
    for event in events:
        if event["ph"] == "C":
            standing.update(event["args"])
            at[event["ts"]] = dict(standing)
    rows = records.iterations
    for start, running, waiting, kv in zip(
        rows.start_ns.tolist(), rows.running.tolist(), rows.waiting.tolist(), rows.kv_blocks_first.tolist(), strict=True
    ):
        known = at[max(ts for ts in at if ts <= start / 1000)]
        assert (known["running"], known["waiting"], known["KV blocks"]) == (running, waiting, kv)


def test_a_window_holds_what_overlaps_it(tmp_path: Path) -> None:
    """--trace-window 0.1:0.3 keeps the steps and requests that overlap it, whole, and no others."""
    _, records = run(random_rows(3, 30), Rules(), 3)
    events = events_of(tmp_path / "trace.json", records, Window.parse("0.1:0.3"))
    check_format(events)
    rows = records.iterations
    inside = (rows.end_ns > 100_000_000) & (rows.start_ns < 300_000_000)
    assert 0 < inside.sum() < len(rows)
    assert sum(event["ph"] == "X" for event in events) == int(inside.sum())
    requests = records.requests
    there = (requests.finished_ns >= 100_000_000) & (requests.arrival_ns < 300_000_000)
    assert {int(event["id2"]["local"]) for event in events if event["ph"] == "b"} == set(np.flatnonzero(there).tolist())


def test_too_long_a_run_is_cut_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the trace stops early, stays valid, and a sentence names the time and the option."""
    monkeypatch.setattr(perfetto, "MAX_EVENTS", 400)
    _, records = run(random_rows(1, 60), Rules(), 1)
    path, note = write_trace(tmp_path / "trace.json", records)
    events = json.loads(path.read_text())["traceEvents"]
    check_format(events)
    assert 200 < len(events) < 600
    assert note is not None
    assert "--trace-window" in note
    assert "400 events" in note


@pytest.mark.parametrize("text", ["", "10", "20:10", "5:5", "a:b", "-1:3", "nan:nan", "1:2:3"])
def test_a_bad_window_is_refused(text: str) -> None:
    """What is no START:END with START before END is refused in one line."""
    with pytest.raises(InvalidInput, match="--trace-window"):
        Window.parse(text)


def test_a_window_after_the_end_is_refused(tmp_path: Path) -> None:
    """A window that the run never reaches is an error, not an empty file."""
    _, records = run(random_rows(1, 3), Rules(), 1)
    with pytest.raises(InvalidInput, match="run's end"):
        write_trace(tmp_path / "trace.json", records, Window.parse("1000:2000"))
    assert not list(tmp_path.iterdir())


def test_who_waits_is_counted_while_a_replica_idles(tmp_path: Path) -> None:
    """A static batch of 3 that waits 100 ms: its counter climbs as requests come to an idle replica, and falls when it goes.

    Requests come at 0, 20 and 50 ms; the first batch leaves full at 50 and ends at 61 ms, when nobody waits; the fourth comes
    at 200 and goes alone, when no arrival is left.
    """
    values = plain(
        scheduler={"kind": "static", "batch_size": 3, "max_wait_ms": 100},
        cost_model={"kind": "linear", "base_ms": 11, "prefill_token_ms": 0, "decode_seq_ms": 0},
        workload={"kind": "list", "requests": [
            {"arrival_ms": at, "prompt_tokens": 5, "output_tokens": 1} for at in (0, 20, 50, 200, 230)
        ]},
    )  # fmt: skip
    records = simulate(scenario(values)).records
    events = events_of(tmp_path / "trace.json", records)
    seen = [
        (event["ts"] / 1000, event["args"]["waiting"])
        for event in events
        if event["ph"] == "C" and event["name"] == "waiting"
    ]
    assert seen == [(0, 1), (20, 2), (50, 0), (200, 1), (230, 0)]
