"""What a scenario leaves out and an engine preset, or the simulator, fills in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchsim.catalog import Engine, Gpu
from batchsim.errors import InvalidInput
from batchsim.scenario import kinds
from batchsim.scenario.check import default_of, keys

DEFAULT_KINDS: Mapping[str, str] = {"router": "round_robin", "cost_model": "calibrated", "scheduler": "vllm"}
"""Sections that may be left out, or say no kind, and the kind that they then have."""


def fill(given: Mapping[str, Any], engine: Engine | None, gpu: Gpu | None) -> dict[str, Any]:
    """`given` with the sections that were left out, and with what the engine's preset says about scheduler and KV
    cache.

    What the file says wins, key by key. A preset speaks only for the scheduler that it runs.
    """
    filled = dict(given)
    for name, kind in DEFAULT_KINDS.items():
        section = {} if filled.get(name) is None else filled[name]
        if isinstance(section, Mapping) and section.get("kind") is None:
            section = {**section, "kind": kind}
        filled[name] = section
    if isinstance(filled["scheduler"], Mapping):
        filled["scheduler"] = _scheduler(filled["scheduler"], engine, gpu)
    cache = filled.get("kv_cache")
    if (
        engine is not None
        and engine.gpu_memory_utilization is not None
        and (cache is None or isinstance(cache, Mapping))
    ):
        filled["kv_cache"] = {"gpu_memory_utilization": engine.gpu_memory_utilization} | dict(cache or {})
    return filled


def _scheduler(given: Mapping[str, Any], engine: Engine | None, gpu: Gpu | None) -> dict[str, Any]:
    """The preset's settings under the given ones.

    A scheduler with seats and a token budget names both keys in `sized`; given one of the two, the other's default
    is clamped to fit.
    """
    try:
        cls = kinds.find("scheduler", given.get("kind"))
    except InvalidInput:  # said by the check of the section
        return dict(given)
    start = {}
    if engine is not None and engine.scheduler is not None and engine.scheduler.kind == given.get("kind"):
        known = keys(cls)
        start = {key: value for key, value in engine.scheduler_defaults(gpu).items() if key in known}
        start |= {key: getattr(engine, key) for key in ("async_scheduling", "enable_prefix_caching") if key in known}
    if (sized := getattr(cls, "sized", None)) is not None:
        start |= _clamped(given, {key: start.get(key, default_of(cls, key)) for key in sized}, *sized)
    return dict(given) | {key: value for key, value in start.items() if given.get(key) is None}


def _clamped(given: Mapping[str, Any], start: Mapping[str, Any], seats_key: str, budget_key: str) -> dict[str, Any]:
    seats, budget = given.get(seats_key), given.get(budget_key)
    clamped = dict(start)
    if _is_count(budget) and seats is None:
        clamped[seats_key] = min(start[seats_key], budget)
    if _is_count(seats) and budget is None:
        clamped[budget_key] = max(start[budget_key], seats)
    return clamped


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
