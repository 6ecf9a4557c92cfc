"""Cases A13, A15 and B28: origins, units and order of a trace's times, and a trace that must not fill the memory."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchsim.scenario import scenario
from batchsim.simulation import Run, simulate
from batchsim.workload import traces

MS = (0, 10535, 27482)
RUN = [sys.executable, "-c", "from batchsim.cli import main; main()"]


def case(path: Path, form: str, **more: Any) -> dict[str, Any]:
    """A scenario that reads a trace, in the textbook's prices."""
    return {
        "name": "trace", "model": "llama-3.1-8b", "gpu": "h100-sxm", "scheduler": {"kind": "vllm"},
        "cost_model": {"kind": "linear", "base_ms": 10, "prefill_token_ms": 0.1, "decode_seq_ms": 1.0},
        "workload": {"kind": "trace", "path": str(path), "format": form} | more,
    }  # fmt: skip


def run(path: Path, form: str, **more: Any) -> Run:
    """Its run."""
    return simulate(scenario(case(path, form, **more)))


def seconds_csv(path: Path, arrivals: tuple[float | str, ...]) -> Path:
    """A batchsim trace: three requests of 100 in and 10 out."""
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{at},100,10\n" for at in arrivals))
    return path


def mooncake(path: Path, arrivals: tuple[int, ...]) -> Path:
    """The same as JSONL with `timestamp`."""
    rows = [
        {"timestamp": at, "input_length": 100, "output_length": 10, "hash_ids": [n]} for n, at in enumerate(arrivals)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a13_the_origin_of_time_does_not_matter(tmp_path: Path) -> None:
    """A13: from 0 and from 1,790,000,000 s: arrivals 0, 500, 1,250 ms, results and throughput the same."""
    near = run(seconds_csv(tmp_path / "near.csv", ("0", "0.5", "1.25")), "batchsim")
    far = run(seconds_csv(tmp_path / "far.csv", ("1790000000.000", "1790000000.500", "1790000001.250")), "batchsim")
    assert (far.records.requests.arrival_ns / 1e6).tolist() == [0, 500, 1250]
    assert near.requests.equals(far.requests)
    assert far.summary["duration"] == pytest.approx(1.25 + 0.020 + 9 * 0.011)
    assert far.summary["request_throughput"] == pytest.approx(3 / 1.369)


def test_a13_two_origins_in_one_trace_are_refused(tmp_path: Path) -> None:
    """A13: a second column of times that is an epoch beside a relative one is refused, with both named."""
    file = tmp_path / "burst.csv"
    file.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type,Elapsed time\n"
        "5,ChatGPT,100,10,110,Conversation log,1790000000.5\n"
    )
    done = subprocess.run([*RUN, "trace", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Elapsed time: 1790000000.5: is an epoch, not a span" in done.stderr


def test_a13_nothing_completed_is_loud(tmp_path: Path) -> None:
    """A13: a run that completes nothing warns and exits with 3."""
    file = seconds_csv(tmp_path / "t.csv", ("0", "0.5", "1.25"))
    text = json.dumps(case(file, "batchsim") | {"kv_cache": {"block_size": 16, "num_blocks": 2}})
    (tmp_path / "case.json").write_text(text)
    done = subprocess.run([*RUN, "run", str(tmp_path / "case.json")], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "nothing completed" in done.stderr


def test_a15_the_unit_is_the_formats(tmp_path: Path) -> None:
    """A15: 0, 10535, 27482 are ms for mooncake (0, 10.535, 27.482 s) and s for batchsim (7.6 hours)."""
    in_ms = traces.read(mooncake(tmp_path / "m.jsonl", MS), format="mooncake")
    in_s = traces.read(seconds_csv(tmp_path / "s.csv", MS), format="batchsim")
    assert (in_ms.workload.arrival_ns / 1e9).tolist() == [0, 10.535, 27.482]
    assert (in_s.workload.arrival_ns / 1e9).tolist() == [0, 10535, 27482]


@pytest.mark.parametrize(
    ("make", "span", "rate"), [(mooncake, "27.5 s", "0.109"), (seconds_csv, "27,482.0 s", "0.000109")]
)
def test_a15_span_and_rate_show_a_wrong_unit(tmp_path: Path, make: Any, span: str, rate: str) -> None:
    """A15: `batchsim trace` prints the span and the mean rate: 0.109 against 0.000109 requests/s."""
    done = subprocess.run([*RUN, "trace", str(make(tmp_path / "t", MS))], capture_output=True, text=True, check=True)
    assert f"3 requests over {span}" in done.stdout
    assert f"rate      {rate} requests/s" in done.stdout


def test_a15_unsorted_rows_are_sorted_and_counted(tmp_path: Path) -> None:
    """A15: 0, 300, 100 ms give the run of the sorted file, and a note with the count, 1."""
    found = run(mooncake(tmp_path / "u.jsonl", (0, 300, 100)), "mooncake")
    ordered = run(mooncake(tmp_path / "o.jsonl", (0, 100, 300)), "mooncake")
    assert found.requests.equals(ordered.requests)
    trace = traces.read(tmp_path / "u.jsonl", format="mooncake")
    assert trace.unsorted == 1
    assert any("1 row of u.jsonl stood out of time order" in note for note in trace.workload.notes)


def test_a15_no_unit_and_no_format_is_told_or_refused(tmp_path: Path) -> None:
    """A15: auto says what it took the file for; a lone `timestamp` without what tells a format is refused."""
    _, told = traces.detect(mooncake(tmp_path / "m.jsonl", MS))
    assert "read as mooncake" in told
    (tmp_path / "x.csv").write_text("timestamp,in,out\n0,1,1\n")
    done = subprocess.run([*RUN, "trace", str(tmp_path / "x.csv")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "format not recognised by its columns (timestamp, in, out)" in done.stderr


def big(path: Path, rows: int) -> Path:
    """Rows of about 500 in and 100 out at 18 a second, just below what one H100 does."""
    rng = np.random.default_rng(7)
    at, prompt = np.cumsum(rng.exponential(1 / 18, rows)), rng.integers(300, 701, rows)
    output = rng.integers(50, 151, rows)
    with path.open("w") as stream:
        stream.writelines(
            f'{{"arrival_s": {a:.6f}, "prompt_tokens": {p}, "output_tokens": {o}}}\n'
            for a, p, o in zip(at.tolist(), prompt.tolist(), output.tolist(), strict=True)
        )
    return path


def peak_mib(path: Path, rows: int, out: Path) -> float:
    """The memory that a run of a trace's first rows took at most, its per-request file written."""
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom batchsim.scenario import load\n"
        "from batchsim.simulation import simulate\nrun = simulate(load(sys.argv[1]))\n"
        "assert run.summary['completed'] == int(sys.argv[3])\nrun.write(Path(sys.argv[2]), figures=False)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    given = case(path, "batchsim", limit=rows) | {"cost_model": {"kind": "calibrated"}}
    out.mkdir()
    (out / "case.json").write_text(json.dumps(given))
    command = [sys.executable, "-c", code, str(out / "case.json"), str(out), str(rows)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout)


def test_b28_the_first_rows_do_not_depend_on_the_rest(tmp_path: Path) -> None:
    """B28: the first 2,000 of 4,000 rows, cut at one horizon, come out as a file of those 2,000 rows does."""
    whole = big(tmp_path / "whole.jsonl", 4000)
    first = tmp_path / "first.jsonl"
    first.write_text("".join(whole.read_text().splitlines(keepends=True)[:2000]))
    last_s = float(json.loads(first.read_text().splitlines()[-1])["arrival_s"])
    first_s = float(json.loads(first.read_text().splitlines()[0])["arrival_s"])
    cut = {"horizon_s": last_s - first_s}  # up to the 2,000th arrival, which is not sent
    long = simulate(scenario(case(whole, "batchsim") | cut)).records.requests
    short = simulate(scenario(case(first, "batchsim") | cut)).records.requests
    for name in ("status", "admitted_ns", "first_token_ns", "finished_ns", "emitted_tokens", "preemptions"):
        assert np.array_equal(getattr(long, name)[:1999], getattr(short, name)[:1999]), name


def test_b28_a_gzip_file_reads_the_same(tmp_path: Path) -> None:
    """B28: a trace may be as large as it is packed: gzip gives the same rows."""
    plain = big(tmp_path / "t.jsonl", 500)
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    one, other = traces.read(plain).workload, traces.read(packed).workload
    assert np.array_equal(one.arrival_ns, other.arrival_ns)
    assert np.array_equal(one.prompt_tokens, other.prompt_tokens)


@pytest.mark.slow
def test_b28_memory_grows_by_bytes_a_request(tmp_path: Path) -> None:
    """B28: from 20,000 to 120,000 requests the peak grows by less than 700 bytes each: a million stay below 1 GiB."""
    file = big(tmp_path / "t.jsonl", 120_000)
    small, large = (peak_mib(file, rows, tmp_path / str(rows)) for rows in (20_000, 120_000))
    assert (large - small) * 2**20 / 100_000 < 700
    assert small + (large - small) * 9.8 < 1024
