"""A mapping -> an instance of a description, or every problem in it: place, value, rule, nearest key.

A description is a plain dataclass whose fields are `Annotated[type, pydantic.Field(ge=1, description=...)]`;
`build` checks a mapping
against it strictly (`true` and `"3"` are no numbers, NaN is never one, an infinity only where the field allows it),
and says what is wrong in
the words of the person who wrote the file, not of the checker.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from batchsim.errors import InvalidInput, Problem

T = TypeVar("T")
UNITS = ("_ms", "_us", "_ns", "_s", "_per_s", "_gib", "_gb", "_gb_per_s", "_tokens", "_gpu_hour", "_hour", "_pct")
STRICT = ConfigDict(
    extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True, protected_namespaces=()
)
MAX_WHOLE = 2**63 - 1


def build(cls: type[T], value: Any, path: str, *, unavailable: Iterable[str] = ()) -> T:
    """An instance of the dataclass (or pydantic model) `cls` from the mapping that stands at `path`.

    Raises `InvalidInput` with all problems, also those that `cls.__post_init__` raises: a `ValueError` is a rule of
    the whole mapping, an
    `InvalidInput` names keys below it. `unavailable`: keys that are known and not built yet.
    """
    if not isinstance(value, Mapping):
        raise InvalidInput([Problem(path, "must be a mapping (key: value)", shown(value))])
    if issubclass(cls, BaseModel):
        return _checked(cls, value, path, lambda: cls.model_validate_json(json.dumps(value), strict=True), unavailable)

    as_key: Any = cls

    def make() -> T:
        checked = fields_model(cls).model_validate_json(json.dumps(value))
        return cls(**{name: getattr(checked, attribute) for attribute, name in _names(as_key).items()})

    return _checked(cls, value, path, make, unavailable)


def build_any(kind: Any, value: Any, path: str) -> Any:
    """As `build`, for any type that pydantic knows: a union of descriptions, a list of them."""
    return _checked(
        kind, value, path, lambda: _wrapper(kind).model_validate_json(json.dumps({"at": value})).at, (), skip=1
    )


def _checked(
    kind: Any, value: Any, path: str, make: Callable[[], T], unavailable: Iterable[str], *, skip: int = 0
) -> T:
    """What `make` makes of `value`; its complaints, without their first `skip` steps, as `InvalidInput`."""
    nan = [Problem(place, "must be a number", ".nan") for place in _nan_places(value, path)]
    try:
        made = make()
    except ValidationError as error:
        others = _problems(error, kind, value, path, set(unavailable), skip)
        raise InvalidInput(nan + [found for found in others if found.value != ".nan"]) from error
    except InvalidInput as error:
        raise InvalidInput(nan + [_below(path, found) for found in error.problems], error.note) from error
    except ValueError as error:
        raise InvalidInput([*nan, Problem(path, str(error))]) from error
    if nan:
        raise InvalidInput(nan)
    return made


@cache
def _wrapper(kind: Any) -> Any:
    return create_model("Section", __config__=STRICT, at=(kind, ...))


def fields_model(cls: type[Any]) -> type[BaseModel]:
    """The checker of a dataclass: the same fields, other keys forbidden."""
    key: Any = cls
    return _fields_model(key)


@cache
def _fields_model(cls: Any) -> type[BaseModel]:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {}
    for attribute, name in _names(cls).items():
        field = next(f for f in dataclasses.fields(cls) if f.name == name)
        options: dict[str, Any] = {} if attribute == name else {"alias": name}
        if field.default_factory is not dataclasses.MISSING:
            options["default_factory"] = field.default_factory
        elif field.default is not dataclasses.MISSING:
            options["default"] = field.default
        fields[attribute] = (hints[name], Field(**options))
    return create_model(cls.__name__, __config__=STRICT, __doc__=first_line(cls), **fields)


@cache
def _names(cls: Any) -> dict[str, str]:
    """Attribute of the checker -> field of the dataclass; they differ where pydantic reserves the name."""
    if issubclass(cls, BaseModel):
        return {name: name for name in cls.model_fields if name not in ("aliases", "source")}
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    return {f"{name}_" if hasattr(BaseModel, name) else name: name for name in names}


def keys(cls: type) -> list[str]:
    """The scenario keys of a description."""
    return list(_names(cls).values())


def default_of(cls: type, key: str) -> Any:
    """The default of a description's field; `dataclasses.MISSING` where it must be given."""
    field = next(field for field in dataclasses.fields(cls) if field.name == key)
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def values(instance: Any) -> dict[str, Any]:
    """A description as the mapping that it could be built from, defaults filled in."""
    return {name: plain_value(getattr(instance, name)) for name in keys(type(instance))}


