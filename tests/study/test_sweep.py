"""Sweeps: resuming, workers, what changes the key of a run, intervals."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from batchsim.cli import main
from batchsim.errors import InvalidInput
from batchsim.study import curves, sweep
from batchsim.study.work import Keys, Part
from tests.study.given import given, small

OVER = {"workload.arrivals.rate_per_s": [2, 6, 10], "scheduler.max_num_seqs": [4, 256]}


def test_the_files_hold_the_swept_keys_the_seed_and_the_summary(tmp_path: Path) -> None:
    """results.csv has one row a run, curve.csv one a combination, curves.png is a picture."""
    result = sweep(small(), OVER, seeds=2, out=tmp_path, jobs=1)
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert len(rows) == 12
    assert list(rows[0])[:3] == ["workload.arrivals.rate_per_s", "scheduler.max_num_seqs", "seed"]
    assert {row["seed"] for row in rows} == {"1", "2"}
    assert all(row["completed"] == "300" and float(row["p99_ttft_ms"]) > 0 for row in rows)
    assert all(row["window.excluded_requests"] != "0" for row in rows)
    assert len(list(csv.DictReader((tmp_path / "curve.csv").open()))) == 6
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert len(result.table()) == 12
    assert len(result.curve()) == 6


def test_a_second_time_nothing_runs_and_the_bytes_are_the_same(tmp_path: Path) -> None:
    """The store answers; the files are written again, equal."""
    first = sweep(small(), OVER, out=tmp_path, jobs=1)
    before = (tmp_path / "results.csv").read_bytes()
    second = sweep(small(), OVER, out=tmp_path, jobs=1)
    assert (first.computed, second.computed) == (6, 0)
    assert (tmp_path / "results.csv").read_bytes() == before


def test_a_larger_grid_runs_only_what_is_new(tmp_path: Path) -> None:
    """Runs are kept by what they are, not by the grid that they came from."""
    sweep(small(), OVER, out=tmp_path, jobs=1)
    wider = {**OVER, "workload.arrivals.rate_per_s": [2, 4, 6, 10]}
    assert sweep(small(), wider, out=tmp_path, jobs=1).computed == 2


def test_processes_change_no_byte(tmp_path: Path) -> None:
    """Two worker processes and none give the same files."""
    sweep(small(), OVER, seeds=2, out=tmp_path / "one", jobs=1)
    sweep(small(), OVER, seeds=2, out=tmp_path / "two", jobs=2)
    for name in ("results.csv", "curve.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.slow
def test_a_local_dask_cluster_changes_no_byte(tmp_path: Path) -> None:
    """The same rows come back from Dask workers."""
    pytest.importorskip("distributed", reason="dask is not installed: pip install 'batchsim[dask]'")
    sweep(small(), OVER, out=tmp_path / "here", jobs=1)
    sweep(small(), OVER, out=tmp_path / "dask", jobs=2, backend="dask")
    assert (tmp_path / "here/results.csv").read_bytes() == (tmp_path / "dask/results.csv").read_bytes()


@pytest.mark.slow
def test_a_local_ray_changes_no_byte(tmp_path: Path) -> None:
    """The same rows come back from Ray workers."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'batchsim[ray]'")
    sweep(small(), OVER, out=tmp_path / "here", jobs=1)
    sweep(small(), OVER, out=tmp_path / "ray", jobs=2, backend="ray")
    assert (tmp_path / "here/results.csv").read_bytes() == (tmp_path / "ray/results.csv").read_bytes()


def test_common_random_numbers() -> None:
    """Points of the same seed serve the very same tokens; another seed draws others."""
    values = given()
    values["workload"]["prompt_tokens"] = {"kind": "exponential", "mean": 200}
    from batchsim.scenario import scenario

    rows = sweep(scenario(values), OVER, seeds=2, jobs=1).rows
    by_seed = {seed: {row["total_input_tokens"] for row in rows if row["seed"] == seed} for seed in (1, 2)}
    assert [len(found) for found in by_seed.values()] == [1, 1]
    assert by_seed[1] != by_seed[2]


def _command(folder: Path, out: str, *more: str) -> list[str]:
    over = ["--over", "workload.arrivals.rate_per_s=1:16:1", "--seeds", "2", "--quiet", *more]
    return [sys.executable, "-c", "from batchsim.cli import main; main()", "sweep", str(folder / "s.yaml"), *over,
            "--out", str(folder / out)]  # fmt: skip


