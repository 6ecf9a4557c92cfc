"""Builders of descriptions for the workload tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from batchsim.workload.columns import Workload
from batchsim.workload.description import WorkloadDescription
from batchsim.workload.draw import draw

ADAPTER: TypeAdapter[Any] = TypeAdapter(WorkloadDescription)


def described(**keys: Any) -> Any:
    """A validated workload description."""
    return ADAPTER.validate_python(keys)


def drawn(seed: int = 0, base_dir: Path = Path(), **keys: Any) -> Workload:
    """The workload of a description; one class of 100/10 tokens, Poisson 8/s, unless said otherwise."""
    defaults: dict[str, Any] = {}
    if keys.get("kind") not in ("list", "trace"):
        defaults["arrivals"] = {"kind": "poisson", "rate_per_s": 8}
        if "mix" not in keys:
            defaults |= {"prompt_tokens": fixed(100), "output_tokens": fixed(10)}
    return draw(described(**(defaults | keys)), seed, base_dir)


def fixed(tokens: int) -> dict[str, Any]:
    """A fixed length."""
    return {"kind": "fixed", "tokens": tokens}


def same(one: Workload, other: Workload) -> bool:
    """Whether two workloads hold the same bytes in every column (notes aside)."""
    columns = ("arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "priority", "tenant", "traffic_class",
               "session", "cancel_ns")  # fmt: skip
    if any(getattr(one, name).tobytes() != getattr(other, name).tobytes() for name in columns):
        return False
    if (one.tenants, one.classes, one.sessions, one.ids) != (other.tenants, other.classes, other.sessions, other.ids):
        return False
    if one.prefixes is None or other.prefixes is None:
        return one.prefixes is other.prefixes
    parts = ("offset", "segment", "tokens")
    return all(getattr(one.prefixes, part).tobytes() == getattr(other.prefixes, part).tobytes() for part in parts)
