"""The profiler's logic, with an injected timer: order, budget, resuming, and what a machine cannot run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from batchsim.calibrate import gpu_timer
from batchsim.calibrate.profiler import Impossible, Outcome, Shape, measure, plan
from batchsim.calibrate.schema import Row, read

LLAMA = Shape("llama-3.1-8b", 4096, 32, 8, 128, 14336, 128256)
HERE = {"gpu": "test card", "driver": "1.2.3"}


class FakeTimer:
    """Every kernel takes `ms`; the clock moves by what was measured, plus a second to set up."""

    def __init__(self, ms: float = 1.0, cannot: str = "") -> None:
        self.ms, self.cannot = ms, cannot
        self.now_s = 0.0
        self.asked: list[Row] = []

    def times_ms(self, task: Row, repeats: int) -> list[float]:
        if task.op == self.cannot:
            raise Impossible(task.op)
        self.asked.append(task)
        self.now_s += 1.0 + repeats * self.ms / 1e3
        return [self.ms, 100 * self.ms, *[self.ms] * (repeats - 2)]

    def clock(self) -> float:
        return self.now_s


def run(timer: FakeTimer, path: Path, minutes: float, tasks: list[Row]) -> Outcome:
    return measure(tasks, timer, path, minutes, HERE, timer.clock)


def test_the_first_rows_are_worth_the_most() -> None:
    """A sixth of the plan already holds peaks, products of one and of many rows, both attentions and mixed steps."""
    tasks = plan(LLAMA, "h100-sxm")
    early = tasks[: len(tasks) // 6]
    assert [task.op for task in tasks[:2]] == ["copy", "gemm"]
    assert {"gemm", "prefill_attention", "decode_attention", "mixed_attention", "decode_layer"} <= {t.op for t in early}
    assert len(set(tasks)) == len(tasks)
    assert {1, 8192} <= {task.tokens for task in tasks if task.op == "gemm"}
    assert not [task for task in tasks if task.op == "allreduce"]
    assert {task.tp for task in plan(LLAMA, "h100-sxm", gpus=4) if task.op == "allreduce"} == {2, 4}


def test_a_stray_repeat_does_not_count(tmp_path: Path) -> None:
    """The median is kept: one repeat a hundred times slower leaves 1 ms; the environment heads the file."""
    path = tmp_path / "m.csv"
    ended = run(FakeTimer(), path, 1000, plan(LLAMA, "h100-sxm"))
    rows = read(path)
    assert {row.time_ms for row in rows} == {1.0}
    assert ended == Outcome(len(rows), 0, 0, 0)
    assert path.read_text().startswith("# gpu: test card\n# driver: 1.2.3\n")


def test_the_budget_ends_it_and_a_second_run_goes_on(tmp_path: Path) -> None:
    """One minute measures some, and says how many are left; run again, those are measured and no row twice."""
    path, tasks = tmp_path / "m.csv", plan(LLAMA, "h100-sxm")
    first = run(FakeTimer(), path, 1, tasks)
    assert 0 < first.measured < len(tasks)
    assert first.left == len(tasks) - first.measured
    timer = FakeTimer()
    second = run(timer, path, 1000, tasks)
    assert second == Outcome(first.left, first.measured, 0, 0)
    assert timer.asked[0].op == tasks[first.measured].op
    assert len(read(path)) == len(tasks)
    assert run(FakeTimer(), path, 1000, tasks).measured == 0


def test_a_file_with_a_header_alone_is_begun_anew(tmp_path: Path) -> None:
    """A run that was stopped before its first row leaves no row behind, and the next one begins."""
    path, tasks = tmp_path / "m.csv", plan(LLAMA, "h100-sxm")[:3]
    assert run(FakeTimer(), path, 0, tasks).left == 3
    assert run(FakeTimer(), path, 10, tasks).measured == 3
    assert len(read(path)) == 3


def test_what_the_machine_cannot_run_is_counted(tmp_path: Path) -> None:
    """A kernel that does not fit is passed over, the others are measured."""
    ended = run(FakeTimer(cannot="mixed_attention"), tmp_path / "m.csv", 1000, plan(LLAMA, "h100-sxm"))
    assert ended.impossible == 12
    assert not [row for row in read(tmp_path / "m.csv") if row.op == "mixed_attention"]


def test_slow_kernels_are_repeated_less(tmp_path: Path) -> None:
    """A kernel of a minute in a budget of eight is timed five times, not twenty."""
    timer = FakeTimer(ms=60_000)
    run(timer, tmp_path / "m.csv", 8, plan(LLAMA, "h100-sxm")[:1])
    assert len(timer.asked) == 1


def test_tensor_parallel_shards_the_shapes() -> None:
    """Llama-3.1-8B on two GPUs: 3072 x 4096 for the query, key and value, and half of each other product."""
    assert LLAMA.gemms(2) == [(3072, 4096), (4096, 2048), (14336, 4096), (4096, 7168), (64128, 4096)]
    assert LLAMA.attention(8) == (4, 1, 128)


def test_without_cuda_one_line_says_so() -> None:
    """Where there is no CUDA GPU the reason is one line that names what is missing."""
    why = gpu_timer.available()
    if why is None:
        pytest.skip("this machine has a CUDA GPU")
    assert "\n" not in why
    assert "PyTorch" in why


def test_the_profiler_runs_on_a_bare_machine() -> None:
    """Importing what measures needs nothing but the standard library (and torch to measure)."""
    code = (
        "import sys; from batchsim.calibrate import profiler, gpu_timer, schema; "
        "print([m for m in ('pydantic', 'yaml', 'pandas', 'scipy', 'numpy', 'simpy', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
