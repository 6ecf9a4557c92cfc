"""The practitioner cases (A09, A10 …) as far as they are questions of measurement, on runs written out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from batchsim.metrics import Slo, SummaryContext, Window, describe, judge, samples_needed, stability, summary
from batchsim.metrics.percentiles import too_few
from batchsim.records import NEVER, Records, Status
from tests.metrics.naive import Rules, linear, random_rows, run

KEYS = [
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
]
TAIL = [
    "submitted",
    "rejected",
    "cancelled",
    "running_at_end",
    "waiting_at_end",
    "preemptions",
    "recomputed_tokens",
    "prefix_hit_tokens",
    "resume_hit_tokens",
    "iterations",
    "gpus",
    "gpu_busy_fraction",
    "mean_running",
    "mean_waiting",
    "kv_blocks_total",
    "kv_peak_fraction",
    "kv_mean_fraction",
    "slo_attainment",
    "cost_per_million_output_tokens",
    "stable",
    "extrapolated",
    "warnings",
    "scenario",
    "versions",
]
STATS = [
    "mean_{}_ms",
    "median_{}_ms",
    "std_{}_ms",
    "p50_{}_ms",
    "p90_{}_ms",
    "p95_{}_ms",
    "p99_{}_ms",
    "max_{}_ms",
    "n_{}",
]


def summarised(records: Records, **context: Any) -> dict[str, Any]:
    """The summary with little context."""
    return summary(records, SummaryContext(**context))


def with_requests(records: Records, **columns: Any) -> Records:
    """The same records with some request columns replaced."""
    return replace(records, requests=replace(records.requests, **columns))


def test_summary_has_the_contracts_keys_in_order() -> None:
    """Every key of the outside contract is there, once, in the contract's order, whatever else is."""
    _, records = run(random_rows(1, 20), Rules())
    wanted = [*KEYS, *(key.format(x) for x in ("ttft", "tpot", "itl", "e2el") for key in STATS), *TAIL]
    assert [key for key in summarised(records) if key in set(wanted)] == wanted


def test_empty_run_is_null_not_nan() -> None:
    """A run without requests: counts are 0, everything undefined is None, and no figure is NaN."""
    _, records = run([], Rules())
    result = summarised(records, gpu_hour=2.0, slo={"default": Slo(ttft_ms=1)})
    assert result["completed"] == result["submitted"] == result["n_itl"] == 0
    undefined = ("duration", "request_throughput", "mean_ttft_ms", "p99_itl_ms", "gpu_busy_fraction", "slo_attainment")
    assert [result[key] for key in undefined] == [None] * len(undefined)
    assert not any(isinstance(value, float) and np.isnan(value) for value in result.values())


def test_a09_units() -> None:
    """A09: 100 prompt tokens and 11 output: TTFT 20 ms, every gap 11, TPOT 11, E2E 130, no queue."""
    _, records = run([(0, 100, 11)], Rules(price=linear(10, 0.1, 1.0)))
    # the naive replica computes 16 tokens a step: seven steps of 10 ms and 100 tokens of 0.1 ms
    result = summarised(records)
    assert result["mean_ttft_ms"] == 80.0
    assert result["mean_tpot_ms"] == result["max_itl_ms"] == result["p50_itl_ms"] == 11.0
    assert result["mean_e2el_ms"] == 190.0
    assert result["mean_queue_ms"] == 0.0
    assert result["std_itl_ms"] == 0.0


def test_a10_few_samples() -> None:
    """A10: ten TTFTs of 100 to 1000: p50 550, p90 910, p99 991; one sample is all of them; none is None."""
    ten = describe(np.arange(100, 1001, 100))
    assert ten.percentiles == pytest.approx((550, 910, 955, 991))
    assert too_few(10) == [95, 99]
    one = describe(np.array([500]))
    assert (one.mean, one.max, *one.percentiles) == (500,) * 6
    none = describe(np.array([]))
    assert (none.n, none.mean, none.max, none.percentiles) == (0, None, None, (None,) * 4)


