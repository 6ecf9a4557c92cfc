"""Sections with a `kind`: `{kind: vllm, max_num_seqs: 64}` -> an instance of the class that the kind names.

A kind is a module of a sub-package (`batchsim.schedulers`) or `mypkg.mine:Mine` outside of it. What the scenario
page names but this version lacks is refused as not available, so that a name is never taken for a typing error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from batchsim import plugins
from batchsim.errors import InvalidInput, Problem
from batchsim.scenario.check import build, keys, kind_names, nearest, shown
from batchsim.workload import arrivals, lengths

PACKAGES = {"scheduler": "batchsim.schedulers", "cost_model": "batchsim.cost", "router": "batchsim.routers"}
"""Sections of the top level whose kinds are modules of a package."""

LENGTHS = ("prompt_tokens", "output_tokens", "max_tokens")
"""Sections of a workload that hold lengths."""

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
    return [kind for kind in plugins.kinds(PACKAGES[name]) if _known(name, kind) is not None]


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
    if kind in plugins.kinds(PACKAGES[name]):
        file, wanted = f"{PACKAGES[name]}.{kind}", kind.title().replace("_", "")
        raise InvalidInput([Problem(path, f"the module {file} has no dataclass named {wanted}", repr(kind))])
    raise InvalidInput([Problem(path, f"unknown kind{nearest(kind, available(name))}", repr(kind))])


def _known(name: str, kind: str) -> type[Any] | None:
    """The class of a kind of batchsim's own; None where there is no such kind, or the module only helps others."""
    if kind not in plugins.kinds(PACKAGES[name]):
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
    last = section.rpartition(".")[2]
    if section in PACKAGES or (last in PACKAGES and section.startswith(("fleet.", "disaggregation."))):
        try:
            return set(keys(find(last, kind)))
        except InvalidInput:  # said again, and better, when the whole scenario is checked
            return None
    classes = arrivals.KINDS if last == "arrivals" else lengths.KINDS if last in LENGTHS else ()
    return next((set(keys(cls)) for cls in classes if kind in kind_names(cls)), None)
