"""The table of sweep.md: `python docs/how-to/sweep.py` prints it."""

from __future__ import annotations

import batchsim as bs
from batchsim.report.console import number


def saturation() -> str:
    """The rate at which quickstart's backlog begins to grow, in runs of three lengths."""
    lines = ["| requests | saturation, req/s |\n", "|---|---|\n"]
    for requests in (500, 2_000, 8_000):
        found = bs.saturation(bs.load("quickstart").replace({"workload.requests": requests}))
        lines.append(f"| {requests:,} | {number(found.rate_per_s)} |\n")
    return "".join(lines)


TABLES = {"saturation": saturation}

if __name__ == "__main__":
    print(saturation())  # noqa: T201 - a script
