"""How long whole commands take: `batchsim --help`, and the 10,000-request benchmark with `run … --json`.

    python tests/benchmarks/bench_start.py

Wall and processor seconds of whole processes, medians of alternating runs.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5
SCENARIO = """
{name: bench, model: qwen3-8b, gpu: h100-sxm,
 workload: {requests: 10000, arrivals: {kind: poisson, rate_per_s: 20},
            prompt_tokens: {kind: fixed, tokens: 512}, output_tokens: {kind: fixed, tokens: 128}}}
"""


def seconds(arguments: list[str]) -> tuple[float, float]:
    """(wall, processor) seconds of one process."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = "from batchsim.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return time.perf_counter() - began, used


def main() -> None:
    """Print the medians."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.yaml"
        path.write_text(SCENARIO)
        commands = {"--help": ["--help"], "run --json": ["run", str(path), "--json"]}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, arguments in commands.items():
                times[name].append(seconds(arguments))
    for name, measured in times.items():
        wall, used = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"{name:12}{wall:8.2f} s wall{used:8.2f} s of processor time")


if __name__ == "__main__":
    main()
