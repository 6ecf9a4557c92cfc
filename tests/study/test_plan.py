"""Capacity plans: the practitioners' cases A23, C01, C05 and C07, floors, bounds, monotonicity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

import batchsim as bs
from batchsim.cli import main
from batchsim.errors import InvalidInput
from batchsim.metrics.latency import e2e_ns, tpot_ns, ttft_ns
from batchsim.scenario import Scenario, resolve, scenario
from batchsim.simulation import simulate
from batchsim.study import bounds, largest, plan
from batchsim.study.concurrency import GIB, InUse, Room
from batchsim.study.planning import KEYS, pareto
from batchsim.study.sizing import smallest
from batchsim.study.targets import Goal, goals_of, judged, percentile
from batchsim.study.traffic import window_of, windows
from batchsim.study.trial import Fleet
from batchsim.study.work import drawn
from tests.study.given import given, one_at_a_time, one_step, small


def test_a_plan_grows_with_the_rate_and_shrinks_with_the_target() -> None:
    """Sizes along rising rates never fall; along rising limits they never grow."""

    def size(wait_ms: float, rate: float) -> int:
        case = one_step(1000 + wait_ms, rate, 3_000)
        found = smallest(Fleet(case, goals_of(case), {1: drawn(case)}), 1, 40)
        assert found is not None
        return found

    by_rate = [size(800, rate) for rate in (2, 4, 5, 6, 8, 10, 12)]
    assert by_rate == sorted(by_rate)
    by_limit = [size(wait_ms, 8) for wait_ms in (100, 300, 600, 1000, 2000, 4000)]
    assert by_limit == sorted(by_limit, reverse=True)


def a23(ttft_ms: float, **changes: Any) -> dict[str, Any]:
    """Case A23: prompts of 1,000 tokens at 0.5 req/s."""
    values = given(slo={"ttft_ms": ttft_ms, "percentile": 99}, price={"gpu_hour": 2.0}, **changes)
    values["workload"] |= {
        "requests": 500, "arrivals": {"kind": "poisson", "rate_per_s": 0.5},
        "prompt_tokens": {"kind": "fixed", "tokens": 1000},
    }  # fmt: skip
    return values


TOO_BIG = {"model": "llama-3.1-70b", "cost_model": {"kind": "roofline"}, "kv_cache": {"block_size": 16}}


@pytest.mark.parametrize(
    ("values", "more", "status", "code", "said"),
    [
        (a23(200, **TOO_BIG), [], "does_not_fit", 2, "bytes"),
        (a23(100), [], "infeasible", 4, "at least 110 ms"),
        (a23(200), [], "plan", 0, "2 replicas of h100-sxm serve 0.50 req/s"),
        (a23(111) | {"workload": a23(1)["workload"] | {"arrivals": {"kind": "poisson", "rate_per_s": 40}}},
         ["--max-replicas", "3"], "over_max_replicas", 4, "no plan within 3"),
    ],
)  # fmt: skip
def test_a23_four_ends_with_their_numbers(
    values: dict[str, Any], more: list[str], status: str, code: int, said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Does not fit (2), infeasible at any size (4), a plan (0), not within the limit (4): each says its number, and
    plan.json is written all the same."""
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(SystemExit) as left:
        main(["plan", str(file), "--out", str(tmp_path / "o"), "--seeds", "1", *more])
    whole = json.loads((tmp_path / "o/plan.json").read_text())
    out = capsys.readouterr().out
    assert (left.value.code or 0, whole["status"]) == (code, status)
    assert said in " ".join(out.split())
    assert list(whole)[: len(KEYS)] == list(KEYS)
    assert all(len(line) <= 100 for line in out.splitlines())


def test_a23_an_impossible_target_needs_no_simulation() -> None:
    """The floor, 10 + 0.1 × 1,000 = 110 ms, stops the search before it begins."""
    found = plan(scenario(a23(100)), max_replicas=1000, seeds=2)
    assert found.to_dict()["floor"]["p99_ttft_ms"] == {"limit": 100, "value": 110, "passes": False}
    assert found.best.fleet is not None
    assert found.best.fleet.runs == 0


