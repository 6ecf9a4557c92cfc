"""The tables of runs, printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchsim.cli import options
from batchsim.simulation import Run


def run_table(run: Run, folder: Path | None) -> None:
    """The table of one run on stdout."""
    from batchsim.report import console

    known = cost_line(run.resolved.cost.describe())
    options.show(
        console.run_table(run.summary, cost_model=known, wall_s=run.wall_s, out=str(folder) if folder else None)
    )


def compare_table(runs: Mapping[str, Run]) -> None:
    """The table of several runs side by side on stdout."""
    from batchsim.report import comparison

    options.show(comparison.compare_table({name: run.summary for name, run in runs.items()}))


def cost_line(cost: Mapping[str, Any]) -> str:
    """What priced the steps, and how well it is known: `calibrated h100-sxm (kernels ±3.4 %)`."""
    name = " ".join(str(cost[key]) for key in ("kind", "profile") if cost.get(key))
    known = (
        f"kernels ±{cost['mape_percent']:.1f} %"
        if cost.get("mape_percent") is not None
        else str(cost.get("status", ""))
    )
    return f"{name} ({known})" if known else name
