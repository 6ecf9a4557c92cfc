"""Sections with a `kind`: `{kind: vllm, max_num_seqs: 64}` -> an instance of the class that the kind names.

A kind is a module of a sub-package (`batchsim.schedulers`) or `mypkg.mine:Mine` outside of it. What the scenario
page names but this version
lacks is refused as not available, so that a name is never taken for a typing error.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from typing import Any

from batchsim import plugins
from batchsim.errors import InvalidInput, Problem
from batchsim.scenario.check import build, keys, kind_names, nearest, shown
from batchsim.scenario.sections import RoundRobin
from batchsim.workload import arrivals, lengths

PACKAGES = {"scheduler": "batchsim.schedulers", "cost_model": "batchsim.cost", "router": "batchsim.routers"}
"""Sections of the top level whose kinds are modules of a package."""

LENGTHS = ("prompt_tokens", "output_tokens", "max_tokens")
"""Sections of a workload that hold lengths."""

BUILT_IN: Mapping[str, Mapping[str, type[Any]]] = {"router": {"round_robin": RoundRobin}}
"""Kinds that need no module."""

PROMISED: Mapping[str, tuple[str, ...]] = {
    "scheduler": (
        "static", "dynamic", "vllm", "vllm_v0", "orca", "sarathi", "tgi", "tensorrt_llm", "sglang",
        "priority", "vtc", "round_robin", "sjf", "mlfq", "deadline",
    ),
    "cost_model": ("calibrated", "roofline", "linear", "table"),
    "router": (
        "round_robin", "central_queue", "random", "least_requests", "least_tokens", "power_of_two",
        "prefix_affinity", "session",
    ),
}  # fmt: skip
"""The kinds that the scenario page names, built or not."""

PROMISED_KEYS: Mapping[str, tuple[str, ...]] = {
    "scheduler": ("skip_blocked", "max_overtakes", "max_queue", "queue_timeout_ms")
}
"""Keys that the page names for every kind of a section, built or not."""


def section(name: str, value: Any) -> Any:
    """The instance that the section `name` of a scenario describes. Raises `InvalidInput` with all problems in it."""
    if not isinstance(value, Mapping):
        raise InvalidInput([Problem(name, "must be a mapping with a kind", shown(value))])
    cls = find(name, value.get("kind"))
    parameters = {key: child for key, child in value.items() if key != "kind"}
    promised = [key for key in PROMISED_KEYS.get(name, ()) if key not in keys(cls)]
    return build(cls, parameters, name, unavailable=promised)


def available(name: str) -> list[str]:
    """The kinds that a section takes in this version."""
    return [kind for kind in _modules(name) if _known(name, kind) is not None]


def find(name: str, kind: Any) -> type[Any]:
    """The dataclass that a kind of the section `name` names. Raises `InvalidInput`."""
    path = f"{name}.kind"
    if kind is None:
        raise InvalidInput([Problem(path, f"missing; one of {', '.join(available(name))}")])
    if not isinstance(kind, str):
        raise InvalidInput([Problem(path, "must be text", shown(kind))])
    cls = _outside(path, kind) if ":" in kind else _known(name, kind)
    if cls is not None:
        return cls
    if kind in PROMISED[name]:
        there = ", ".join(available(name))
        raise InvalidInput([Problem(path, f"not available in this version; there are {there}", repr(kind))])
    raise InvalidInput([Problem(path, f"unknown kind{nearest(kind, available(name))}", repr(kind))])


def _modules(name: str) -> list[str]:
    package = PACKAGES[name]
    if importlib.util.find_spec(package) is None:
        return sorted(BUILT_IN[name])
    return plugins.kinds(package)


def _known(name: str, kind: str) -> type[Any] | None:
    """The class of a kind of batchsim's own; None where there is no such kind, or the module only helps others."""
    if kind in BUILT_IN.get(name, {}):
        return BUILT_IN[name][kind]
    if kind not in _modules(name):
        return None
    try:
        cls = plugins.find(PACKAGES[name], kind)
    except InvalidInput:
        return None
    return cls if dataclasses.is_dataclass(cls) else None


def _outside(path: str, kind: str) -> type[Any]:
    try:
        cls = plugins.find("", kind, path)
    except InvalidInput:
        raise
    except Exception as error:  # a plug-in may fail in any way while it is imported
        raise InvalidInput(
            [Problem(path, f"cannot be imported: {type(error).__name__}: {error}", repr(kind))]
        ) from error
    if not dataclasses.is_dataclass(cls):
        raise InvalidInput([Problem(path, "must name a dataclass: its fields are the keys of the section", repr(kind))])
    return cls


def keys_of(section: str, kind: Any) -> set[str] | None:
    """The keys that a section (dotted) takes under a kind; None where kinds do not choose them or there is no such
    kind."""
    if section in PACKAGES:
        try:
            return set(keys(find(section, kind)))
        except InvalidInput:  # said again, and better, when the whole scenario is checked
            return None
    last = section.rpartition(".")[2]
    classes = arrivals.KINDS if last == "arrivals" else lengths.KINDS if last in LENGTHS else ()
    return next((set(keys(cls)) for cls in classes if kind in kind_names(cls)), None)
