"""Workloads: what a scenario asks for (`description`), drawn or read into columns (`draw`) before the clock starts."""

from __future__ import annotations

from batchsim.workload.columns import ABSENT, Clients, Prefixes, Workload

__all__ = ["ABSENT", "Clients", "Prefixes", "Workload"]
