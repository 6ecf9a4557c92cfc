"""Finding an entry of the catalogue by name. Files are read when first asked for, entries checked one by one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from batchsim.catalog.engine import Engine
from batchsim.catalog.entry import Entry
from batchsim.catalog.gpu import Gpu
from batchsim.catalog.model import Model
from batchsim.catalog.profile import Profile
from batchsim.errors import InvalidInput, Problem, problem

E = TypeVar("E", bound=Entry)

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # safe both; the first is in C, and not always there


def gpu(name: str, path: str = "gpu") -> Gpu:
    """The GPU of that name; InvalidInput with the nearest name where there is none, at `path` of the scenario."""
    return _entry("gpus", name, Gpu, path)


def model(name: str, path: str = "model") -> Model:
    """The model of that name or hub id; InvalidInput where there is none."""
    return _entry("models", name, Model, path)


def engine(name: str, path: str = "engine") -> Engine:
    """The engine preset of that name; InvalidInput where there is none."""
    return _entry("engines", name, Engine, path)


def profile(gpu_name: str) -> Profile | None:
    """The package's cost profile for a GPU of the catalogue, or None."""
    key = _find("profiles", gpu_name) or _find("profiles", _find("gpus", gpu_name) or "")
    return None if key is None else _entry("profiles", key, Profile, "cost_model.profile")


def profile_file(path: str | Path, place: str = "cost_model.profile") -> Profile:
    """A profile from a YAML file, as `batchsim calibrate` writes it."""
    try:
        data = _parsed(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput([problem(place, path, f"cannot be read: {error.strerror}")]) from error
    except yaml.YAMLError as error:
        raise InvalidInput([problem(place, path, f"is not YAML: {' '.join(str(error).split())}")]) from error
    if not isinstance(data, dict):
        raise InvalidInput([problem(place, path, "must hold a mapping of profile keys")])
    return _checked(Profile, {"name": Path(path).stem, **data}, str(path))


def names(kind: str) -> list[str]:
    """The names of `gpus`, `models`, `engines` or `profiles`, in the catalogue's order."""
    return list(_data(kind))


def suggest(name: str, names: Iterable[str]) -> str | None:
    """The nearest of `names`, whatever the case, or None where none is near."""
    lower = {known.lower(): known for known in names}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return lower[near[0]] if near else None


def _entry(kind: str, name: str, cls: type[E], path: str) -> E:
    key = _find(kind, name)
    if key is None:
        near = suggest(name, _index(kind))
        hint = f"; did you mean '{near}'?" if near else f"; `batchsim list {kind}` shows them"
        raise InvalidInput([problem(path, name, f"unknown {kind.removesuffix('s')}{hint}")])
    return _checked(cls, {"name": key, **_data(kind)[key]}, f"{kind}.{key}")


def _checked(cls: type[E], data: dict[str, Any], place: str) -> E:
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        problems = [Problem(".".join([place, *map(str, e["loc"])]), e["msg"]) for e in error.errors()]
        raise InvalidInput(problems) from error


def _find(kind: str, name: str) -> str | None:
    return _index(kind).get(name.strip().lower())


@cache
def _index(kind: str) -> dict[str, str]:
    """Lower-case names and aliases -> the entry's key."""
    index = {alias.lower(): key for key, entry in _data(kind).items() for alias in entry.get("aliases", ())}
    return index | {key.lower(): key for key in _data(kind)}


@cache
def _data(kind: str) -> dict[str, dict[str, Any]]:
    text = files("batchsim.catalog").joinpath("data", f"{kind}.yaml").read_text(encoding="utf-8")
    data: dict[str, dict[str, Any]] = _parsed(text)
    return data


def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader, under a name that the rule does not know