def test_a23_beyond_the_measured_range_is_said(tmp_path: Path) -> None:
    """Batches of 1 to 128 measured, 256 asked for: `extrapolated` is the share of such steps."""
    table = tmp_path / "steps.csv"
    table.write_text(
        "prefill_tokens,decode_seqs,context_tokens,time_ms\n1,0,0,1\n8192,0,0,100\n"
        "0,1,1,10\n0,1,2000,10\n0,128,128,20\n0,128,256000,20\n"
    )
    values = given(cost_model={"kind": "table", "path": str(table)}, slo={"e2e_ms": 60_000})
    long = {"kind": "fixed", "tokens": 50}
    values["workload"] |= {"arrivals": {"kind": "burst"}, "requests": 256, "output_tokens": long}
    whole = plan(scenario(values), seeds=1).to_dict()
    assert whole["status"] == "plan"
    assert whole["extrapolated"] > 0.5
    values["workload"]["requests"] = 60  # one prompt step within the table, then decodes
    assert plan(scenario(values), seeds=1).to_dict()["extrapolated"] == 0


def test_c01_concurrency_worst_case_and_at_the_mean() -> None:
    """37,765 tokens: 4.61 requests of 8,192, 47.2 of 800; 15,728,640 hold 1,920; 20/s × 5 s are 100 at once, 150,000
    tokens, 18.3 GiB."""
    room = Room(37_765, 8192, 800)
    assert round(room.at_longest, 2) == 4.61
    assert round(room.at_mean, 1) == 47.2
    assert Room(15_728_640, 8192, 800).at_longest == 1920.0
    used = InUse(20, 5, 1500, 131_072)
    assert (used.requests, used.kv_tokens) == (100, 150_000)
    assert round(used.kv_tokens * 131_072 / GIB, 1) == 18.3 == round(used.kv_gib or 0, 1)
    assert "concurrent_requests_at_max_model_len" in room.to_dict()


def test_c01_a_plan_labels_both(tmp_path: Path) -> None:
    """Room in the pool and requests in use stand apart in plan.json, neither is called a rate."""
    whole = plan(scenario(a23(200)), seeds=1).to_dict()["concurrency"]
    assert whole["per_replica"]["concurrent_requests_at_max_model_len"] == pytest.approx(1_600_000 / 131_072)
    assert whole["per_replica"]["concurrent_requests_at_mean_context"] == pytest.approx(1_600_000 / 1005)
    assert whole["in_use"]["concurrent_requests"] == pytest.approx(0.5 * whole["in_use"]["stay_s"])


def test_c05_attainment_is_the_joint_share_and_equality_passes() -> None:
    """(90, 40), (110, 40), (90, 60), (100, 50) against 100/50: two of four; each target alone is met by three."""
    values = {"ttft_ms": np.array([90, 110, 90, 100]) * 1e6, "tpot_ms": np.array([40, 40, 60, 50]) * 1e6}
    everyone = {"": np.ones(4, bool)}
    joint = Goal("", ("default",), {"ttft_ms": 100, "tpot_ms": 50}, None, 0.5)
    (figure,) = judged([joint], values, everyone, np.ones(4, bool))
    assert (figure.value, figure.passes) == (0.5, True)
    strict = Goal("", ("default",), {"ttft_ms": 100, "tpot_ms": 50}, None, 0.51)
    assert not judged([strict], values, everyone, np.ones(4, bool))[0].passes


def test_c05_what_was_not_served_is_infinitely_late() -> None:
    """Ten submitted, six served, four of them in time: attainment 0.4; p50 is infinite, p40 is not."""
    late = np.where(np.arange(10) < 4, 90e6, np.where(np.arange(10) < 6, 200e6, np.inf))
    one = np.ones(10, bool)
    goal = Goal("", ("default",), {"ttft_ms": 100}, None, 0.4)
    assert judged([goal], {"ttft_ms": late}, {"": one}, one)[0].value == 0.4
    half = Goal("", ("default",), {"ttft_ms": 100}, 60.0, None)
    (figure,) = judged([half], {"ttft_ms": late}, {"": one}, one)
    assert (figure.value, figure.passes) == (None, False)


