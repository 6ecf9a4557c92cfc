"""A scenario: the checked, immutable description of a run, and how it is read, changed and written out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from batchsim import catalog
from batchsim.errors import InvalidInput, Problem
from batchsim.kv.capacity import KvSettings
from batchsim.scenario import defaults, fleet, kinds, overrides, shipped, text
from batchsim.scenario.check import build, build_any, keys, one_line, plain_value, shown, unknown_key, values
from batchsim.scenario.sections import Price, Settings
from batchsim.workload import description
from batchsim.workload.description import Slo, WorkloadDescription

SETTINGS = tuple(keys(Settings))
CATALOGUE = ("model", "gpu", "engine")
REQUIRED = ("model", "gpu", "workload")
KEYS = (
    "name", "seed", "model", "gpu", "tensor_parallel", "dtype", "replicas", "router", "engine", "cost_model",
    "kv_cache", "max_model_len", "scheduler", "workload", "slo", "price", "horizon_s",
)  # fmt: skip
"""Of every scenario; `fleet.SECTIONS` may stand beside them."""


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """The description of a run. Two are equal when everything that they describe is, however it was written.

    `given` is what the file and the overrides say, `filled` the same with the engine preset's defaults, the other
    fields what it means. `groups`: the replicas where they are not all alike. `folder`: where relative paths start.
    `warnings`: what was left out or looks wrong, one sentence each.
    """

    settings: Settings
    model: catalog.Model
    gpu: catalog.Gpu
    engine: catalog.Engine
    router: Any
    cost_model: Any
    kv_cache: KvSettings
    scheduler: Any
    workload: WorkloadDescription
    slo: Slo | None
    price: Price | None
    given: Mapping[str, Any] = field(repr=False)
    filled: Mapping[str, Any] = field(repr=False)
    folder: Path = field(default=Path(), repr=False)
    source: str = ""
    warnings: tuple[str, ...] = ()
    groups: tuple[fleet.Group, ...] = ()
    disaggregation: fleet.Disaggregation | None = None

    def replace(self, *changes: str | Mapping[str, Any]) -> Scenario:
        """The scenario with keys changed: `"scheduler.max_num_seqs=64"`, or a mapping of dotted keys to values.

        A changed `kind` drops the keys that the new kind lacks, and `warnings` says which. Raises `InvalidInput`.
        """
        changed, warnings = _changed(self.given, changes)
        return replace(check(changed, self.source, self.folder), warnings=self.warnings + tuple(warnings))

    def with_seed(self, seed: int) -> Scenario:
        """As `replace({"seed": seed})` for a seed that is one, without checking the rest again."""
        settings, given, filled = replace(self.settings, seed=seed), dict(self.given), dict(self.filled)
        given["seed"] = filled["seed"] = seed
        return replace(self, settings=settings, given=given, filled=filled)

    def to_dict(self) -> dict[str, Any]:
        """The scenario as a mapping that `scenario` reads back as an equal one: as run, defaults filled in."""
        filled = dict.fromkeys(KEYS) | values(self.settings)
        filled |= {key: plain_value(self.given.get(key)) for key in CATALOGUE}
        for key in ("router", "cost_model", "scheduler"):
            filled[key] = {"kind": self.kind(key)} | values(getattr(self, key))
        filled["workload"] = plain_value(self.workload)
        filled["kv_cache"] = values(self.kv_cache)
        filled["slo"] = None if self.slo is None else {k: v for k, v in values(self.slo).items() if v is not None}
        filled["price"] = None if self.price is None else values(self.price)
        return filled | fleet.written(self.groups, self.disaggregation)

    def kind(self, section: str) -> str:
        """The kind that a section names."""
        return str(self.filled[section]["kind"])

    def digest(self) -> str:
        """64 hexadecimal digits that are the same for equal scenarios, on every machine."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest())


def load(path: str | Path, changes: Sequence[str | Mapping[str, Any]] = ()) -> Scenario:
    """The scenario in a YAML or JSON file, or a shipped one by name (`quickstart`), with `changes` as in
    `Scenario.replace`.

    Raises `InvalidInput` with every problem found in it: place, value, rule, and the nearest valid key.
    """
    file = shipped.locate(path)
    given = text.read(file)
    if given is None:
        raise InvalidInput([Problem(str(path), "is empty")])
    if not isinstance(given, dict):
        raise InvalidInput([Problem(str(path), "must be a mapping (key: value)", shown(given))])
    named = {"name": file.stem} | given
    try:
        named, warnings = _changed(named, changes)
        return replace(check(named, str(path), file.parent), warnings=tuple(warnings))
    except InvalidInput as error:
        note = f"{path}, overridden by --set" if changes else str(path)
        raise type(error)(error.problems, error.note or note) from error


