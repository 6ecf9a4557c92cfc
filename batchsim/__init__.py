"""batchsim simulates LLM inference serving: how requests are batched, and what their users feel.

import batchsim as bs
run = bs.simulate(bs.load("scenario.yaml"))
run.summary["p99_ttft_ms"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchsim.scenario import Scenario, load
    from batchsim.simulation import Run, simulate
    from batchsim.study import compare, largest, plan, saturation, sweep

__all__ = ["Run", "Scenario", "compare", "largest", "load", "plan", "saturation", "simulate", "sweep"]

_STUDIES = ("compare", "largest", "plan", "saturation", "sweep")
_HOME = {"load": "scenario", "Scenario": "scenario", "simulate": "simulation", "Run": "simulation"}
_HOME |= dict.fromkeys(_STUDIES, "study")


def __getattr__(name: str) -> Any:
    """Names are imported when first used, so that `import batchsim` costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'batchsim' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"batchsim.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
