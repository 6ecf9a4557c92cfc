"""What the terminal shows: units a person would use, nothing undefined dressed as a number, width kept."""

from __future__ import annotations

import subprocess
import sys

import pytest

from batchsim.metrics import Slo, SummaryContext, summary
from batchsim.report.comparison import best, compare_table, dominant
from batchsim.report.console import Summary, duration, number, percent, render, run_table
from tests.metrics.naive import Rules, linear, random_rows, run

SCENARIO = {
    "name": "quickstart",
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "seed": 0,
    "scheduler": {"kind": "vllm", "max_num_seqs": 256, "max_num_batched_tokens": 8192},
    "workload": {"arrivals": {"kind": "poisson", "rate_per_s": 8}},
    "slo": {"ttft_ms": 500, "tpot_ms": 15},
    "price": {"gpu_hour": 2.0},
}


def a_summary(rules: Rules, rows: list[tuple[float, int, int]] | None = None) -> Summary:
    """A summary of a small run."""
    _, records = run(rows if rows is not None else random_rows(1, 120), rules, 1)
    slo = {"default": Slo(ttft_ms=500, tpot_ms=15)}
    return summary(records, SummaryContext(slo=slo, gpu_hour=2.0, scenario=SCENARIO))


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, "–"), (0.0, "0 ms"), (0.31, "310 µs"), (9.8, "9.80 ms"), (61.23, "61.2 ms"), (903.4, "903 ms"),
     (999.6, "1.00 s"), (2100, "2.10 s"), (412_000, "412 s"), (900_000, "15.0 min")],
)  # fmt: skip
def test_duration(ms: float | None, text: str) -> None:
    """Three digits in the unit that a person would use."""
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "–"),
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.9999, "> 99.9 %"),
        (0.0001, "< 0.1 %"),
        (0.964, "96.4 %"),
        (0.18, "18 %"),
    ],
)
def test_percent_never_rounds_to_all_or_nothing(share: float | None, text: str) -> None:
    """100 % means all and 0 % means none."""
    assert percent(share) == text


def test_number() -> None:
    """Three digits below a thousand, separators above."""
    assert [number(value) for value in (None, 0, 0.0123, 7.94, 16.41, 1664.2)] == [
        "–",
        "0",
        "0.012",
        "7.94",
        "16.4",
        "1,664",
    ]


def test_run_table_says_everything_within_the_width() -> None:
    """The table of a run names its scenario, four latencies with n, goodput, cost and stability in 100 columns."""
    result = a_summary(Rules(seats=8))
    text = render(run_table(result, cost_model="calibrated h100-sxm", wall_s=0.06))
    assert max(map(len, text.splitlines())) <= 100
    for part in (
        "quickstart · llama-3.1-8b on 1× h100-sxm · vllm (max_num_seqs 256, budget 8192) · 120 requests",
        "TTFT ≤ 500 ms and TPOT ≤ 15 ms",
        "per million output tokens at $2.00 per GPU-hour",
        "calibrated h100-sxm · seed 0",
        "--out DIR keeps the files",
    ):
        assert part in text.replace("\n", " ")
    ttft = next(line for line in text.splitlines() if line.startswith(" TTFT "))
    assert ttft.split()[1:3] == duration(result["mean_ttft_ms"]).split()
    assert ttft.split()[-1] == "120"


def test_nothing_completed_is_dashes() -> None:
    """A run in which nothing happened prints dashes, never nan, None or an invented 0 ms."""
    text = render(run_table(a_summary(Rules(), rows=[])))
    assert "nan" not in text
    assert "None" not in text
    assert next(line for line in text.splitlines() if line.startswith(" TPOT")).split() == ["TPOT", *["–"] * 5, "0"]


def test_compare_marks_the_best() -> None:
    """Side by side: the best of a row is starred, ties are not, and each run has its line."""
    fast, slow = a_summary(Rules(seats=16)), a_summary(Rules(seats=1))
    text = render(compare_table({"fast": fast, "slow": slow}))
    row = next(line for line in text.splitlines() if line.strip().startswith("TTFT p99"))
    assert row.index("*") < row.index(duration(slow["p99_ttft_ms"]))
    assert text.count("fast:") == text.count("slow:") == 1


def test_compare_tells_what_a_policy_costs_and_whom() -> None:
    """Wasted tokens, evictions, waits and shares as rows, then those of each class, and the longest wait of each tenant."""
    plain = a_summary(Rules(seats=2))
    classes = {"chat": {"longest_wait_ms": 10.0, "preemptions": 3}, "batch": {"longest_wait_ms": 2000.0}}
    first = {**plain, "classes": classes, "tenants": {"longest_wait_ms": {"A": 10.0, "B": 2000.0}},
             "preemptions_per_s": 2.5, "recomputed_tokens_per_s": 80.0, "queue_share": 0.25}  # fmt: skip
    second = {**first, "preemptions_per_s": 5.0, "tenants": {"longest_wait_ms": {"A": 5.0, "B": 4000.0}}}
    lines = {
        line.split("  ")[0].strip(): line for line in render(compare_table({"one": first, "two": second})).splitlines()
    }
    assert lines["preemptions/s"].split()[-3:] == ["2.50", "*", "5.00"]
    assert {"recomputed tok/s", "queue share", "service, mean", "longest wait"} <= set(lines)
    assert "2.00 s" in lines["batch: longest wait"]
    assert lines["chat: preemptions"].split()[-2:] == ["3", "3"]
    assert "5.00 ms *" in lines["tenant A: longest wait"]
    assert "batch: preemptions" not in lines, "nothing is known of it"
    many = {**first, "tenants": {"longest_wait_ms": {f"t{i}": 1.0 for i in range(9)}}}
    assert "tenant t0" not in render(compare_table({"one": many}))


def test_best() -> None:
    """Half a per cent is a tie; None never wins; one known value is no contest."""
    assert best([1.0, 2.0, None], -1) == [True, False, False]
    assert best([100.0, 100.2, 90.0], 1) == [True, True, False]
    assert best([5.0, 5.0], 1) == best([None, 5.0], 1) == best([1.0, 2.0], 0) == [False, False]


def test_dominant_names_the_cause() -> None:
    """The line says queueing for one seat, filling for an idle static batch, padding and preemption by their shares."""
    slow = a_summary(Rules(seats=1, price=linear(30)))
    assert dominant(slow).startswith("queueing")
    static = {**slow, "scenario": {"scheduler": {"kind": "static"}}, "gpu_busy_fraction": 0.3}
    assert dominant(static).startswith("waiting for the batch to fill")
    calm = {**slow, "mean_queue_ms": 0.0}
    assert dominant({**calm, "padded_fraction": 0.4}).startswith("padding waste: 40 %")
    assert dominant({**calm, "preemptions": 9, "recomputed_tokens": 10**6}).startswith("preemption: 9 evictions")
    assert dominant({**calm, "max_itl_ms": 800.0, "p50_itl_ms": 10.0}).startswith("prefill stalls")
    assert dominant({**calm, "completed": 0}) == "nothing completed"


def test_heavy_packages_stay_out() -> None:
    """Metrics, the console and the files load without pandas, matplotlib, scipy and rich."""
    code = (
        "import sys, batchsim.metrics, batchsim.report.console, batchsim.report.comparison, batchsim.report.files, "
        "batchsim.report.plots; print([m for m in ('pandas', 'matplotlib', 'scipy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