@pytest.mark.slow
def test_five_kills_and_a_resume_leave_the_bytes_of_a_run_without(tmp_path: Path) -> None:
    """SIGKILL at five random moments, then once to the end: results.csv and curve.csv as if nothing had happened, and
    what was done was not done again."""
    seed = random.randrange(10**6)
    print(f"replay: random.Random({seed})")
    moments = random.Random(seed)
    values = given()
    values["workload"]["requests"] = 3_000
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(values))
    subprocess.run(_command(tmp_path, "whole", "--jobs", "1"), check=True, capture_output=True)
    store = tmp_path / "killed" / "runs.jsonl"
    for _ in range(5):
        running = subprocess.Popen(
            _command(tmp_path, "killed", "--jobs", moments.choice(["1", "2"])), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            lines = store.read_bytes().count(b"\n") if store.exists() else 0
            deadline = time.monotonic() + 60
            while running.poll() is None and time.monotonic() < deadline:
                now = store.read_bytes().count(b"\n") if store.exists() else 0
                if now > lines:
                    time.sleep(moments.uniform(0, 0.4))
                    break
                time.sleep(0.01)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    done = store.read_bytes().count(b"\n")
    subprocess.run(_command(tmp_path, "killed", "--jobs", "1"), check=True, capture_output=True)
    assert 5 <= done <= 32
    assert store.read_bytes().count(b"\n") <= 32 + 5  # at most the rows that kills cut are there twice
    for name in ("results.csv", "curve.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_two_runners_on_one_store(tmp_path: Path) -> None:
    """Both end well, with equal results, and no row is damaged."""
    values = given()
    values["workload"]["requests"] = 500
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(values))
    both = [subprocess.Popen(_command(tmp_path, "both", "--jobs", "1"), stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    subprocess.run(_command(tmp_path, "alone", "--jobs", "1"), check=True, capture_output=True)
    assert (tmp_path / "both/results.csv").read_bytes() == (tmp_path / "alone/results.csv").read_bytes()
    from batchsim.study.store import Store

    store = Store(tmp_path / "both/runs.jsonl")
    assert len(store.rows()) == 32
    assert store.damaged == 0


def test_the_key_of_a_run_is_what_it_is(tmp_path: Path) -> None:
    """Equal scenarios share a key; another seed, part of the run, or file content has another."""
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,2\n1,10,2\n")
    from batchsim.scenario import scenario

    values = given(workload={"kind": "trace", "path": str(trace), "format": "batchsim"})
    one = scenario(values)
    key = Keys(None).of(one)
    assert Keys(None).of(scenario(values)) == key
    assert Keys(None).of(one.replace({"seed": 2})) != key
    assert Keys(Part()).of(one) != key
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,2\n1,11,2\n")
    assert Keys(None).of(one) != key


def test_a_wrong_value_is_refused_before_the_first_run(tmp_path: Path) -> None:
    """One bad combination refuses the sweep, naming the key, and nothing was run."""
    with pytest.raises(InvalidInput, match="max_num_seqs"):
        sweep(small(), {"scheduler.max_num_seqs": [8, -1]}, out=tmp_path, jobs=1)
    assert not (tmp_path / "runs.jsonl").exists()


def test_a_combination_that_does_not_fit_has_no_figures_and_says_so() -> None:
    """140 GB of weights on one GPU: an empty row with the reason, and a warning; the other rows are there."""
    values = given(model="llama-3.1-70b", cost_model={"kind": "roofline"}, kv_cache={"block_size": 16})
    from batchsim.scenario import scenario

    result = sweep(scenario(values), {"tensor_parallel": [1, 4]}, jobs=1)
    assert "does not fit" in result.rows[0]["does_not_fit"]
    assert "completed" not in result.rows[0]
    assert result.rows[1]["completed"] == 300
    assert any("have no figures" in warning for warning in result.warnings)


def test_one_seed_has_no_interval_and_few_are_said_to_be_few() -> None:
    """n = 1: bounds are None. n = 2: bounds, and the words. A t interval of 1 and 3 is 2 ± 12.7."""
    rows = [{"k": 1, "p99_ttft_ms": 1.0, "stable": True}, {"k": 1, "p99_ttft_ms": 3.0, "stable": True}]
    one = curves.curve(rows[:1], ["k"])[0]
    two = curves.curve(rows, ["k"])[0]
    assert (one["p99_ttft_ms_low"], one["interval"]) == (None, "none: one seed")
    assert two["p99_ttft_ms"] == 2
    assert two["p99_ttft_ms_high"] == pytest.approx(2 + 12.706, abs=1e-3)
    assert "few samples (2 seeds)" in two["interval"]
    boot = curves.curve(rows, ["k"], "bootstrap")[0]
    assert boot == curves.curve(rows, ["k"], "bootstrap")[0]
    assert 1 <= boot["p99_ttft_ms_low"] <= boot["p99_ttft_ms_high"] <= 3


def test_a_metric_that_one_seed_lacks_is_undefined() -> None:
    """The mean of the survivors is not the mean."""
    rows = [{"k": 1, "p99_ttft_ms": 1.0, "stable": True}, {"k": 1, "p99_ttft_ms": None, "stable": True}]
    assert curves.curve(rows, ["k"])[0]["p99_ttft_ms"] is None


def test_the_knee_is_where_throughput_over_latency_is_largest() -> None:
    """1/1, 2/1.5, 2.5/4: the second; none where it stands at an end."""
    line = [{"request_throughput": x, "mean_e2el_ms": y} for x, y in ((1, 1), (2, 1.5), (2.5, 4))]
    assert curves.knee(line) is line[1]
    assert curves.knee(line[:2]) is None
    assert curves.knee([line[1], line[2], line[2]]) is None


def test_the_command_prints_the_curve_and_exits_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout is at most 100 wide; the store is under DIR."""
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(given()))
    with pytest.raises(SystemExit) as left:
        main(["sweep", str(tmp_path / "s.yaml"), "--over", "workload.arrivals.rate_per_s=2:8:2", "--jobs", "1",
              "--out", str(tmp_path / "o"), "--quiet"])  # fmt: skip
    assert left.value.code in (0, None)
    out = capsys.readouterr().out
    assert "4 runs ·" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    assert (tmp_path / "o/results.csv").exists()