@pytest.mark.parametrize(("percent", "needed"), [(50, 2), (90, 10), (95, 20), (99, 100), (99.9, 1000), (99.99, 10_000)])
def test_a10_samples_needed_in_integers(percent: float, needed: int) -> None:
    """1/(1 - q) is computed in whole numbers: ten samples suffice for p90, though 1/(1 - 0.9) > 10 in floats."""
    assert samples_needed(percent) == needed


def test_a17_horizon_keeps_the_unfinished() -> None:
    """A17: service 1000 ms, arrivals every 500, horizon 10,250: 10 completed, 1 running, 9 waiting, said censored."""
    rows = [(500.0 * i, 1, 100) for i in range(20)]
    rules = Rules(seats=1, price=linear(), horizon_fs=10_250 * 10**12)
    _, records = run(rows, rules)
    result = summarised(records)
    found = {key: result[key] for key in ("completed", "running_at_end", "waiting_at_end", "submitted")}
    assert found == {"completed": 10, "running_at_end": 1, "waiting_at_end": 9, "submitted": 20}
    assert result["duration"] == 10.25
    assert result["mean_running"] == pytest.approx(1.0)
    assert any("censored" in warning for warning in result["warnings"])


def test_a17_overload_is_not_stable() -> None:
    """A17: offered 2.0, served 1.0 req/s: not stable, with both rates; the k-th wait is 500 k ms."""
    _, records = run([(500.0 * i, 1, 100) for i in range(60)], Rules(seats=1, price=linear()))
    rates = stability(records)
    assert rates.stable is False
    assert rates.offered_per_s == pytest.approx(2.0)
    assert rates.served_per_s == pytest.approx(1.0, rel=0.05)
    waits = records.requests.admitted_ns - records.requests.arrival_ns
    assert waits.tolist() == [500 * k * 10**6 for k in range(60)]
    assert any("queue grows without bound: 2 req/s offered" in warning for warning in summarised(records)["warnings"])


def test_a_batch_that_still_fills_is_not_called_a_queue() -> None:
    """Seats for all, arrivals for less than one request lasts: the backlog grows, nobody waits, and that is said."""
    _, records = run([(10.0 * i, 1, 100) for i in range(60)], Rules(seats=64, price=linear()))
    assert stability(records).stable is False
    (said,) = [warning for warning in summarised(records)["warnings"] if "offered" in warning]
    assert said.startswith("requests in flight still grow")
    assert "use more requests" in said


def test_a17_within_capacity_is_stable() -> None:
    """The same service at 0.8 of its capacity is stable; a burst has no rate to hold against."""
    _, records = run([(1250.0 * i, 1, 100) for i in range(60)], Rules(seats=1, price=linear()))
    assert stability(records).stable is True
    _, burst = run([(0.0, 1, 3)] * 60, Rules(seats=1, price=linear()))
    assert stability(burst).stable is None


def test_a29_littles_law_and_utilisation() -> None:
    """A29: over one span, mean waiting = rate x mean wait and GPU busy = work / time, to rounding."""
    rng = np.random.default_rng(3)
    times = np.round(np.cumsum(rng.exponential(1250, 400)), 6).tolist()
    _, records = run([(ms, 1, 100) for ms in times], Rules(seats=1, price=linear()))
    result = summarised(records)
    span = result["duration"]
    assert result["gpu_busy_fraction"] == pytest.approx(400 * 1.0 / span)
    assert result["mean_waiting"] == pytest.approx(400 / span * result["mean_queue_ms"] / 1000)
    assert result["mean_running"] == pytest.approx(400 / span * 1.0)


def test_b14_client_queue_apart_from_latency() -> None:
    """B14: eight requests every 100 ms behind a cap of one: E2E 500 each, from schedule mean 1900, p99 3272."""
    scheduled = np.arange(8) * 100 * 10**6
    _, records = run([(500.0 * i, 1, 50) for i in range(8)], Rules(seats=1, price=linear()))
    records = with_requests(records, scheduled_ns=scheduled)
    records = replace(records, workload=replace(records.workload, max_concurrency=1))
    result = summarised(records)
    assert result["mean_e2el_ms"] == result["max_e2el_ms"] == 500.0
    assert result["mean_from_schedule_e2el_ms"] == 1900.0
    assert result["p99_from_schedule_e2el_ms"] == pytest.approx(3272.0)
    assert result["max_from_schedule_e2el_ms"] == 3300.0
    assert result["mean_client_queue_ms"] == 1400.0