def _changed(given: Mapping[str, Any], changes: Sequence[str | Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    try:
        return overrides.apply(given, overrides.assignments(changes), kinds.keys_of)
    except InvalidInput as error:
        raise InvalidInput([one_line(found) for found in error.problems]) from error


def scenario(given: Mapping[str, Any]) -> Scenario:
    """The scenario that a mapping describes. Raises `InvalidInput`."""
    return check(given)


def check(given: Mapping[str, Any], source: str = "", folder: Path = Path()) -> Scenario:  # a Path never changes
    """A scenario from plain values, or every problem in them."""
    whole = plain(given)
    given, lent = fleet.lend(whole, REQUIRED)
    problems = [_unknown(key) for key in given if key not in KEYS]
    problems += [Problem(key, "missing") for key in REQUIRED if given.get(key) is None]

    filled: dict[str, Any] = given

    def part(key: str, make: Callable[[Any], Any], default: Any = None) -> Any:
        """One section, or None; its problems join the others."""
        value = default if filled.get(key) is None else filled[key]
        if value is None:
            return None
        try:
            return make(value)
        except InvalidInput as error:
            problems.extend(error.problems)
            return None

    settings = part("settings", lambda _: build(Settings, {k: given[k] for k in SETTINGS if k in given}, ""), {})
    model = part("model", lambda value: _entry("model", catalog.Model, catalog.model, value))
    gpu = part("gpu", lambda value: _entry("gpu", catalog.Gpu, catalog.gpu, value))
    engine = part("engine", lambda value: _entry("engine", catalog.Engine, catalog.engine, value), {})
    filled = defaults.fill(given, engine, gpu)
    sections = {key: part(key, partial(kinds.section, key)) for key in kinds.PACKAGES}
    kv_cache = part("kv_cache", lambda value: build(KvSettings, value, "kv_cache"), {})
    slo = part("slo", lambda value: build(Slo, value, "slo"))
    price = part("price", lambda value: build(Price, value, "price"))
    workload = part("workload", lambda value: build_any(WorkloadDescription, value, "workload"))
    if workload is not None:
        problems += description.check(workload)
    if problems:
        raise InvalidInput([one_line(fleet.placed(found, lent)) for found in problems])
    groups, disaggregation = _groups(whole, source, folder)
    return Scenario(
        settings, model, gpu, engine, **sections, kv_cache=kv_cache, workload=workload, slo=slo, price=price,
        given=whole, filled=filled, folder=folder, source=source, groups=groups, disaggregation=disaggregation,
    )  # fmt: skip


def _groups(
    given: Mapping[str, Any], source: str, folder: Path
) -> tuple[tuple[fleet.Group, ...], fleet.Disaggregation | None]:
    try:
        return fleet.read(given, lambda merged: check(merged, source, folder))
    except InvalidInput as error:
        raise InvalidInput([one_line(found) for found in error.problems]) from error


def plain(given: Any) -> dict[str, Any]:
    """A private copy of a scenario's values, text, numbers, lists and mappings only. Raises `InvalidInput`."""
    if not isinstance(given, Mapping):
        raise InvalidInput([Problem("scenario", "must be a mapping (key: value)", shown(given))])
    copied: dict[str, Any] = plain_value(given)
    problems = _not_plain(copied, "")
    if problems:
        raise InvalidInput([one_line(found) for found in problems])
    return copied


def _not_plain(value: Any, place: str) -> list[Problem]:
    if isinstance(value, dict):
        return [p for key, child in value.items() for p in _not_plain(child, f"{place}.{key}" if place else key)]
    if isinstance(value, list):
        return [p for i, child in enumerate(value) for p in _not_plain(child, f"{place}[{i}]")]
    if value is None or isinstance(value, (bool, float)):
        return []
    if isinstance(value, int):
        return [] if abs(value) < 2**63 else [Problem(place, "is too large", shown(value))]
    if isinstance(value, str):
        return [] if _is_unicode(value) else [Problem(place, "is not valid Unicode text", shown(value))]
    return [Problem(place, f"must be text, a number, a list or a mapping, not {type(value).__name__}")]


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unknown(key: str) -> Problem:
    return unknown_key("", key, (*KEYS, *fleet.SECTIONS))


def _entry(key: str, cls: type[Any], by_name: Callable[[str, str], Any], value: Any) -> Any:
    """An entry of the catalogue: by name, or written out."""
    if isinstance(value, str):
        return by_name(value, key)
    if isinstance(value, Mapping):
        return build(cls, value, key)
    raise InvalidInput([Problem(key, "must be a name of the catalogue, or a mapping", shown(value))])
