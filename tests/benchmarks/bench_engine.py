"""How fast the simulator is: requests per second inside a run, and whether a step costs the same for 8 as for 256 sequences.

    python tests/benchmarks/bench_engine.py [--schedulers vllm,static,…]

Prints medians of alternating runs in processor time, which other programs on the machine disturb least. The workload is
10,000 requests, Poisson 20/s, 512 prompt and 128 output tokens, qwen3-8b on one h100-sxm.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from batchsim.plugins import kinds
from batchsim.scenario import scenario
from batchsim.scenario.resolve import resolve
from batchsim.simulation import simulate

ROUNDS = 5


def given(scheduler: dict[str, Any], **workload: Any) -> dict[str, Any]:
    """The benchmark's scenario."""
    return {
        "name": "bench", "model": "qwen3-8b", "gpu": "h100-sxm", "scheduler": scheduler,
        "workload": {
            "requests": 10_000, "arrivals": {"kind": "poisson", "rate_per_s": 20},
            "prompt_tokens": {"kind": "fixed", "tokens": 512}, "output_tokens": {"kind": "fixed", "tokens": 128},
        } | workload,
    }  # fmt: skip


def runner(described: dict[str, Any], **options: Any) -> Callable[[], float]:
    """A function that runs it once and returns the processor seconds of the simulation."""
    resolved = resolve(scenario(described))
    workload = resolved.draw()

    def run() -> float:
        began = time.process_time()
        simulate(resolved, workload=workload, **options)
        return time.process_time() - began

    return run


def alternating(runs: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Median seconds of each, run in turn so that the machine's moods hit all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for round_number in range(ROUNDS + 1):
        for name, run in runs.items():
            seconds = run()
            if round_number:  # the first warms up
                times[name].append(seconds)
    return {name: statistics.median(values) for name, values in times.items()}


def requests_per_second(names: list[str]) -> None:
    """Each scheduler on the 10,000 requests; vllm also with prefix caching and one step ahead."""
    runs = {name: runner(given({"kind": name})) for name in names if name != "vllm"}
    plain = {"kind": "vllm", "enable_prefix_caching": False}
    if "vllm" in names:
        runs["vllm, no prefix caching"] = runner(given(plain))
        runs["vllm"] = runner(given({"kind": "vllm"}))
        runs["vllm, async"] = runner(given({"kind": "vllm", "async_scheduling": True}))
        runs["vllm, step by step"] = runner(given(plain), stepwise=True)
    print(f"{'10,000 requests':32}{'requests/s':>12}{'us/request':>12}")
    for name, seconds in alternating(runs).items():
        print(f"{name:32}{10_000 / seconds:>12,.0f}{seconds * 100:>12.1f}")


def cost_of_a_step() -> None:
    """Single decode steps with 8 and with 256 sequences running, no runs collapsed."""
    steps = 8_000  # so that admitting and ending them does not count
    runs = {}
    for seqs in (8, 256):
        described = given(
            {"kind": "vllm", "enable_prefix_caching": False}, requests=seqs, arrivals={"kind": "burst"},
            prompt_tokens={"kind": "fixed", "tokens": 16}, output_tokens={"kind": "fixed", "tokens": steps},
        ) | {"kv_cache": {"num_blocks": 200_000}}  # fmt: skip
        runs[f"{seqs} running"] = runner(described, stepwise=True)
    medians = alternating(runs)
    small, large = medians.values()
    print(f"\na decode step: {small / steps * 1e6:.1f} us with 8 running, {large / steps * 1e6:.1f} us with 256: "
          f"{large / small:.2f} times")  # fmt: skip


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--schedulers", default="vllm", help="comma-separated, or all")
    names = parser.parse_args().schedulers
    requests_per_second(kinds("batchsim.schedulers") if names == "all" else names.split(","))
    cost_of_a_step()


if __name__ == "__main__":
    main()