def test_b16_one_token_answers_have_no_tpot() -> None:
    """B16: TPOT 10 over n=1, three one-token answers left out; their E2E is their TTFT; a TPOT target passes them."""
    _, records = run([(0.0, 1, 1), (0.0, 1, 1), (0.0, 1, 1), (0.0, 1, 5)], Rules(seats=4, price=linear()))
    result = summarised(records, slo={"default": Slo(tpot_ms=50)})
    assert (result["mean_tpot_ms"], result["n_tpot"], result["n_ttft"]) == (10.0, 1, 4)
    assert result["slo_attainment"] == 1.0
    requests = records.requests
    assert (requests.finished_ns[:3] == requests.first_token_ns[:3]).all()


@pytest.mark.parametrize(("count", "tpot"), [(1, 11.0), (8, 18.0)])
def test_b18_throughput_times_tpot_is_the_batch(count: int, tpot: float) -> None:
    """B18: one more sequence makes each slower and all together faster; throughput x TPOT = mean running."""
    _, records = run([(0.0, 1, 300)] * count, Rules(seats=count, price=linear(10, 0.0, 1.0)))
    window = Window(start_s=1.0, end_s=2.0, name="full batch")
    section = summarised(records, window=window)["window"]
    assert section["output_throughput"] == pytest.approx(1000 * count / tpot, rel=0.02)


def test_b19_straggler() -> None:
    """B19 (a): 31 requests of 100 tokens and one of 2000: the whole run shows 255 tok/s, the full-batch second 3200."""
    everyone, records = run([(0.0, 1, 100)] * 31 + [(0.0, 1, 2000)], Rules(seats=32, price=linear(10)))
    # the naive replica admits one request a step: the full batch starts when the 32nd is in
    first = max(one.tokens[0] for one in everyone)
    window = Window(start_s=first / 1e9, end_s=first / 1e9 + 0.5, name="full batch")
    result = summarised(records, window=window)
    assert result["output_throughput"] == pytest.approx(5100 / 20.31, rel=1e-3)
    section = result["window"]
    assert section["output_throughput"] == pytest.approx(3200.0)
    assert section["total_output_tokens"] + section["excluded_output_tokens"] == 5100
    assert section["rule"] == "latency by request start, throughput by token time"


