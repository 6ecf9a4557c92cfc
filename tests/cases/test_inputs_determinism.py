"""Case A11: same seed and input, same bytes, whatever the process, the hash seed and the order of keys."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from batchsim.scenario import scenario
from batchsim.simulation import simulate

LENGTHS = {
    "prompt_tokens": {"kind": "lognormal", "mean": 300, "p99": 1200},
    "output_tokens": {"kind": "geometric", "mean": 60},
}


def a_class(name: str, share: float, priority: int) -> dict[str, Any]:
    """A class of traffic with a tenant of its own and a shared system prompt."""
    return {
        "name": name,
        "share": share,
        "tenant": f"tenant-{name}",
        "priority": priority,
        "shared_prefix_tokens": 64,
    } | LENGTHS


CASE: dict[str, Any] = {
    "name": "a11",
    "seed": 42,
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "cost_model": {"kind": "calibrated"},
    "kv_cache": {"block_size": 16, "num_blocks": 3000},
    "scheduler": {"kind": "vllm", "policy": "priority", "enable_prefix_caching": True, "max_num_seqs": 64},
    "workload": {
        "requests": 300,
        "arrivals": {"kind": "poisson", "rate_per_s": 40},
        "mix": [a_class("a", 0.5, 0), a_class("b", 0.3, 1), a_class("c", 0.2, 2)],
    },
}
RUN = [sys.executable, "-c", "from batchsim.cli import main; main()"]


def reordered(value: Any) -> Any:
    """The same mapping with its keys the other way round, lists as they were."""
    if isinstance(value, dict):
        return {key: reordered(child) for key, child in reversed(value.items())}
    return [reordered(child) for child in value] if isinstance(value, list) else value


def files_of(folder: Path, given: dict[str, Any], hash_seed: str) -> dict[str, bytes]:
    """What a process of its own writes for a scenario."""
    folder.mkdir()
    (folder / "case.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    subprocess.run(
        [*RUN, "run", str(folder / "case.yaml"), "--out", str(folder / "out"), "--step-log", "--trace", "--quiet"],
        env=environment, check=True, capture_output=True,
    )  # fmt: skip
    return {file.name: file.read_bytes() for file in sorted((folder / "out").iterdir())}


def test_processes_write_the_same_bytes(tmp_path: Path) -> None:
    """A11: with PYTHONHASHSEED 0, 1 and random, and the keys reordered, every file is the same, pictures too."""
    first = files_of(tmp_path / "0", CASE, "0")
    assert set(first) == {
        "summary.json", "requests.csv", "iterations.csv", "steps.jsonl", "trace.json", "timeline.png", "latency.png",
    }  # fmt: skip
    assert first == files_of(tmp_path / "1", CASE, "1")
    assert first == files_of(tmp_path / "random", CASE, "random")
    turned = files_of(tmp_path / "reordered", reordered(CASE), "random")
    assert [name for name in first if first[name] != turned[name]] in ([], ["summary.json"])
    assert yaml.safe_load(first["summary.json"]) == yaml.safe_load(turned["summary.json"])
    others = files_of(tmp_path / "seed", CASE | {"seed": 43}, "0")
    assert others["requests.csv"] != first["requests.csv"]


def columns(given: dict[str, Any]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(arrivals, prompts and answers drawn; class of each) of a scenario."""
    records = simulate(scenario(given)).records
    work = records.workload
    drawn = {"arrival": work.arrival_ns, "prompt": work.prompt_tokens, "output": work.output_tokens}
    return drawn, work.traffic_class


def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """A copy of the case with something else in it."""
    copy = yaml.safe_load(yaml.safe_dump(CASE))
    change(copy)
    return dict(copy)


@pytest.mark.parametrize(
    "change",
    [
        lambda case: case.update(slo={"ttft_ms": 100, "itl_ms": 20}),
        lambda case: (
            case["scheduler"].update(kind="static", batch_size=4)
            or [case["scheduler"].pop(key) for key in ("policy", "enable_prefix_caching", "max_num_seqs")]
        ),
        lambda case: case["workload"]["mix"][1].update(
            cancel_ms=400, max_tokens={"kind": "uniform", "mean": 500, "range_ratio": 0.5}
        ),
        lambda case: case.update(replicas=2),
    ],
    ids=["metric", "scheduler", "limits and cancellation", "replicas"],
)
def test_other_settings_leave_the_draws_alone(change: Callable[[dict[str, Any]], None]) -> None:
    """A11: a target, another scheduler, declared limits or a second replica shift no arrival and no length."""
    mine, _ = columns(CASE)
    theirs, _ = columns(changed(change))
    assert np.array_equal(mine["arrival"], theirs["arrival"])
    assert np.array_equal(mine["prompt"], theirs["prompt"])
    assert np.all(theirs["output"] <= mine["output"])  # a declared limit may cut an answer


def with_a_fourth(case: dict[str, Any]) -> None:
    """Another class with a tenant of its own takes a quarter of the traffic from the others."""
    for entry in case["workload"]["mix"]:
        entry["share"] *= 0.75
    case["workload"]["mix"].append(a_class("d", 0.25, 0))


def test_another_tenant_shifts_no_other_stream() -> None:
    """A11: with a fourth class the arrivals stay, and each old class's k-th request keeps its lengths."""
    mine, chosen = columns(CASE)
    theirs, theirs_chosen = columns(changed(with_a_fourth))
    assert np.array_equal(mine["arrival"], theirs["arrival"])
    for number in range(3):
        before, after = mine["prompt"][chosen == number], theirs["prompt"][theirs_chosen == number]
        common = min(len(before), len(after))
        assert common > 20
        assert np.array_equal(before[:common], after[:common])
