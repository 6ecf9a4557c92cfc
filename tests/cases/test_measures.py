"""Cases about what is measured: A09, A10, A13, A17, A29, B14, B16, B18, B19."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from batchsim.errors import InvalidInput
from batchsim.metrics.tokens import tokens_between
from batchsim.records import Status
from batchsim.scenario import load as load_file
from batchsim.simulation import simulate
from tests.cases.running import BUILT, FLAT, PLAIN, listed, load, ms, run, text

ONE_SEAT = f"kind: vllm, max_num_seqs: 1, max_num_batched_tokens: 8192, {PLAIN}"
UNITS = (
    "_s",
    "_ms",
    "_ns",
    "_tokens",
    "_seqs",
    "_blocks_used",
    "_fraction",
    "_throughput",
    "_goodput",
    "_per_s",
    "_gpu",
    "_share",
)
COUNTS = {
    "repeats", "running", "waiting", "preempted", "replica", "priority", "preemptions", "iterations", "gpus",
    "completed", "failed", "submitted", "rejected", "cancelled", "running_at_end", "waiting_at_end", "kv_blocks_total",
    "censored_requests",
    "slo_attainment", "duration", "mean_running", "mean_waiting", "used_gpus", "gpus_used",
}  # fmt: skip
TEXTS = {"id", "tenant", "class", "status", "reason", "stable", "extrapolated", "warnings", "scenario", "versions"}


def a09() -> str:
    """One request of 100 tokens and 11."""
    return text(listed([("r0", 0, 100, 11)]))


def test_a09_the_same_milliseconds_everywhere(tmp_path: Path) -> None:
    """A09: TTFT 20, every gap 11, E2E 130, in the frame, in requests.csv and in summary.json alike."""
    found = run(a09())
    found.write(tmp_path)
    expected = {"ttft_ms": 20, "max_itl_ms": 11, "tpot_ms": 11, "e2e_ms": 130, "queue_ms": 0}
    with (tmp_path / "requests.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    summary = json.loads((tmp_path / "summary.json").read_text())
    for column, value in expected.items():
        assert float(row[column]) == pytest.approx(value, abs=1e-9)
        assert ms(found, column)["r0"] == pytest.approx(value, abs=1e-9)
    for key, value in {"mean_ttft_ms": 20, "p99_tpot_ms": 11, "max_itl_ms": 11, "mean_e2el_ms": 130}.items():
        assert summary[key] == pytest.approx(value, abs=1e-9)
    assert summary["duration"] == pytest.approx(0.13)


@pytest.mark.parametrize("kind", BUILT)
def test_a09_the_summary_is_the_file_added_up(kind: str, tmp_path: Path) -> None:
    """For every scheduler: means, percentiles and counts follow from requests.csv to 1e-9."""
    workload = """
  requests: 80
  arrivals: {kind: poisson, rate_per_s: 20}
  prompt_tokens: {kind: lognormal, mean: 80, sigma: 0.6}
  output_tokens: {kind: geometric, mean: 12}"""
    found = run(text(workload, scheduler=f"kind: {kind}", blocks=400))
    found.write(tmp_path)
    with (tmp_path / "requests.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    summary = json.loads((tmp_path / "summary.json").read_text())
    for column, name in (("ttft_ms", "ttft"), ("tpot_ms", "tpot"), ("e2e_ms", "e2el")):
        values = [float(row[column]) for row in rows if row[column]]
        assert summary[f"n_{name}"] == len(values)
        assert summary[f"mean_{name}_ms"] == pytest.approx(np.mean(values), rel=1e-9)
        assert summary[f"p90_{name}_ms"] == pytest.approx(np.percentile(values, 90), rel=1e-9)
        assert summary[f"max_{name}_ms"] == pytest.approx(max(values), rel=1e-9)
    assert summary["completed"] == sum(row["status"] == "completed" for row in rows)
    assert summary["preemptions"] == sum(int(row["preemptions"]) for row in rows)
    assert summary["total_output_tokens"] == sum(int(row["output_tokens"]) for row in rows)


def test_a09_every_field_says_its_unit(tmp_path: Path) -> None:
    """Columns and keys that are not counts or texts end in their unit; `duration` is the contract's one exception."""
    found = run(a09())
    found.write(tmp_path)
    names: set[str] = set(found.summary)
    for file in ("requests.csv", "iterations.csv"):
        names |= set((tmp_path / file).read_text().splitlines()[0].split(","))
    bare = {
        name
        for name in names - TEXTS - COUNTS
        if not name.endswith(UNITS) and not name.startswith("n_") and not re.fullmatch("cost_per_.*|slo_.*", name)
    }
    assert bare == set()


