"""Studies: many runs that answer one question. Compare, sweep, plan, and hold a stored baseline."""

from __future__ import annotations

from batchsim.study.comparing import Comparison, compare
from batchsim.study.planning import Plan, plan
from batchsim.study.saturating import Saturation, largest, saturation
from batchsim.study.sweeping import Sweep, sweep
from batchsim.study.work import Part

__all__ = ["Comparison", "Part", "Plan", "Saturation", "Sweep", "compare", "largest", "plan", "saturation", "sweep"]
