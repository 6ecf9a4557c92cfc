"""Replicas that are not all alike: `fleet: [{name, replicas, …}, …]`, and `disaggregation: {prefill, decode, link}`.

A group is the scenario itself with some of its keys replaced, so that it is checked and resolved by the same rules.
Mappings (`scheduler`, `kv_cache`, …) are merged key by key, unless the group names another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from batchsim.errors import InvalidInput, Problem
from batchsim.scenario.check import build, shown, unknown_key

if TYPE_CHECKING:
    from batchsim.scenario.scenario import Scenario

Json = dict[str, Any]
GROUP_KEYS = ("replicas", "gpu", "tensor_parallel", "dtype", "engine", "cost_model", "scheduler", "kv_cache")
"""What a group may say in place of the scenario's own keys."""

SIDE_KEYS = (*GROUP_KEYS, "router")
"""The same of a side of a disaggregated server."""

MERGED = ("cost_model", "scheduler", "kv_cache", "router")
SECTIONS = ("fleet", "disaggregation")
SIDES = ("prefill", "decode")
Role = Literal["serve", "prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Link:
    """The network port of each replica, over which KV blocks are pulled; transfers share it in order of arrival."""

    gb_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False, description="10^9 bytes a second for each GPU")]
    latency_ms: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="of each transfer, ms; it does not occupy the link")
    ] = 0.0
    per_block_us: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="of each KV block moved, us; it occupies the link")
    ] = 0.0


@dataclass(frozen=True, slots=True)
class Disaggregation:
    """How prompts, computed on one side, are handed to the other for decoding."""

    link: Annotated[Link, Field(description="between the two sides")]
    first_token: Annotated[
        Literal["prefill", "decode"],
        Field(description="who streams it; decode: from the prompt's last token, recomputed there"),
    ] = "decode"  # noqa: S105 - an LLM's token


@dataclass(frozen=True, slots=True)
class Group:
    """Equal replicas, and the scenario of one of them."""

    name: str
    role: Role
    scenario: Scenario


Check = Callable[[Mapping[str, Any]], "Scenario"]


def lend(given: Mapping[str, Any], required: tuple[str, ...]) -> tuple[Json, dict[str, str]]:
    """The scenario without its groups, and where the keys come from that only the groups have: the first that does."""
    base = {key: value for key, value in given.items() if key not in SECTIONS}
    lent: dict[str, str] = {}
    for place, entry in _entries(given):
        for key in required if isinstance(entry, Mapping) else ():
            if key in GROUP_KEYS and base.get(key) is None and entry.get(key) is not None:
                base[key], lent[key] = entry[key], place
    return base, lent


def placed(found: Problem, lent: Mapping[str, str]) -> Problem:
    """A problem with a key that a group lent, where it stands in the file."""
    place = lent.get(found.path.partition(".")[0])
    return found if place is None else Problem(f"{place}.{found.path}", found.rule, found.value)


def read(given: Mapping[str, Any], check: Check) -> tuple[tuple[Group, ...], Disaggregation | None]:
    """The groups of a scenario whose other keys are right. Raises `InvalidInput`."""
    present = [key for key in SECTIONS if given.get(key) is not None]
    if len(present) == 2:
        raise InvalidInput([Problem("disaggregation", "cannot stand beside fleet: give one of them")])
    if not present:
        return (), None
    problems = _shape_problems(given)
    if problems:
        raise InvalidInput(problems)
    groups: list[Group] = []
    for place, entry in _entries(given):
        try:
            groups.append(_group(given, place, entry, check))
        except InvalidInput as error:
            problems += [found for found in error.problems if found not in problems]
    disaggregation: Disaggregation | None = None
    if present == ["disaggregation"]:
        section = {key: value for key, value in given["disaggregation"].items() if key not in SIDES}
        try:
            disaggregation = build(Disaggregation, section, "disaggregation")
        except InvalidInput as error:
            problems += error.problems
    problems += _twice([group.name for group in groups])
    if problems:
        raise InvalidInput(problems)
    return tuple(groups), disaggregation


