"""The lists of `batchsim list`, and their text. Every line is made from the class or the data file that it is
about."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchsim import catalog
from batchsim.scenario import kinds, shipped
from batchsim.scenario.check import default_of, fields_model, first_line, plain_value, shown

WIDTH = 100
SECTIONS = {"schedulers": "scheduler", "routers": "router", "cost-models": "cost_model"}

FIELDS = {
    "arrival_ns": "when it arrives", "prompt_tokens": "length of its prompt, tokens",
    "output_tokens": "tokens that it generates", "max_tokens": "limit that it declares, tokens",
    "priority": "lower is more urgent", "id": "its name", "tenant": "whose it is",
    "session": "the conversation that it belongs to", "traffic_class": "its class of traffic", "": "checked, not used",
}  # fmt: skip
"""What a column of a trace says of a request, by the workload's field that it becomes."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A key: its type and bounds in words, its default (None: it must be given), what it means and in which unit."""

    name: str
    type: str
    default: str | None
    meaning: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A kind or an entry, a line about it, and its parameters."""

    name: str
    line: str
    parameters: tuple[Parameter, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return dataclasses.asdict(self)


def entries(what: str) -> list[Listed]:
    """What there is of `schedulers`, `gpus`, `models`, `profiles`, `engines`, `routers`, `arrivals`, `lengths`,
    `cost-models`, `formats` (of trace files), `scenarios`."""
    if what in SECTIONS:
        section = SECTIONS[what]
        return [_kind(kind, kinds.find(section, kind)) for kind in kinds.available(section)]
    if what in ("arrivals", "lengths"):
        return _descriptions(what)
    if what == "formats":
        return _formats()
    if what == "scenarios":
        return [Listed(name, _scenario_line(shipped.folder() / f"{name}.yaml")) for name in shipped.names()]
    line = {"gpus": _gpu_line, "models": _model_line, "engines": _engine_line, "profiles": _profile_line}[what]
    return [Listed(name, line(name)) for name in catalog.names(what)]


def _descriptions(what: str) -> list[Listed]:
    from batchsim.workload import arrivals, lengths

    classes = arrivals.KINDS if what == "arrivals" else lengths.KINDS
    return [_kind(fields_model(cls).model_json_schema()["properties"]["kind"]["const"], cls) for cls in classes]


def _formats() -> list[Listed]:
    """The formats of trace files, a column being a parameter."""
    from batchsim.workload.traces import FORMATS

    listed = []
    for form in FORMATS.values():
        meanings = {column.name: _column(column.field, column.parse.__name__) for column in form.columns}
        meanings |= {column: _column(field) for field, column in form.texts}
        if form.blocks:
            meanings[form.blocks] = f"a number for each {form.block_tokens} tokens of the prompt; equal ones are shared"
        wanted = form.wanted.items()
        columns = [Parameter(name, "column", None if must else "absent", meanings[name]) for name, must in wanted]
        listed.append(Listed(form.name, form.summary, tuple(columns)))
    return listed


def _column(field: str, parse: str = "") -> str:
    unit = {"seconds": "s", "elapsed": "s", "milliseconds": "ms", "date_times": "date and time, UTC"}.get(parse, "")
    return FIELDS[field] + (f", {unit}" if unit else "")


def _kind(name: str, cls: type[Any]) -> Listed:
    schema = fields_model(cls).model_json_schema()
    required = schema.get("required", [])
    properties: Mapping[str, Any] = schema.get("properties", {})
    parameters = [
        Parameter(
            key, _type(value, schema.get("$defs", {})), None if key in required else _default(cls, key), _meaning(value)
        )
        for key, value in properties.items()
        if key != "kind"
    ]
    return Listed(name, first_line(cls), tuple(parameters))


def _default(cls: type[Any], key: str) -> str:
    value = default_of(cls, key)
    return value if isinstance(value, str) else shown(plain_value(value))


def _meaning(value: Mapping[str, Any]) -> str:
    """A field's description, wherever the schema put it."""
    branches = [value, *value.get("anyOf", [])]
    return next((str(branch["description"]) for branch in branches if "description" in branch), "")


