"""What the reports of `run`, `compare`, `sweep` and `plan` say, a module each: results -> a `Page`."""

from __future__ import annotations

from batchsim.report.pages.comparing import compare_page
from batchsim.report.pages.planning import plan_page
from batchsim.report.pages.running import run_page
from batchsim.report.pages.sweeping import sweep_page

__all__ = ["compare_page", "plan_page", "run_page", "sweep_page"]