def plain_value(value: Any) -> Any:
    """Text, numbers, lists and mappings only: what YAML and JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return values(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(child) for key, child in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(child) for child in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a numpy scalar
        return value.item()
    return value


def first_line(cls: type) -> str:
    """What a description says of itself in one line."""
    return (cls.__doc__ or "").strip().splitlines()[0] if (cls.__doc__ or "").strip() else ""


def shown(value: Any) -> str:
    """A value as a person would type it, cut to a line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = (
        repr(value)
        if isinstance(value, str)
        else json.dumps(value, default=str)
        if isinstance(value, (dict, list))
        else str(value)
    )
    return text if len(text) <= 60 else text[:57] + "…"


def one_line(found: Problem) -> Problem:
    """A problem without line breaks and control characters, whatever the file said."""
    path, rule, value = (
        "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in part)
        for part in (found.path, found.rule, found.value)
    )
    return Problem(path, rule, value)


def unknown_key(path: str, key: str, valid: Sequence[str], unavailable: Iterable[str] = ()) -> Problem:
    """The problem of a key that is not there, with the nearest one that is."""
    if key in unavailable:
        return Problem(f"{path}.{key}" if path else key, "not available in this version")
    place = f"{path}.{key}" if path else key
    same_stem = [name for name in valid if _stem(name) == _stem(key)]
    if same_stem:
        reason = " (the name carries the unit)" if _stem(key) == key or _stem(same_stem[0]) != same_stem[0] else ""
        return Problem(place, f"unknown key; did you mean {same_stem[0]!r}?{reason}")
    return Problem(place, f"unknown key{nearest(key, valid)}")