def _type(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """The type and bounds of a field, in words."""
    if "$ref" in value:
        value = definitions[str(value["$ref"]).rpartition("/")[2]]
    if "anyOf" in value:
        return " or ".join(_type(branch, definitions) for branch in value["anyOf"])
    if "enum" in value:
        return " | ".join(map(str, value["enum"]))
    if "const" in value:
        return str(value["const"])
    if value.get("type") == "array":
        return f"list of {_type(value.get('items', {}), definitions)}"
    if value.get("type") == "object":
        return "{" + ", ".join(value.get("properties", {})) + "}"
    names = {"integer": "whole number", "number": "number", "boolean": "true | false", "string": "text", "null": "null"}
    return " ".join([names.get(str(value.get("type")), "value"), *_bounds(value)])


def _bounds(value: Mapping[str, Any]) -> Iterable[str]:
    for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<")):
        if key in value:
            yield f"{sign} {value[key]:g}" if isinstance(value[key], float) else f"{sign} {value[key]}"


def _gpu_line(name: str) -> str:
    gpu = catalog.gpu(name)
    fp8 = f", {gpu.fp8_dense_tflops:g} fp8" if gpu.fp8_dense_tflops else ""
    profile = "with a cost profile" if catalog.profile(name) else "no cost profile (roofline)"
    memory_gib = gpu.visible_bytes / 2**30
    tflops = f"{gpu.bf16_dense_tflops:,g} TFLOP/s bf16{fp8}"
    return f"{memory_gib:.1f} GiB visible, {gpu.hbm_gb_per_s:,g} GB/s, {tflops}; {profile}"


def _model_line(name: str) -> str:
    model = catalog.model(name)
    active = f", {model.active_parameters / 1e9:.1f} active" if model.experts else ""
    kv_kib = model.kv_bytes_per_token("auto", 1) / 1024
    return (
        f"{model.parameters / 1e9:.1f} billion parameters{active}, {model.layers} layers, "
        f"{kv_kib:g} KiB of KV a token in 16 bits, {model.max_position_embeddings:,} tokens"
    )


def _engine_line(name: str) -> str:
    engine = catalog.engine(name)
    runs = f"runs {engine.scheduler.kind}, " if engine.scheduler else ""
    ahead = ", plans a step ahead" if engine.async_scheduling else ""
    return f"{runs}{engine.step_host_ms:g} ms of host time a step, {engine.ingress_ms:g} ms before the queue{ahead}"


def _scenario_line(file: Path) -> str:
    """The question that a shipped scenario asks, its first line, and where the file is."""
    with file.open(encoding="utf-8") as stream:
        return f"{stream.readline().removeprefix('#').strip()} ({file})"


def _profile_line(name: str) -> str:
    profile = catalog.profile(name)
    return profile.source if profile is not None else ""


def text(listed: Sequence[Listed]) -> str:
    """The list for a terminal: a name and its line, its parameters below."""
    width = max((len(entry.name) for entry in listed), default=0) + 2
    return "\n".join(line for entry in listed for line in _lines(entry, width))


def _lines(entry: Listed, width: int) -> list[str]:
    lines = textwrap.wrap(f"{entry.name:<{width}}{entry.line}", WIDTH, subsequent_indent=" " * width) or [entry.name]
    name_width = max((len(parameter.name) for parameter in entry.parameters), default=0) + 2
    for parameter in entry.parameters:
        default = "must be given" if parameter.default is None else f"default {parameter.default}"
        about = (
            f"{parameter.meaning} ({parameter.type}; {default})"
            if parameter.meaning
            else f"({parameter.type}; {default})"
        )
        indent = " " * (2 + name_width)
        lines += textwrap.wrap(f"  {parameter.name:<{name_width}}{about}", WIDTH, subsequent_indent=indent)
    return [*lines, ""] if entry.parameters else lines