@hypothesis_given(st.lists(st.floats(0, 1e12), min_size=1, max_size=60), st.floats(0.1, 99.9))
def test_the_percentile_is_numpys(values: list[float], percent: float) -> None:
    """Linear interpolation, as numpy's default."""
    assert percentile(np.array(values), percent) == pytest.approx(
        float(np.percentile(values, percent)), rel=1e-12, abs=1e-9
    )


def test_classes_are_judged_apart() -> None:
    """A class with targets of its own is a goal of its own; the others share the scenario's."""
    fixed = {"kind": "fixed", "tokens": 100}
    lengths = {"prompt_tokens": fixed, "output_tokens": {"kind": "fixed", "tokens": 5}}
    mix = [{"name": "chat", "share": 0.5, **lengths, "slo": {"ttft_ms": 50, "percentile": 90}},
           {"name": "batch", "share": 0.5, **lengths}]  # fmt: skip
    work = {"mix": mix, "requests": 400, "arrivals": {"kind": "poisson", "rate_per_s": 4}}
    case = small(workload=work, slo={"e2e_ms": 5000, "attainment": 0.9})
    assert [(goal.name, goal.classes) for goal in goals_of(case)] == [("chat", ("chat",)), ("", ("batch",))]
    targets = plan(case, seeds=1).to_dict()["targets"]
    assert list(targets) == ["chat.p90_ttft_ms", "attainment"]
    assert "e2e_ms" not in str(goals_of(case)[0].limits_ms)


def piecewise(segments: list[tuple[float, float]], **workload: Any) -> Scenario:
    """One-step requests of 1 s at rates that change."""
    arrivals = {"kind": "piecewise", "segments": [{"duration_s": s, "rate_per_s": r} for s, r in segments]}
    return one_step(31_000, **{"requests": None, "arrivals": arrivals} | workload)


def test_c07_a_plan_is_of_the_busiest_window() -> None:
    """An hour at 0.034 and an hour at 3.17 req/s, one request a second a replica: 4, never 1 or 2; peak over mean
    1.98; 8 replica-hours against 5 (as 160 against 100 over twenty times as long)."""
    whole = plan(piecewise([(3600, 0.034), (3600, 3.17)]), window_s=3600, seeds=1, max_replicas=20).to_dict()
    seen = whole["traffic"]
    assert whole["replicas"] == 4
    assert seen["busiest"] == 1
    assert seen["rate_per_s"] == pytest.approx([0.034, 3.17], rel=0.25)
    assert seen["peak_to_mean"] == pytest.approx(1.98, abs=0.02)
    assert (round(seen["replica_hours_fixed"]), round(seen["replica_hours_ideal"])) == (8, 5)
    assert seen["replicas_ideal"] == [1, 4]


def test_c07_a_slice_far_below_the_peak_is_warned_of() -> None:
    """The first half alone would plan one replica: the warning names both rates."""
    head = piecewise([(3600, 0.034), (3600, 3.17)], duration_s=3600)
    warnings = plan(head, window_s=1800, seeds=1).to_dict()["warnings"]
    assert any("says nothing about the peak" in warning for warning in warnings)


def test_a_window_keeps_its_requests_and_their_shared_prefixes() -> None:
    """Requests of the busiest window, its start moved to 0; a prefix of one outside stays shared inside."""
    rows = [
        {"id": "a", "arrival_ms": 0, "prompt_tokens": 64, "output_tokens": 4},
        {"id": "b", "arrival_ms": 200_000, "prompt_tokens": 100, "output_tokens": 4, "prefix": [["req:a", 64]]},
        {"id": "c", "arrival_ms": 200_500, "prompt_tokens": 120, "output_tokens": 4, "prefix": [["req:a", 64]]},
        {"id": "d", "arrival_ms": 201_000, "prompt_tokens": 130, "output_tokens": 4, "prefix": [["req:b", 100]]},
    ]
    whole = drawn(small(workload={"kind": "list", "requests": rows}))
    cut = window_of(whole, windows(whole, 100.0))
    assert [cut.id_of(place) for place in range(len(cut))] == ["b", "c", "d"]
    assert cut.arrival_ns.tolist() == [100_000_000_000, 100_500_000_000, 101_000_000_000]
    assert cut.prefixes is not None
    b, c, d = cut.prefixes.segment.tolist()
    assert b == c >= 0
    assert d == -1


