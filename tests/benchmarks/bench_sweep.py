"""Sweep of 1,000 runs × 2,000 requests: runs a second on two cores, and the share of time outside the simulation.

    python tests/benchmarks/bench_sweep.py [RUNS] [JOBS]

The share is of processor time in one process, everything included that a sweep does: checking every combination, keys,
drawing, summaries, store, files. Target: at most 30 %.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from batchsim.scenario import Scenario, load
from batchsim.simulation import Run
from batchsim.study import sweep, work

RUNS, JOBS, SEEDS = 1000, 2, 5


def main(runs: int = RUNS, jobs: int = JOBS) -> None:
    """Prints both figures."""
    scenario = load("quickstart").replace({"workload.requests": 2000, "scheduler.async_scheduling": False})
    print(_share(scenario, runs))
    print(_speed(scenario, runs, jobs))


def _rates(runs: int) -> dict[str, list[Any]]:
    points = max(1, runs // SEEDS)
    return {"workload.arrivals.rate_per_s": [round(2 + 18 * place / points, 4) for place in range(points)]}


def _share(scenario: Scenario, runs: int) -> str:
    inside = 0.0
    simulate = work.simulate

    def timed(*arguments: Any, **options: Any) -> Run:
        nonlocal inside
        began = time.process_time()
        run = simulate(*arguments, **options)
        inside += time.process_time() - began
        return run

    work.simulate = timed  # type: ignore[assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            sweep(scenario, _rates(runs), seeds=SEEDS, jobs=1, out=Path(folder))
            whole = time.process_time() - began
    finally:
        work.simulate = simulate
    return f"one process, {runs} runs: {whole:.1f} s of processor time, {1 - inside / whole:.1%} outside the simulation"


def _speed(scenario: Scenario, runs: int, jobs: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        rows = sweep(scenario, _rates(runs), seeds=SEEDS, jobs=jobs, out=Path(folder)).rows
        wall_s = time.perf_counter() - began
    return f"{jobs} processes, {len(rows)} runs of 2,000 requests: {wall_s:.1f} s, {len(rows) / wall_s:.1f} runs/s"


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
