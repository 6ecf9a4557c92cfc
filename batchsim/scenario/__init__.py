"""Scenario files: read, checked, changed, written out, and turned into the parts of a run."""

from __future__ import annotations

from batchsim.scenario.resolve import Resolved, resolve
from batchsim.scenario.scenario import Scenario, load, scenario
from batchsim.scenario.schema import json_schema

__all__ = ["Resolved", "Scenario", "json_schema", "load", "resolve", "scenario"]
