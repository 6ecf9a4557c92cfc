"""The table of fleets.md: `python docs/how-to/fleets.py` prints it."""

from __future__ import annotations

import batchsim as bs
from batchsim.report.console import duration

ROUTERS = ("round_robin", "least_requests", "least_tokens", "power_of_two", "random", "central_queue")


def routers() -> str:
    """TTFT and TPOT of one fleet under each router."""
    base = bs.load("plan-conversations").replace({
        "replicas": 4, "workload.requests": 4_000, "workload.arrivals.rate_per_s": 60, "seed": 0,
    })  # fmt: skip
    lines = ["| router | p50 TTFT | p99 TTFT | p99 TPOT |\n", "|---|---|---|---|\n"]
    for kind in ROUTERS:
        summary = bs.simulate(base.replace({"router": {"kind": kind}})).summary
        figures = [duration(summary[key]) for key in ("p50_ttft_ms", "p99_ttft_ms", "p99_tpot_ms")]
        lines.append(f"| `{kind}` | {' | '.join(figures)} |\n")
    return "".join(lines)


TABLES = {"routers": routers}

if __name__ == "__main__":
    print(routers())  # noqa: T201 - a script