def written(groups: tuple[Group, ...], disaggregation: Disaggregation | None) -> Json:
    """The sections as they would be read back, defaults filled in; `{}` without groups."""
    if not groups:
        return {}
    if disaggregation is None:
        return {"fleet": [{"name": group.name} | _said(group, GROUP_KEYS) for group in groups]}
    link = disaggregation.link
    sides = {group.role: _said(group, SIDE_KEYS) for group in groups}
    ways = {"gb_per_s": link.gb_per_s, "latency_ms": link.latency_ms, "per_block_us": link.per_block_us}
    return {"disaggregation": {**sides, "link": ways, "first_token": disaggregation.first_token}}


def _said(group: Group, keys: tuple[str, ...]) -> Json:
    values = group.scenario.to_dict()
    return {key: values[key] for key in keys}


def _entries(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(place in the file, what stands there) of every group."""
    fleet, sides = given.get("fleet"), given.get("disaggregation")
    if isinstance(fleet, list):
        return [(f"fleet[{number}]", entry) for number, entry in enumerate(fleet)]
    if isinstance(sides, Mapping):
        said = [(f"disaggregation.{side}", sides[side]) for side in SIDES if side in sides]
        return [(place, {} if entry is None else entry) for place, entry in said]
    return []


def _shape_problems(given: Mapping[str, Any]) -> list[Problem]:
    fleet, sides = given.get("fleet"), given.get("disaggregation")
    if fleet is not None and not (isinstance(fleet, list) and fleet):
        return [Problem("fleet", "must be a list of groups, one at least", shown(fleet))]
    if fleet is None and not isinstance(sides, Mapping):
        return [Problem("disaggregation", "must be a mapping (key: value)", shown(sides))]
    problems = []
    if isinstance(sides, Mapping):
        problems += [Problem(f"disaggregation.{side}", "missing") for side in SIDES if side not in sides]
    keys = ("name", *GROUP_KEYS) if fleet is not None else SIDE_KEYS
    for place, entry in _entries(given):
        if not isinstance(entry, Mapping):
            problems.append(Problem(place, "must be a mapping (key: value)", shown(entry)))
            continue
        problems += [unknown_key(place, key, keys) for key in entry if key not in keys]
        if "name" in entry and not (isinstance(entry["name"], str) and entry["name"]):
            problems.append(Problem(f"{place}.name", "must be text", shown(entry["name"])))
    return problems


def _group(given: Mapping[str, Any], place: str, entry: Mapping[str, Any], check: Check) -> Group:
    own = {key: value for key, value in entry.items() if key != "name" and value is not None}
    merged = {key: value for key, value in given.items() if key not in SECTIONS}
    for key, value in own.items():
        merged[key] = _merged(merged.get(key), value) if key in MERGED else value
    try:
        scenario = check(merged)
    except InvalidInput as error:
        raise InvalidInput([_at(place, found, own) for found in error.problems]) from error
    side = place.rpartition(".")[2]
    if side == "prefill":
        return Group(side, "prefill", scenario)
    if side == "decode":
        return Group(side, "decode", scenario)
    number = place.removeprefix("fleet[").removesuffix("]")
    return Group(str(entry.get("name", f"group-{number}")), "serve", scenario)


def _merged(above: Any, value: Any) -> Any:
    if not (isinstance(above, Mapping) and isinstance(value, Mapping)):
        return value
    if value.get("kind") is not None and value["kind"] != above.get("kind"):
        return value
    return {**above, **value}


def _at(place: str, found: Problem, own: Mapping[str, Any]) -> Problem:
    """A problem of a group, placed where the file says what is wrong."""
    first = found.path.partition(".")[0].partition("[")[0]
    return Problem(f"{place}.{found.path}", found.rule, found.value) if first in own or not first else found


def _twice(names: list[str]) -> list[Problem]:
    again = sorted({name for name in names if names.count(name) > 1})
    return [Problem("fleet", "names a group twice", repr(name)) for name in again]
