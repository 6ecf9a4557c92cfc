"""Random small scenarios: tiny pools, ties in time, clients that give up, every kind of arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from batchsim import plugins
from batchsim.errors import InvalidInput
from batchsim.scenario import Scenario, scenario
from tests.laws.parameters import parameters

Given = dict[str, Any]

SCHEDULERS = plugins.kinds("batchsim.schedulers")
LINEAR = {"kind": "linear", "base_ms": 10, "prefill_token_ms": 0.1, "decode_seq_ms": 1.0}
FLAT = {"kind": "linear", "base_ms": 10}

COSTS: list[Mapping[str, Any]] = [
    LINEAR,
    FLAT,
    {"kind": "linear", "base_ms": 3.3, "prefill_token_ms": 0.07, "decode_seq_ms": 0.9, "context_token_ms": 0.013},
    {"kind": "linear", "prefill_token_ms": 0.1, "decode_seq_ms": 0.000001, "context_token_ms": 0.0000003},
    {"kind": "roofline"},
    {"kind": "calibrated"},
]
ENGINES: list[Mapping[str, Any]] = [{}, {"overhead_ms": 1.7, "seq_host_us": 13}, {"ingress_ms": 5}]


def base(**changes: Any) -> Given:
    """A scenario with exact step times and room for everybody; `changes` replace whole sections."""
    return {
        "name": "law",
        "seed": 1,
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "engine": {"overhead_ms": 0},
        "cost_model": dict(LINEAR),
        "kv_cache": {"block_size": 16, "num_blocks": 100_000},
        "scheduler": {"kind": "vllm", "enable_prefix_caching": False, "async_scheduling": False},
    } | changes


def listed(rows: list[tuple[float, int, int]], **more: Any) -> Given:
    """Requests written out as (arrival ms, prompt, output)."""
    keys = ("arrival_ms", "prompt_tokens", "output_tokens")
    return {"kind": "list", "requests": [dict(zip(keys, row, strict=True)) for row in rows]} | more


def build(given: Given) -> Scenario:
    """The scenario, without those drawn scheduler parameters that contradict each other or are not built yet."""
    while True:
        try:
            return scenario(given)
        except InvalidInput as error:
            refused = {p.path.partition(".")[2].partition("[")[0] for p in error.problems if p.path[:9] == "scheduler"}
            kept = {
                k: v for k, v in given["scheduler"].items() if k == "kind" or (k not in refused and "" not in refused)
            }
            if not refused or kept == given["scheduler"]:
                raise
            given = given | {"scheduler": kept}


@st.composite
def schedulers(draw: st.DrawFn, kind: str) -> Given:
    """A scheduler section of this kind."""
    drawn = draw(parameters(plugins.find("batchsim.schedulers", kind)))
    return {"kind": kind} | drawn


@st.composite
def requests(draw: st.DrawFn, longest: int, at_most: int) -> Given:
    """One request of a list; times stand on a grid that ends of steps hit."""
    row: Given = {
        "arrival_ms": draw(st.sampled_from([0, 0, 10, 20, 21, 30, 55, 110])) + draw(st.sampled_from([0, 0, 0.1, 7])),
        "prompt_tokens": draw(st.integers(1, longest)),
        "output_tokens": draw(st.integers(1, at_most)),
    }
    if draw(st.booleans()):
        row["max_tokens"] = row["output_tokens"] + draw(st.sampled_from([0, 0, 3, 40]))
    if draw(st.integers(0, 3)) == 3:
        row["cancel_ms"] = draw(st.sampled_from([0, 5, 10, 30, 33.3, 100, 400]))
    if draw(st.booleans()):
        row["priority"] = draw(st.integers(-1, 2))
        row["tenant"] = draw(st.sampled_from(["a", "b", "c"]))
    return row


@st.composite
def workloads(draw: st.DrawFn, longest: int, at_most: int) -> Given:
    """A list, a drawn workload, or a mix."""
    shape = draw(st.sampled_from(["list", "list", "closed list", "drawn", "mix"]))
    cap = draw(st.sampled_from([None, None, 1, 2, 3]))
    if shape in ("list", "closed list"):
        rows = draw(st.lists(requests(longest, at_most), min_size=1, max_size=14))
        if shape == "list":
            return {"kind": "list", "requests": rows, "max_concurrency": cap}
        return {"kind": "list", "requests": rows, "arrivals": draw(closed())}
    arrivals = draw(st.one_of(closed(), open_loops()))
    more: Given = {"requests": draw(st.integers(1, 25)), "arrivals": arrivals}
    if arrivals["kind"] == "piecewise":
        more = {"duration_s": draw(st.sampled_from([0.3, 1.0])), "arrivals": arrivals}
    if arrivals["kind"] != "closed":
        more["max_concurrency"] = cap
    if shape == "drawn":
        return more | draw(traffic(longest, at_most))
    first, second = draw(traffic(longest, at_most)), draw(traffic(longest, at_most))
    urgent = {"name": "a", "share": 0.25, "priority": -1, "tenant": "x"}
    return more | {"mix": [first | urgent, second | {"name": "b", "share": 0.75, "tenant": "y", "priority": 3}]}


def closed() -> st.SearchStrategy[Given]:
    """A closed loop, thinking or not."""
    return st.builds(
        lambda n, think_s: {"kind": "closed", "concurrency": n, "think_s": think_s},
        st.integers(1, 6),
        st.sampled_from([0, 0.005, 0.01, 0.2]),
    )


def open_loops() -> st.SearchStrategy[Given]:
    """Every kind of open arrivals."""
    rates = st.sampled_from([2, 20, 100])
    pieces = [
        {"duration_s": 0.5, "rate_per_s": 40},
        {"duration_s": 0.3, "rate_per_s": 0},
        {"duration_s": 1, "rate_per_s": 9},
    ]
    return st.one_of(
        st.builds(lambda r: {"kind": "poisson", "rate_per_s": r}, rates),
        st.builds(lambda r, b: {"kind": "gamma", "rate_per_s": r, "burstiness": b}, rates, st.sampled_from([0.3, 4.0])),
        st.builds(lambda r: {"kind": "constant", "rate_per_s": r}, rates),
        st.just({"kind": "burst"}),
        st.just({"kind": "piecewise", "segments": pieces}),
    )


@st.composite
def traffic(draw: st.DrawFn, longest: int, at_most: int) -> Given:
    """Lengths, limits and patience of one class."""
    kinds = [
        lambda top: {"kind": "fixed", "tokens": max(1, top // 2)},
        lambda top: {"kind": "uniform", "mean": max(1, top // 2), "range_ratio": 0.5, "max": top},
        lambda top: {"kind": "geometric", "mean": max(1, top // 3) + 0.5, "max": top},
        lambda top: {"kind": "lognormal", "mean": top / 3 + 1, "sigma": 0.8, "max": top},
    ]
    found: Given = {
        "prompt_tokens": draw(st.sampled_from(kinds))(longest),
        "output_tokens": draw(st.sampled_from(kinds))(at_most),
    }
    if draw(st.booleans()):
        found["max_tokens"] = draw(st.sampled_from([max(1, at_most // 2), at_most, at_most + 9]))
    if draw(st.integers(0, 3)) == 3:
        found["cancel_ms"] = draw(st.sampled_from([0, 10, 50, 300]))
    return found


@st.composite
def scenarios(draw: st.DrawFn, kind: str) -> Scenario:
    """A whole scenario for a scheduler of this kind."""
    block = draw(st.sampled_from([16, 1, 3, 4]))
    blocks = draw(st.one_of(st.integers(2, 12), st.integers(8, 60), st.just(5000)))
    pool = block * blocks
    longest = min(draw(st.sampled_from([pool // 3 + 1, pool // 2 + 1, pool + 2])), 120)
    at_most = max(2, min(pool // 2, draw(st.sampled_from([4, 30, 90]))))
    horizon_s = draw(st.sampled_from([None, None, None, 0.02, 0.11, 0.3, 1.0]))
    return build(
        base(
            seed=draw(st.integers(0, 5)),
            engine=draw(st.sampled_from(ENGINES)),
            cost_model=dict(draw(st.sampled_from(COSTS))),
            kv_cache={"block_size": block, "num_blocks": blocks},
            scheduler=draw(schedulers(kind)),
            workload=draw(workloads(longest, at_most)),
            replicas=draw(st.sampled_from([1, 1, 2])),
            max_model_len=draw(st.sampled_from([None, None, 150, 60])),
            horizon_s=horizon_s,
        )
    )
