"""The same seed gives the same bytes, in any process and under any hash seed; another seed gives others."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchsim.scenario import scenario
from batchsim.simulation import simulate
from tests.laws.scenarios import SCHEDULERS, base

PROGRAM = """
import json, sys
from pathlib import Path
from batchsim.report.files import make_folder, write_iterations_csv, write_json, write_requests_csv
from batchsim.scenario import scenario
from batchsim.simulation import simulate
for name, given in json.loads(sys.stdin.read()).items():
    run, folder = simulate(scenario(given)), Path(sys.argv[1]) / name
    make_folder(folder)
    write_json(folder / "summary.json", run.summary)
    write_requests_csv(folder / "requests.csv", run.records)
    write_iterations_csv(folder / "iterations.csv", run.records)
"""


def mixed(kind: str, seed: int = 42, **more: Any) -> dict[str, Any]:
    """A11: Poisson requests of three tenants with priorities, and little memory."""
    classes = [
        {"name": name, "share": share, "tenant": name, "priority": priority}
        | {
            "prompt_tokens": {"kind": "lognormal", "mean": 60, "sigma": 0.7},
            "output_tokens": {"kind": "geometric", "mean": 20},
        }
        for name, share, priority in (("a", 0.5, 1), ("b", 0.3, 0), ("c", 0.2, 2))
    ]
    workload = {"requests": 120, "arrivals": {"kind": "poisson", "rate_per_s": 8}, "mix": classes}
    return (
        base(seed=seed, scheduler={"kind": kind}, kv_cache={"block_size": 16, "num_blocks": 150}, workload=workload)
        | more
    )


def digests(folder: Path, scenarios: dict[str, Any], hash_seed: str) -> dict[str, str]:
    """Of every file that a process of its own writes for these scenarios."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    subprocess.run(command, input=json.dumps(scenarios), text=True, check=True, env=environment, timeout=120)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def backwards(given: Any) -> Any:
    """The same mapping with the keys of every level in reverse order."""
    if isinstance(given, dict):
        return {key: backwards(given[key]) for key in reversed(given)}
    return given


def test_same_seed_same_bytes_across_processes(tmp_path: Path) -> None:
    """summary.json, requests.csv and iterations.csv are identical under PYTHONHASHSEED 0, 1 and random."""
    scenarios = {kind: mixed(kind) for kind in SCHEDULERS}
    scenarios["vllm-priority"] = mixed("vllm", scheduler={"kind": "vllm", "policy": "priority"})
    found = [digests(tmp_path / seed, scenarios, seed) for seed in ("0", "1", "random")]
    assert len(found[0]) == 3 * len(scenarios)
    assert found[0] == found[1] == found[2]


def test_the_order_of_keys_changes_nothing(tmp_path: Path) -> None:
    """A scenario written in another order is the same scenario, to the byte."""
    given = mixed("vllm")
    one = digests(tmp_path / "one", {"run": given}, "0")
    other = digests(tmp_path / "other", {"run": backwards(given)}, "0")
    assert one == other


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_only_the_seed_changes_it(kind: str) -> None:
    """Another seed gives another run, and the same seed the same one in one process too."""
    finished = [simulate(scenario(mixed(kind, seed))).records.requests.finished_ns for seed in (42, 42, 43)]
    assert np.array_equal(finished[0], finished[1])
    assert not np.array_equal(finished[0], finished[2])


def test_every_scheduler_sees_the_same_requests() -> None:
    """Common random numbers: arrivals and lengths do not depend on who serves them, nor on a metric asked for."""
    drawn = [scenario(mixed(kind)) for kind in SCHEDULERS]
    columns = [simulate(one).records.workload for one in drawn]
    priced = simulate(scenario(mixed("vllm", slo={"ttft_ms": 100}, price={"gpu_hour": 2}))).records
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "tenant"):
        assert all(
            np.array_equal(getattr(columns[0], name), getattr(other, name)) for other in [*columns, priced.workload]
        )
    plain = simulate(scenario(mixed("vllm"))).records.requests
    assert np.array_equal(plain.finished_ns, priced.requests.finished_ns)


def test_another_tenant_moves_no_other_stream() -> None:
    """Arrivals stay where they are when a class joins the mix: every source of chance has a stream of its own."""
    one, other = mixed("vllm"), mixed("vllm")
    other["workload"]["mix"][2]["share"] = 0.1
    other["workload"]["mix"].append(other["workload"]["mix"][2] | {"name": "d", "tenant": "d"})
    arrivals = [simulate(scenario(given)).records.workload.arrival_ns for given in (one, other)]
    assert np.array_equal(*arrivals)