def nearest(name: str, valid: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or what there is to choose from."""
    close = difflib.get_close_matches(name.lower(), [v.lower() for v in valid], n=1, cutoff=0.6)
    if close:
        return f"; did you mean {next(v for v in valid if v.lower() == close[0])!r}?"
    if not valid:
        return "; there are none here"
    listed = ", ".join(valid[:16]) + (", …" if len(valid) > 16 else "")
    return f"; known here: {listed}"


def _stem(name: str) -> str:
    for unit in sorted(UNITS, key=len, reverse=True):
        if name.endswith(unit) and len(name) > len(unit):
            return name.removesuffix(unit)
    return name


def _below(path: str, found: Problem) -> Problem:
    place = ".".join(part for part in (path, found.path) if part)
    return dataclasses.replace(found, path=place)


def _nan_places(value: Any, path: str) -> list[str]:
    if isinstance(value, float):
        return [path] if math.isnan(value) else []
    if isinstance(value, Mapping):
        return [place for key, child in value.items() for place in _nan_places(child, f"{path}.{key}" if path else key)]
    if isinstance(value, list):
        return [place for i, child in enumerate(value) for place in _nan_places(child, f"{path}[{i}]")]
    return []


def _problems(
    error: ValidationError, kind: Any, value: Any, path: str, unavailable: set[str], skip: int
) -> list[Problem]:
    """A checker's complaints in plain words; those of one place (the branches of a union) joined by "or"."""
    found: dict[str, list[Problem]] = {}
    branches: set[str] = set()  # places of a union where the mapping was not even tried
    for complaint in error.errors(include_url=False):
        place, there_kind, last = _locate(complaint["loc"][skip:], kind, value, path)
        if complaint["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            new = unknown_key(place, last, _field_names(there_kind), unavailable)
        elif complaint["type"] == "missing":
            new = Problem(f"{place}.{last}" if place else last, "missing")
        elif complaint["type"].startswith("union_tag"):
            new = _kind_problem(complaint, place, there_kind)
        else:
            whole = complaint["type"] == "value_error" and isinstance(complaint["input"], dict)
            new = Problem(place, rule(complaint), "" if whole else shown(complaint["input"]))
        there = found.setdefault(new.path, [])
        if new.rule not in [other.rule for other in there]:
            there.append(new)
        if isinstance(complaint["input"], (dict, list)) and complaint["type"].endswith(("_type", "too_short")):
            branches.add(new.path)
    for place in branches:  # a mapping was meant: what is wrong in it says more than that a number would do as well
        if any(other.startswith((f"{place}.", f"{place}[")) for other in found):
            del found[place]
    return [dataclasses.replace(several[0], rule=" or ".join(p.rule for p in several)) for several in found.values()]


def _kind_problem(complaint: Mapping[str, Any], place: str, kind: Any) -> Problem:
    """A `kind` that is missing or that there is none of."""
    context = complaint.get("ctx", {})
    name = str(context.get("discriminator", "")).strip("'")
    name = name if name.isidentifier() else "kind"  # a function chose
    path = f"{place}.{name}" if place else name
    if "expected_tags" not in context:
        known = [str(tag) for branch in typing.get_args(_without_annotation(kind)) for tag in kind_names(branch)]
        return Problem(path, f"missing; one of {', '.join(known)}" if known else "missing")
    known = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
    return Problem(path, f"unknown {name}{nearest(str(context['tag']), known)}", repr(str(context["tag"])))


def _locate(loc: Sequence[int | str], kind: Any, value: Any, path: str) -> tuple[str, Any, str]:
    """(dotted place of the deepest value there is, its type, the key below it that is too much or missing)."""
    place, last = path, ""
    for position, step in enumerate(loc):
        kind = _branch(kind, value, step)
        ends = position == len(loc) - 1
        if isinstance(value, Mapping) and step in value and not (ends and step not in _field_names(kind)):
            place, value, kind = (
                (f"{place}.{step}" if place else str(step)),
                value[str(step)],
                _field_type(kind, str(step)),
            )
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            place, value, kind = f"{place}[{step}]", value[step], _item_type(kind)
        elif ends:
            last = str(step)  # else: the name of a union's branch, which is no place in the file
    return place, (_branch(kind, value) if last else kind), last


def _is_description(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel))


def _field_names(kind: Any) -> list[str]:
    return keys(kind) if _is_description(kind) else []


def _field_type(kind: Any, name: str) -> Any:
    return typing.get_type_hints(kind, include_extras=True).get(name) if _is_description(kind) else None


def _item_type(kind: Any) -> Any:
    arguments = typing.get_args(kind)
    return arguments[0] if arguments else None


def _branch(kind: Any, value: Any, hint: Any = None) -> Any:
    """A type without `Annotated`, and of a union the branch that `value` was meant for, or that the checker's
    `hint` names."""
    kind = _without_annotation(kind)
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    branches = [_branch(branch, value, hint) for branch in typing.get_args(kind)]
    if not isinstance(value, Mapping):
        return next((branch for branch in branches if typing.get_origin(branch) in (list, tuple)), branches[0])
    named = [branch for branch in branches if _is_description(branch)]
    wanted = (value.get("kind"), hint)
    for branch in named:
        if branch.__name__ == hint or any(name in kind_names(branch) for name in wanted if name is not None):
            return branch
    return named[0] if named else branches[0]


def _without_annotation(kind: Any) -> Any:
    while typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    return kind


def kind_names(cls: Any) -> tuple[Any, ...]:
    """The kinds that a description's own `kind` field allows; none where it has no such field."""
    return typing.get_args(_without_annotation(_field_type(cls, "kind")))


def rule(complaint: Mapping[str, Any]) -> str:
    """The rule that a pydantic complaint stands for, in plain words."""
    kind, context = complaint["type"], complaint.get("ctx", {})
    if kind in ("too_short", "too_long"):
        count = context.get("min_length", context.get("max_length"))
        bound = "at least" if kind == "too_short" else "at most"
        return f"must have {bound} {count} {'entry' if count == 1 else 'entries'}"
    if kind in _RULES:
        return _RULES[kind].format(**{key: f"{v:g}" if isinstance(v, float) else v for key, v in context.items()})
    if kind in ("literal_error", "enum"):
        return "must be one of " + str(context.get("expected", "")).replace(" or ", ", ")
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", complaint["msg"]))
    return str(complaint["msg"]).replace("Input should be", "must be").replace("Value should", "must")


_RULES = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be finite",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "set_type": "must be a list",
    "dict_type": "must be a mapping (key: value)",
    "model_type": "must be a mapping (key: value)",
    "model_attributes_type": "must be a mapping (key: value)",
    "dataclass_type": "must be a mapping (key: value)",
    "none_required": "must be null",
}