def test_a_trace_is_the_same_for_every_seed(tmp_path: Path) -> None:
    """One seed is used, and the plan says so."""
    file = tmp_path / "t.csv"
    lines = [f"{0.4 * n},{100},{5}" for n in range(400)]
    file.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines) + "\n")
    case = small(workload={"kind": "trace", "path": str(file), "format": "batchsim"}, slo={"ttft_ms": 500})
    found = plan(case, seeds=3)
    assert found.to_dict()["seeds"] == [1]
    assert any("the same for every seed" in warning for warning in found.to_dict()["warnings"])


def test_batch_size_of_a_tpot_target() -> None:
    """TPOT = 10 + batch: 34 ms allow exactly 24 at once, not 4 or 16."""
    values = given(
        cost_model={"kind": "linear", "base_ms": 10, "prefill_token_ms": 0, "decode_seq_ms": 1.0},
        slo={"tpot_ms": 34, "percentile": 99},
        workload={
            "requests": 200, "arrivals": {"kind": "burst"}, "prompt_tokens": {"kind": "fixed", "tokens": 1},
            "output_tokens": {"kind": "fixed", "tokens": 50},
        },
    )  # fmt: skip
    assert largest(scenario(values), "scheduler.max_num_seqs", 1, 64) == 24


@settings(max_examples=25, deadline=None)
@hypothesis_given(
    rate=st.floats(0.2, 30), prompt=st.integers(1, 3000), output=st.integers(1, 40),
    budget=st.sampled_from([64, 512, 8192]), caching=st.booleans(),
)  # fmt: skip
def test_no_request_beats_its_floor(rate: float, prompt: int, output: int, budget: int, caching: bool) -> None:
    """Whatever the load and the budget, TTFT, TPOT and E2E of a run are at least those of the request alone."""
    values = given(workload={
        "requests": 40, "arrivals": {"kind": "poisson", "rate_per_s": rate},
        "prompt_tokens": {"kind": "exponential", "mean": prompt},
        "output_tokens": {"kind": "exponential", "mean": output},
        "shared_prefix_tokens": max(1, prompt // 2),
    })  # fmt: skip
    values["scheduler"] |= {"max_num_batched_tokens": budget, "max_num_seqs": 64, "enable_prefix_caching": caching}
    values["cost_model"] |= {"context_token_ms": 0.001}
    case = scenario(values)
    run = simulate(case)
    best = bounds.alone(resolve(case), run.records.workload)
    requests = run.records.requests
    tolerance = 2  # ns: the clock rounds each end once
    assert (ttft_ns(requests) >= best.ttft_ns - tolerance).all()
    assert (e2e_ns(requests) >= best.e2e_ns - tolerance).all()
    gaps = requests.output_tokens > 1
    assert (tpot_ns(requests)[gaps] >= best.tpot_ns[gaps] - tolerance).all()


def test_a_request_alone_takes_just_its_floor() -> None:
    """The bound is reached: one request on an idle replica."""
    case = small(workload={"kind": "list", "requests": [
        {"arrival_ms": 0, "prompt_tokens": 9000, "output_tokens": 11}]})  # fmt: skip
    requests = simulate(case).records.requests
    best = bounds.alone(resolve(case), drawn(case))
    assert ttft_ns(requests)[0] == best.ttft_ns[0] == (10 + 819.2 + 10 + 80.8) * 1e6
    assert e2e_ns(requests)[0] == best.e2e_ns[0]


@pytest.mark.parametrize("rate", [5.0, 20.0, 60.0])
def test_the_bound_by_work_is_below_what_is_found(rate: float) -> None:
    """A fleet below the bound cannot keep up: the size found is never below it on a long enough run."""
    values = given(slo={"ttft_ms": 400, "percentile": 90})
    values["workload"] |= {"requests": 2500, "arrivals": {"kind": "poisson", "rate_per_s": rate}}
    found = plan(scenario(values), seeds=1)
    whole = found.to_dict()
    assert whole["replicas"] is not None
    assert whole["lower_bound_replicas"] <= whole["replicas"]


@pytest.mark.parametrize(
    ("changes", "scheduler", "workload", "binding"),
    [
        ({}, {"max_num_seqs": 2}, {"output_tokens": {"kind": "fixed", "tokens": 200}}, "seats"),
        (
            {"kv_cache": {"block_size": 16, "num_blocks": 60}},
            {},
            {"output_tokens": {"kind": "fixed", "tokens": 200}},
            "kv",
        ),
        ({}, {"max_num_batched_tokens": 256}, {"prompt_tokens": {"kind": "fixed", "tokens": 2000}}, "token_budget"),
        ({}, {}, {"output_tokens": {"kind": "fixed", "tokens": 200}}, "compute"),
    ],
)
def test_what_binds(changes: dict[str, Any], scheduler: dict[str, Any], workload: dict[str, Any], binding: str) -> None:
    """Two seats, a small pool, a small budget, or none of them."""
    values = given(slo={"e2e_ms": 20_000, "tpot_ms": 60, "percentile": 90}, **changes)
    values["scheduler"] |= scheduler
    values["workload"] |= {"requests": 200, "arrivals": {"kind": "poisson", "rate_per_s": 8}} | workload
    assert plan(scenario(values), seeds=1, max_replicas=30).to_dict()["binding"] == binding


Costs = st.fixed_dictionaries({"cost": st.integers(1, 4), "ttft": st.integers(1, 4), "tpot": st.integers(1, 4)})


@hypothesis_given(st.lists(Costs, min_size=1, max_size=8))
def test_the_pareto_front_is_what_nothing_beats(options: list[dict[str, int]]) -> None:
    """An option is off the front exactly when another is no worse in everything and better in something."""
    entries = [
        {"status": "plan", "cost_per_hour": one["cost"], "gpus": 1,
         "targets": {"p99_ttft_ms": {"worst": one["ttft"]}, "p99_tpot_ms": {"worst": one["tpot"]}}}
        for one in options
    ]  # fmt: skip
    vectors = [(one["cost"], one["ttft"], one["tpot"]) for one in options]
    expected = {
        place for place, mine in enumerate(vectors)
        if not any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in vectors)
    }  # fmt: skip
    assert pareto(entries) == expected


