"""Prints what batchsim gives for each published comparison: `python -m tests.schedulers.measure_published [a b c d e]`.

Means of 8 seeds with the least and the most of them. docs/explanation/published-comparisons.md quotes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from batchsim.scenario.scenario import scenario
from batchsim.simulation import Run, simulate
from tests.schedulers.published import SEEDS, anyscale, longest_output, paged_attention, runs, sarathi_serve, stability
from tests.schedulers.test_vtc import gap, two_tenants

VLLM = {"kind": "vllm", "max_num_seqs": 256, "max_num_batched_tokens": 8192}
ORCA = {"kind": "orca"}
PAGED = {
    "orca, max": ORCA | {"reserve": "max"},
    "orca, pow2, buddy": ORCA | {"reserve": "pow2", "allocator": "buddy"},
    "orca, oracle, buddy": ORCA | {"reserve": "oracle", "allocator": "buddy"},
    "orca, pow2": ORCA | {"reserve": "pow2"},
    "orca, oracle": ORCA | {"reserve": "oracle"},
    "vllm": {"kind": "vllm"},
    "vllm_v0": {"kind": "vllm_v0"},
}
CHUNKED = {
    "hybrid": {"kind": "sarathi", "chunk_size": 8192},
    "combined": {"kind": "sarathi", "chunk_size": 512},
    "chunked": {"kind": "sarathi", "chunk_size": 512, "hybrid": False},
    "vllm_v0": {"kind": "vllm_v0", "max_num_batched_tokens": 8192, "max_num_seqs": 128},
}
TENANTS = (("vtc", {}), ("vtc", {"reserve": "declared"}), ("vllm", {}))
LIMITS = (
    ("vllm", {"max_num_seqs": 64, "max_num_batched_tokens": 64}, (97, 105, 110)),
    ("sarathi", {"max_num_seqs": 64, "chunk_size": 64}, (97, 105)),
    ("vllm_v0", {"max_num_seqs": 64, "max_num_batched_tokens": 64}, (70, 90, 105)),
    ("vllm_v0", {"max_num_seqs": 256, "max_num_batched_tokens": 64}, (90,)),
    ("static", {"batch_size": 64}, (25, 29, 32, 60)),
    ("orca", {"max_num_seqs": 64}, (105,)),
)


def spread(values: Sequence[float], form: str = ".4g") -> str:
    """Mean, and least to most."""
    return f"{fmean(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def figures(many: list[Run], key: str) -> list[float]:
    """A figure of the summary of each run."""
    return [float(run.summary[key]) for run in many]


def a() -> Iterable[str]:
    """Anyscale: total tokens/s of static batches and of vLLM."""
    served = {}
    for cap, batch in ((32, 16), (1536, 4)):
        static = {"kind": "static", "batch_size": batch, "run_to": "longest"}
        pair = [figures(runs(anyscale(cap), scheduler=s), "total_token_throughput") for s in (static, VLLM)]
        served[cap] = pair[1]
        ratio = [v / s for s, v in zip(*pair, strict=True)]
        yield f"cap {cap}: static {spread(pair[0])}, vllm {spread(pair[1])} tokens/s, ratio {spread(ratio)}"
    slow = []
    for seed in SEEDS:
        given = anyscale(1536)
        given["workload"]["max_tokens"] = longest_output(given, seed)
        given |= {"seed": seed, "scheduler": {"kind": "static", "batch_size": 4, "run_to": "limit"}}
        slow.append(float(simulate(scenario(given)).summary["total_token_throughput"]))
    ratio = [v / s for s, v in zip(slow, served[1536], strict=True)]
    yield f"run to the longest of all: static {spread(slow)} tokens/s, ratio {spread(ratio)}"
    tgi = figures(runs(anyscale(1536), scheduler={"kind": "tgi", "max_concurrent_requests": 1000}),
                  "total_token_throughput")  # fmt: skip
    yield f"tgi at cap 1536: {spread(tgi)} tokens/s, ratio {spread([t / s for s, t in zip(slow, tgi, strict=True)])}"


def b() -> Iterable[str]:
    """PagedAttention: mean running."""
    for name, scheduler in PAGED.items():
        many = runs(paged_attention(scheduler))
        stable = sum(run.summary["stable"] is True for run in many)
        yield f"{name}: mean_running {spread(figures(many, 'mean_running'), '.2f')}, stable in {stable} of {len(many)}"


def c() -> Iterable[str]:
    """Sarathi-Serve: median TTFT, p99 and longest gap."""
    longest = {}
    for name, scheduler in CHUNKED.items():
        many = runs(sarathi_serve(scheduler))
        longest[name] = figures(many, "max_itl_ms")
        ttft, gaps = figures(many, "p50_ttft_ms"), figures(many, "p99_itl_ms")
        yield f"{name}: TTFT p50 {spread(ttft, '.0f')} ms, ITL p99 median {median(gaps):.0f} ms, mean {spread(gaps)} ms"
    ratio = [v / c for v, c in zip(longest["vllm_v0"], longest["combined"], strict=True)]
    yield f"longest gap, vllm_v0 over combined: {spread(ratio)}"


def d() -> Iterable[str]:
    """VTC: the largest change of the weighted service gap while both tenants wait."""
    for kind, keys in TENANTS:
        found = [gap(two_tenants({"kind": kind, **keys}, seed=seed)) for seed in SEEDS]
        yield f"{kind} {keys}: gap {spread(found, ',.0f')} of {2 * max(384, 2 * 10_000):,} allowed"


def e() -> Iterable[str]:
    """Stability: what is served at each offered rate."""
    for kind, keys, rates in LIMITS:
        for rate in rates:
            many = runs(stability({"kind": kind, **keys}, rate))
            stable = sum(run.summary["stable"] is True for run in many)
            served, offered = figures(many, "served_rate_per_s"), figures(many, "offered_rate_per_s")
            growth = [100 * (1 - s / o) for s, o in zip(served, offered, strict=True)]
            yield (
                f"{kind} {keys} at {rate}/s: served {spread(served, '.1f')}, backlog grows by "
                f"{spread(growth, '.1f')} % of the offered rate, stable in {stable} of {len(many)}"
            )


ALL: dict[str, Callable[[], Iterable[str]]] = {"a": a, "b": b, "c": c, "d": d, "e": e}


def main(wanted: Sequence[str]) -> None:
    """Print the comparisons asked for."""
    for name in wanted or ALL:
        print(f"{name}. {ALL[name].__doc__}")
        for line in ALL[name]():
            print("  ", line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