@pytest.mark.parametrize(
    ("line", "right"), [("horizon: 5", "horizon_s"), ("horizon_ms: 5", "horizon_s"), ("slo: {ttft: 5}", "ttft_ms")]
)
def test_a09_a_key_without_its_unit_is_refused(line: str, right: str) -> None:
    """A key whose unit is missing or wrong is refused with the right name."""
    with pytest.raises(InvalidInput, match=f"unknown key.*{right}"):
        load(text(listed([("r0", 0, 100, 11)]), more=line))


@pytest.mark.parametrize("key", ["arrival", "arrival_s", "cancel"])
def test_a09_a_request_without_units_is_refused(key: str) -> None:
    """The same inside a list of requests."""
    with pytest.raises(InvalidInput, match=rf"workload\.requests\[0\]\.{key}"):
        load(text(listed([("r0", 0, 100, 11)], keys=f", {key}: 1")))


def test_a10_percentiles_of_few() -> None:
    """A10: TTFTs of 100 to 1,000 ms: p50 550, p90 910, p99 991, and p99 warns that ten are too few, p90 does not."""
    rows = [(f"r{i}", 5000 * i, 1000 * i - 100, 1) for i in range(1, 11)]  # 10 ms and 0.1 ms a token, alone each
    found = run(text(listed(rows), scheduler=f"kind: vllm, max_num_batched_tokens: 16384, {PLAIN}")).summary
    assert (found["p50_ttft_ms"], found["p90_ttft_ms"], found["p99_ttft_ms"]) == pytest.approx((550, 910, 991))
    assert found["n_ttft"] == 10
    assert any("p99" in line and "TTFT" in line for line in found["warnings"])
    assert not any("p90" in line for line in found["warnings"])
    alone = run(text(listed([("r0", 0, 4900, 1)]))).summary
    assert {alone[f"{p}_ttft_ms"] for p in ("mean", "p50", "p90", "p99", "max")} == {500.0}
    assert alone["mean_tpot_ms"] is None