def test_options_side_by_side() -> None:
    """Two seat counts: each a plan of its own, the cheaper one the answer, the front marked."""
    found = plan(one_at_a_time(400, rate_per_s=3, ttft_ms=3000), vary={"scheduler.max_num_seqs": [1, 2]}, seeds=1)
    whole = found.to_dict()
    one, two = whole["options"]
    assert one["replicas"] > two["replicas"] == whole["replicas"]
    assert whole["point"] == {"scheduler.max_num_seqs": 2}
    assert two["pareto"]
    assert len(found.table()) == 2


def test_cost_counts_idle_time() -> None:
    """At $2 a GPU-hour, GPUs × hours of the run over its tokens; the whole span is paid for."""
    case = one_at_a_time(300, rate_per_s=2, ttft_ms=3000)
    whole = plan(case, seeds=1, longer=1).to_dict()
    run = simulate(case.replace({"replicas": whole["replicas"]}))
    assert whole["cost_per_hour"] == 2 * whole["replicas"]
    assert whole["cost_per_million_output_tokens"] == pytest.approx(run.summary["cost_per_million_output_tokens"])
    tokens = run.summary["total_input_tokens"] + run.summary["total_output_tokens"]
    expected = whole["cost_per_hour"] * run.summary["duration"] / 3600 / tokens * 1e6
    assert whole["cost_per_million_total_tokens"] == pytest.approx(expected)


def test_without_a_target_there_is_no_plan() -> None:
    """A plan without targets is refused, naming the key."""
    with pytest.raises(InvalidInput, match="slo"):
        plan(small())


def test_python_offers_the_studies() -> None:
    """bs.plan, bs.sweep, bs.compare are there, and results draw themselves."""
    found = bs.plan(one_at_a_time(300, rate_per_s=2, ttft_ms=3000), seeds=1)
    axes = found.plot.sizes()
    assert axes.get_xlabel() == "replicas"
    assert list(found.table().columns[:3]) == ["replicas", "gpus", "passes"]
    assert "<table" in found._repr_html_()
