"""Small values for the parameters of any plug-in, read off its dataclass: type, bounds and default.

A new scheduler is tested the moment its file exists, because nothing here names one.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

REACH = 12
"""Whole numbers are drawn from their lower bound to so much above it, and beside the default."""

Values = Mapping[str, Any]


def parameters(cls: type[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the class's scenario keys with small values; keys not drawn keep their defaults."""
    hints = get_type_hints(cls, include_extras=True)
    keys: dict[str, st.SearchStrategy[Any]] = {}
    for field in dataclasses.fields(cls):
        if field.init and (values := _values(hints[field.name], field.name, {})) is not None:
            keys[field.name] = values
    return st.fixed_dictionaries({}, optional=keys)


def bounds(annotation: Any) -> dict[str, Any]:
    """The bounds ge, gt, le, lt that `Annotated[..., Field(...)]` carries."""
    found: dict[str, Any] = {}
    if get_origin(annotation) is Annotated:
        for entry in get_args(annotation)[1:]:
            for rule in getattr(entry, "metadata", [entry]):
                found |= {name: getattr(rule, name) for name in ("ge", "gt", "le", "lt") if hasattr(rule, name)}
    return found


def _values(annotation: Any, name: str, limits: Values) -> st.SearchStrategy[Any] | None:
    """A strategy for one annotation; None where only a person could say what fits (free text)."""
    if get_origin(annotation) is Annotated:
        return _values(get_args(annotation)[0], name, {**limits, **bounds(annotation)})
    if get_origin(annotation) in (Union, types.UnionType):
        branches = [None if a is type(None) else _values(a, name, limits) for a in get_args(annotation)]
        options = [branch for branch in branches if branch is not None]
        nothing = [st.none()] if type(None) in get_args(annotation) else []
        return st.one_of(*nothing, *options) if options else None
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if get_origin(annotation) in (list, tuple):
        inner = _values(next(a for a in get_args(annotation) if a is not Ellipsis), name, {})
        return None if inner is None else st.lists(inner, max_size=3)
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return _whole(name, limits)
    if annotation is float:
        return _decimal(limits)
    return None


def _whole(name: str, limits: Values) -> st.SearchStrategy[int]:
    low = int(limits.get("ge", limits.get("gt", -1) + 1))
    high = int(limits.get("le", limits.get("lt", low + 10**9) - 1))
    reach = 8 * REACH if "tokens" in name else REACH
    return st.integers(low, min(high, low + reach))


def _decimal(limits: Values) -> st.SearchStrategy[float]:
    low = float(limits.get("ge", limits.get("gt", 0.0)))
    high = float(limits.get("le", limits.get("lt", low + 100.0)))
    steps = [low + (high - low) * share for share in (0.0, 0.01, 0.1, 0.25, 0.5, 0.9, 1.0)]
    return st.sampled_from([x for x in steps if (x > low or "gt" not in limits) and (x < high or "lt" not in limits)])
