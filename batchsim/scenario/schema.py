"""The JSON Schema of a scenario, made from the classes that check it: editors complete and check with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import AliasChoices, BaseModel, TypeAdapter

from batchsim import catalog
from batchsim.kv.capacity import KvSettings
from batchsim.scenario import fleet, kinds
from batchsim.scenario.check import fields_model, first_line
from batchsim.scenario.defaults import DEFAULT_KINDS
from batchsim.scenario.scenario import REQUIRED
from batchsim.scenario.sections import Price, Settings
from batchsim.workload.description import Slo, WorkloadDescription

Json = dict[str, Any]
_OUTSIDE = {"type": "string", "pattern": "^[^:]*:[^:]*$", "description": "a class outside batchsim: mypkg.mine:Mine"}


def json_schema() -> Json:
    """The JSON Schema (2020-12) of a scenario file."""
    definitions: Json = {}
    settings = _of(Settings, definitions)
    properties: Json = dict(settings["properties"])
    properties |= {
        "model": _named(catalog.Model, catalog.names("models"), definitions),
        "gpu": _named(catalog.Gpu, catalog.names("gpus"), definitions),
        "engine": _or_null(_named(catalog.Engine, catalog.names("engines"), definitions)),
        "kv_cache": _or_null(_of(KvSettings, definitions)),
        "slo": _or_null(
            _of(Slo, definitions)
            | {"anyOf": [{"required": [key]} for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")]}
        ),
        "price": _or_null(_of(Price, definitions)),
        "workload": _any(WorkloadDescription, definitions),
    }
    properties |= {name: _or_null(_section(name, definitions)) for name in kinds.PACKAGES}
    properties |= _groups(properties, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "batchsim scenario",
        "type": "object",
        "properties": properties,
        "required": [key for key in REQUIRED if key not in fleet.GROUP_KEYS],
        "anyOf": [{"required": [key]} for key in ("gpu", *fleet.SECTIONS)],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _groups(properties: Mapping[str, Any], definitions: Json) -> Json:
    """The sections whose entries take some of the scenario's own keys."""
    group = {key: properties[key] for key in fleet.GROUP_KEYS}
    side = _or_null(_object({key: properties[key] for key in fleet.SIDE_KEYS}))
    handed = _of(fleet.Disaggregation, definitions)
    sides = handed | {
        "properties": {**dict.fromkeys(fleet.SIDES, side), **handed["properties"]},
        "required": [*fleet.SIDES, *handed["required"]],
    }
    name = {"type": "string", "minLength": 1, "description": "what the results call the group"}
    entries = {"type": "array", "minItems": 1, "items": _object({"name": name, **group})}
    return {"fleet": _or_null(entries), "disaggregation": _or_null(sides)}


def _object(properties: Mapping[str, Any]) -> Json:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _of(cls: type[Any], definitions: Json) -> Json:
    """The schema of a description; what it refers to joins `definitions`."""
    made = cls if issubclass(cls, BaseModel) else fields_model(cls)
    schema = _collect(made.model_json_schema(ref_template="#/$defs/{model}"), definitions)
    for field in made.model_fields.values():  # pydantic writes the first of several names only
        if isinstance(field.validation_alias, AliasChoices):
            first, *others = (str(alias) for alias in field.validation_alias.choices)
            schema["properties"] |= dict.fromkeys(others, schema["properties"][first])
    return schema


def _any(kind: Any, definitions: Json) -> Json:
    return _collect(TypeAdapter(kind).json_schema(ref_template="#/$defs/{model}"), definitions)


def _collect(schema: Json, definitions: Json) -> Json:
    definitions.update(schema.pop("$defs", {}))
    return schema


def _section(name: str, definitions: Json) -> Json:
    """One branch a kind; another for classes outside batchsim, whose keys nobody knows here."""
    branches: list[Json] = []
    for kind in kinds.available(name):
        cls = kinds.find(name, kind)
        schema = _of(cls, definitions)
        schema["properties"] = {"kind": {"const": kind, "description": first_line(cls)}} | schema.get("properties", {})
        if kind != DEFAULT_KINDS[name]:
            schema["required"] = ["kind", *schema.get("required", [])]
        branches.append(schema)
    branches.append({"type": "object", "properties": {"kind": _OUTSIDE}, "required": ["kind"]})
    return {"anyOf": branches}


def _named(cls: type[Any], names: Iterable[str], definitions: Json) -> Json:
    return {"anyOf": [{"type": "string", "examples": list(names)}, _of(cls, definitions)]}


def _or_null(schema: Mapping[str, Any]) -> Json:
    return {"anyOf": [dict(schema), {"type": "null"}]}