def trace(folder: Path, origin: str) -> str:
    """A three-row trace whose clock starts at `origin`, as a scenario."""
    base = float(origin)
    rows = "".join(f"{base + at:.3f},1,5\n" for at in (0, 0.5, 1.25))
    (folder / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    path = folder / "scenario.yaml"
    path.write_text(text("{kind: trace, path: trace.csv, format: batchsim}", cost=FLAT))
    return str(path)


def test_a13_the_origin_of_a_trace_does_not_matter(tmp_path: Path) -> None:
    """A13: timestamps from 0 and from 1,790,000,000 s give the same arrivals, 0, 500 and 1,250 ms, and the same run."""
    runs = [simulate(load_file(trace(tmp_path, origin))) for origin in ("0", "1790000000")]
    for found in runs:
        assert found.records.requests.arrival_ns.tolist() == [0, 500_000_000, 1_250_000_000]
        assert found.summary["duration"] == pytest.approx(1.3)
    assert np.array_equal(runs[0].records.requests.finished_ns, runs[1].records.requests.finished_ns)


def test_a13_throughput_counts_from_the_first_arrival() -> None:
    """A list whose first request comes at 1,000 s is as fast as one that starts at 0."""
    early, late = (run(text(listed([("r0", at, 1, 5)]), cost=FLAT)).summary for at in (0, 1_000_000))
    assert early["output_throughput"] == late["output_throughput"] == pytest.approx(100)


def every_half_second(count: int) -> str:
    """Requests of 1,000 ms service, one every 500 ms."""
    return listed([(f"r{i}", 500 * i, 1, 100) for i in range(count)])


def test_a17_the_backlog_at_the_horizon_is_reported() -> None:
    """A17: of 20 requests 10 complete, 1 runs and 9 wait at the horizon; a warning calls the latencies censored."""
    found = run(text(every_half_second(20), scheduler=ONE_SEAT, cost=FLAT, more="horizon_s: 10.25")).summary
    assert [found[k] for k in ("submitted", "completed", "running_at_end", "waiting_at_end")] == [20, 10, 1, 9]
    assert any("censored" in line for line in found["warnings"])


def test_a17_overload_shows_in_the_waits() -> None:
    """Twice the capacity for 1,000 s: the k-th waits 500 k ms, the last 999.5 s, and the run is not stable."""
    found = run(text(every_half_second(2000), scheduler=ONE_SEAT, cost=FLAT))
    assert list(ms(found, "queue_ms").values()) == pytest.approx([500.0 * k for k in range(2000)])
    assert found.summary["stable"] is False
    assert found.summary["offered_rate_per_s"] == pytest.approx(2.0)


def test_a17_a_bounded_queue() -> None:
    """With max_num_queued_reqs 100 nobody waits over 99.5 s: 1,100 complete, 900 are rejected with the limit."""
    scheduler = f"{ONE_SEAT}, max_num_queued_reqs: 100"
    found = run(text(every_half_second(2000), scheduler=scheduler, cost=FLAT))
    assert (found.summary["completed"], found.summary["rejected"]) == (1100, 900)
    assert max(value for value in ms(found, "queue_ms").values() if value == value) == pytest.approx(99_500)
    assert all("100" in reason for reason in found.records.requests.reasons.values())
    assert int(found.iterations["waiting"].max()) <= 100


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "wait_s"), [(0.8, 2.0), (0.5, 0.5)])
def test_a29_the_wait_of_a_busy_server(rate: float, wait_s: float) -> None:
    """A29: M/D/1 with 1 s of service, 200,000 requests, three seeds: the wait within 5 %, utilisation within 1 %."""
    workload = f"""
  requests: 200000
  arrivals: {{kind: poisson, rate_per_s: {rate}}}
  prompt_tokens: {{kind: fixed, tokens: 1}}
  output_tokens: {{kind: fixed, tokens: 100}}"""
    for seed in (1, 2, 3):
        found = simulate(load(text(workload, scheduler=ONE_SEAT, cost=FLAT), seed=seed))
        requests = found.records.requests
        waits_s = (requests.admitted_ns - requests.arrival_ns) / 1e9
        assert float(waits_s.mean()) == pytest.approx(wait_s, rel=0.05)
        assert found.summary["gpu_busy_fraction"] == pytest.approx(rate, rel=0.01)
        served = found.summary["completed"] / found.summary["duration"]
        assert found.summary["mean_waiting"] == pytest.approx(served * float(waits_s.mean()), rel=0.01)
        assert np.mean(waits_s == 0) == pytest.approx(1 - rate, abs=0.01)  # an idle server starts at once


def test_b14_a_client_cap_is_not_hidden() -> None:
    """B14: server-side E2E 500; from schedule mean 1,900, max 3,300, client queue mean 1,400; uncapped 500 both."""
    rows = [(f"r{i}", 100 * i, 1, 50) for i in range(8)]
    eight = f"kind: vllm, max_num_seqs: 8, {PLAIN}"
    capped = run(text(listed(rows, "\n  max_concurrency: 1"), scheduler=eight, cost=FLAT))
    assert set(ms(capped, "e2e_ms").values()) == {500.0}
    whole = list(ms(capped, "from_schedule_e2e_ms").values())
    assert (np.mean(whole), np.percentile(whole, 99), max(whole)) == pytest.approx((1900, 3272, 3300))
    assert np.mean(list(ms(capped, "client_queue_ms").values())) == pytest.approx(1400)
    free = run(text(listed(rows), scheduler=eight, cost=FLAT))
    assert set(ms(free, "e2e_ms").values()) == {500.0}


def test_b16_answers_of_one_token() -> None:
    """B16: the TPOT of one token is undefined, excluded and countable; E2E = TTFT."""
    found = run(text(listed([(f"r{i}", 0, 1, 1) for i in range(3)] + [("r3", 0, 1, 5)]), cost=FLAT))
    assert (found.summary["mean_tpot_ms"], found.summary["n_tpot"], found.summary["completed"]) == (10.0, 1, 4)
    assert [ms(found, "e2e_ms")[f"r{i}"] for i in range(3)] == [10.0] * 3