def test_b19_first_wave_left_out() -> None:
    """B19 (b): the latencies of a window leave out the first requests by arrival, and say how many."""
    everyone, records = run([(0.0, 1, 5)] * 16 + [(1000.0 + 50 * i, 1, 5) for i in range(40)], Rules(seats=2))
    result = summarised(records, window=Window(skip_first=16))
    section = result["window"]
    later = [one.tokens[0] - one.arrival_fs // 10**6 for one in everyone[16:]]
    assert section["p99_ttft_ms"] == pytest.approx(np.quantile(later, 0.99) / 1e6)
    assert section["p99_ttft_ms"] < result["p99_ttft_ms"]
    assert (section["included_requests"], section["excluded_requests"]) == (40, 16)


def four_requests() -> Records:
    """(TTFT, TPOT) ms: (90, 40), (110, 40), (90, 60), (100, 50), over a span of 2 s."""
    _, records = run([(0.0, 1, 11)] * 4, Rules(seats=4, price=linear()))
    first = np.array([90, 110, 90, 100]) * 10**6
    last = first + np.array([40, 40, 60, 50]) * 10 * 10**6
    records = with_requests(records, first_token_ns=first, finished_ns=last)
    return replace(records, horizon_ns=2 * 10**9)


def test_c05_goodput_is_joint() -> None:
    """C05: two of four meet both targets (equality passes): 1.0 req/s, attainment 0.5; each target alone 0.75."""
    result = summarised(four_requests(), slo={"default": Slo(ttft_ms=100, tpot_ms=50)})
    assert result["request_goodput"] == 1.0
    assert result["slo_attainment"] == 0.5
    assert result["slo_attainment_by_target"] == {"ttft_ms": 0.75, "tpot_ms": 0.75}
    assert result["request_goodput"] <= result["request_throughput"]


def test_c05_attainment_counts_the_submitted_of_classes_with_targets() -> None:
    """C05: ten interactive submitted, six complete, four good: 0.4 for the class and overall; batch is not counted."""
    _, records = run([(0.0, 1, 3)] * 15, Rules(seats=15, price=linear()))
    status = np.zeros(15, dtype=np.int8)
    status[6:10] = Status.WAITING
    first = np.full(15, 50 * 10**6)
    first[4:6] = 500 * 10**6
    first[6:10] = NEVER
    finished = np.where(first == NEVER, NEVER, first + 20 * 10**6)
    emitted = np.where(first == NEVER, 0, 3)
    classes = np.repeat([0, 1], [10, 5])
    records = with_requests(records, status=status, first_token_ns=first, finished_ns=finished, emitted_tokens=emitted)
    workload = replace(records.workload, traffic_class=classes, classes=("interactive", "batch"))
    records = replace(records, workload=workload)
    slo = {"interactive": Slo(ttft_ms=100)}
    verdict = judge(records, slo)
    assert verdict.attainment() == verdict.attainment(classes == 0) == 0.4
    assert verdict.attainment(classes == 1) is None


def test_itl_target_is_the_longest_gap() -> None:
    """An ITL target bounds a request's longest gap, to the nanosecond."""
    _, records = run(random_rows(5, 30), Rules(seats=3, preempt=0.05))
    everyone, _ = run(random_rows(5, 30), Rules(seats=3, preempt=0.05))
    longest = [int(np.diff(one.tokens).max()) if len(one.tokens) > 1 else 0 for one in everyone]
    limit = sorted(longest)[20]
    good = judge(records, {"default": Slo(itl_ms=limit / 1e6)}).good
    assert good.tolist() == [gap <= limit for gap in longest]
    tighter = judge(records, {"default": Slo(itl_ms=(limit - 1) / 1e6)}).good
    assert tighter.sum() < good.sum()


def test_classes_and_tenants_add_up() -> None:
    """Several classes and tenants: counts and goodput add up, each class's ITL is its own requests' gaps alone."""
    everyone, records = run(random_rows(8, 60), Rules(seats=4))
    number = np.arange(60) % 3
    workload = replace(
        records.workload, traffic_class=number, classes=("a", "b", "c"), tenant=number // 2, tenants=("x", "y")
    )
    result = summarised(replace(records, workload=workload), slo={"a": Slo(ttft_ms=25), "b": Slo(ttft_ms=40)})
    classes = result["classes"]
    assert sum(section["completed"] for section in classes.values()) == result["completed"] == 60
    assert sum(section["n_itl"] for section in classes.values()) == result["n_itl"]
    assert classes["a"]["request_goodput"] + classes["b"]["request_goodput"] == pytest.approx(result["request_goodput"])
    assert classes["c"]["slo_attainment"] is None
    for place, section in enumerate(classes.values()):
        gaps = np.concatenate([np.diff(one.tokens) for one in everyone if number[one.index] == place])
        assert section["p99_itl_ms"] == pytest.approx(np.quantile(gaps, 0.99) / 1e6)
    tokens = result["tenants"]["output_tokens"]
    assert sum(tokens.values()) == result["total_output_tokens"]
    x, y = tokens["x"], tokens["y"]
    assert result["tenants"]["jain_output_tokens"] == pytest.approx((x + y) ** 2 / (2 * (x * x + y * y)))
    waits = records.requests.admitted_ns - records.requests.arrival_ns
    assert classes["b"]["longest_wait_ms"] == waits[number == 1].max() / 1e6
