"""A million requests: time and memory of the run, the summary and the files; time against size; rows written; reading a trace.

Each measurement is a process of its own, on one core; the figures are printed and held against their limits. Processor
time, not time on the clock, so that a busy machine measures the same. Run with `pytest -m bench -s tests/benchmarks`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from batchsim.report.table import Codes, Column, Decimal, Numbered, csv_blocks
from batchsim.workload import traces

MILLION = 1_000_000
SCENARIO = """
name: bench
model: qwen3-8b
gpu: h100-sxm
cost_model: {{kind: calibrated}}
scheduler: {{kind: vllm, max_num_seqs: 256, max_num_batched_tokens: 8192}}
workload:
  requests: {requests}
  arrivals: {{kind: poisson, rate_per_s: 20}}
  prompt_tokens: {{kind: fixed, tokens: 512}}
  output_tokens: {{kind: fixed, tokens: 128}}
"""
CODE = """
import json, resource, sys, time
from pathlib import Path
from batchsim.scenario import load
from batchsim.simulation import simulate
def used():
    return time.process_time()
scenario, out = sys.argv[1:]
began = used()
run = simulate(load(scenario))
simulated = used()
assert run.summary["n_itl"] == 127 * run.summary["submitted"]
summarised = used()
if out:
    run.write(Path(out), figures=False)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(simulated - began, summarised - began, used() - began, peak)
"""
TRACES = {
    "plain.csv": ("arrival_s,prompt_tokens,output_tokens\n", "{a:.6f},{p},{o}\n"),
    "named.csv": ("id,arrival_s,prompt_tokens,output_tokens,tenant\n", "req-{i},{a:.6f},{p},{o},t{t}\n"),
    "plain.jsonl": ("", '{{"arrival_s": {a:.6f}, "prompt_tokens": {p}, "output_tokens": {o}}}\n'),
    "named.jsonl": (
        "", '{{"id": "q{i}", "arrival_s": {a:.6f}, "prompt_tokens": {p}, "output_tokens": {o}, "tenant": "t{t}"}}\n'
    ),
    "mooncake.jsonl": (
        "", '{{"timestamp": {ms}, "input_length": {p}, "output_length": {o}, "hash_ids": [{h}, {i}]}}\n'
    ),
    "long.jsonl": (
        "", '{{"timestamp": {ms}, "input_length": 8192, "output_length": {o}, "hash_ids": [{h}, {ids}]}}\n'
    ),
}  # fmt: skip


def measure(folder: Path, requests: int, *, write: bool) -> tuple[float, float, float, float]:
    """(simulated, with summary, with files: seconds; peak: MiB) of a run of so many requests."""
    scenario = folder / f"{requests}.yaml"
    scenario.write_text(SCENARIO.format(requests=requests))
    command = [sys.executable, "-c", CODE, str(scenario), str(folder / "out") if write else ""]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout
    simulated, summarised, written, peak = map(float, text.split())
    print(
        f"\n{requests:>9,} requests: run {simulated:.1f} s, summary {summarised - simulated:.1f} s, "
        f"files {written - summarised:.1f} s, {peak:.0f} MiB"
    )
    return simulated, summarised, written, peak


@pytest.mark.bench
def test_a_million_requests(tmp_path: Path) -> None:
    """Summary in under 25 s and 600 MB; with all tables written under 40 s."""
    _, summarised, _, peak = measure(tmp_path, MILLION, write=False)
    _, _, written, _ = measure(tmp_path, MILLION, write=True)
    assert peak * 2**20 < 600e6
    assert summarised < 25
    assert written < 40


@pytest.mark.bench
def test_time_grows_with_the_number_of_requests(tmp_path: Path) -> None:
    """Ten times the requests take at most 10.5 times the time: 50,000 against 500,000."""
    tenth = min(measure(tmp_path, 50_000, write=False)[1] for _ in range(3))
    assert measure(tmp_path, 500_000, write=False)[1] <= 10.5 * tenth


@pytest.mark.bench
@pytest.mark.parametrize("ids", ["numbered", "named"])
def test_rows_are_written_fast(ids: str) -> None:
    """A million rows like those of requests.csv, every column's values unlike each other: 600,000 a second."""
    rng = np.random.default_rng(0)
    codes = Codes(rng.integers(0, 3, MILLION), ["default", "chat", "batch"])
    columns: dict[str, Column] = {"id": Numbered("r", MILLION), "tenant": codes, "class": codes}
    if ids == "named":
        columns["id"] = [f"req-{number:x}" for number in range(MILLION)]
    columns |= {f"time_{place}": Decimal(rng.integers(0, 10**14, MILLION), 9) for place in range(4)}
    columns |= {f"took_{place}": Decimal(rng.integers(-1, 10**10, MILLION), 6) for place in range(5)}
    columns |= {f"count_{place}": rng.integers(0, 5000, MILLION) for place in range(8)}
    began = time.process_time()
    size = sum(map(len, csv_blocks(columns)))
    rate = MILLION / (time.process_time() - began)
    print(f"\n{ids}: {rate:,.0f} rows/s of {size / MILLION:.0f} bytes")
    assert rate > 600_000


@pytest.mark.bench
@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_read_fast(tmp_path: Path, name: str) -> None:
    """A million rows at 300,000 a second, ids, tenants and hash ids too; at 100,000 with 16 hash ids in every row."""
    rng = np.random.default_rng(0)
    at = np.cumsum(rng.exponential(0.05, MILLION)).tolist()
    prompt, output = rng.integers(513, 1024, MILLION).tolist(), rng.integers(1, 400, MILLION).tolist()
    head, row = TRACES[name]

    def ids(i: int) -> str:
        return ", ".join(map(str, range(16 * i, 16 * i + 15))) if "{ids}" in row else ""

    file = tmp_path / name
    with file.open("w") as stream:
        stream.write(head)
        stream.writelines(
            row.format(i=i, a=a, ms=int(1000 * a), p=p, o=o, t=i % 7, h=20 * MILLION + i % 1000, ids=ids(i))
            for i, (a, p, o) in enumerate(zip(at, prompt, output, strict=True))
        )
    began = time.process_time()
    assert traces.read(file).rows == MILLION
    rate = MILLION / (time.process_time() - began)
    print(f"\n{name}: {rate:,.0f} rows/s")
    assert rate > (100_000 if name == "long.jsonl" else 300_000)