@pytest.mark.parametrize(("prompt", "output", "key"), [(0, 5, "prompt_tokens"), (5, 0, "output_tokens")])
def test_b16_zero_tokens_are_refused(prompt: int, output: int, key: str, tmp_path: Path) -> None:
    """Rows without tokens are failures: refused with their row, or left out and counted on request."""
    with pytest.raises(InvalidInput, match=rf"requests\[0\]\.{key}: 0"):
        load(text(listed([("r0", 0, prompt, output)]).replace(f", max_tokens: {output}", "")))
    (tmp_path / "t.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,{prompt},{output}\n")
    path = tmp_path / "s.yaml"
    path.write_text(text("{kind: trace, path: t.csv, format: batchsim}"))
    with pytest.raises(InvalidInput, match=r"t\.csv:3"):
        simulate(load_file(str(path)))
    path.write_text(text("{kind: trace, path: t.csv, format: batchsim, skip_invalid: true}"))
    found = simulate(load_file(str(path)))
    assert found.summary["completed"] == 1
    assert any("1" in line for line in found.records.workload.notes)


@pytest.mark.parametrize(("count", "tpot", "rate"), [(1, 11, 90.917), (8, 18, 444.62), (32, 42, 762.43)])
def test_b18_throughput_is_not_the_inverse_of_tpot(count: int, tpot: float, rate: float) -> None:
    """B18: 1, 8 and 32 together: TPOT 11, 18, 42 ms, and decode throughput x TPOT = running sequences."""
    found = run(text(listed([(f"r{i}", 0, 1, 1000) for i in range(count)]))).summary
    assert found["mean_tpot_ms"] == pytest.approx(tpot)
    assert found["output_throughput"] == pytest.approx(rate, rel=1e-4)
    assert found["mean_running"] == pytest.approx(count)
    assert found["mean_waiting"] == 0


@pytest.mark.parametrize(("think_s", "rate"), [(0, 8.0), (1, 800 / 199)])
def test_b18_a_closed_loop(think_s: float, rate: float) -> None:
    """Eight clients, 1 s of service: N/(R + Z) = 8 and about 4 requests/s (no thinking after the last round)."""
    workload = f"""
  requests: 800
  arrivals: {{kind: closed, concurrency: 8, think_s: {think_s}}}
  prompt_tokens: {{kind: fixed, tokens: 1}}
  output_tokens: {{kind: fixed, tokens: 100}}"""
    found = run(text(workload, cost=FLAT)).summary
    assert found["request_throughput"] == pytest.approx(rate, rel=1e-9)
    assert found["stable"] is None


def test_b19_a_straggler_halves_the_average() -> None:
    """B19 a: 31 short answers and a long one: 255 tok/s over the whole run of 20 s, 32 tokens a step while all run."""
    rows = [(f"r{i}", 0, 1, 100) for i in range(31)] + [("r31", 0, 1, 2000)]
    found = run(text(listed(rows), scheduler=f"kind: vllm, max_num_seqs: 32, {PLAIN}", cost=FLAT))
    assert found.summary["duration"] == pytest.approx(20)
    assert found.summary["output_throughput"] == pytest.approx(255)
    assert tokens_between(found.records, 0, 1_000_000_000) == 3200


def test_b19_the_first_wave_of_a_closed_loop() -> None:
    """B19 b: p99 TTFT 1,536.9 ms with the first 16 requests, 253.8 without; the worst 1,793.4; makespan 106,224 ms."""
    rows = [(f"r{i}", 0, 1024, 50 + 37 * i % 101) for i in range(400)]
    workload = listed(rows, "\n  arrivals: {kind: closed, concurrency: 16, think_s: 0}")
    found = run(text(workload, scheduler=f"kind: vllm, max_num_seqs: 256, max_num_batched_tokens: 2048, {PLAIN}"))
    ttft = np.array(list(ms(found, "ttft_ms").values()))
    assert found.summary["p99_ttft_ms"] == pytest.approx(1536.9, abs=0.05)
    assert np.percentile(ttft[16:], 99) == pytest.approx(253.8, abs=0.05)
    assert ttft[:16].max() == pytest.approx(1793.4)
    assert int(found.records.requests.finished_ns.max()) == 106_224_000_000
    assert found.records.requests.status.tolist() == [Status.COMPLETED] * 400
