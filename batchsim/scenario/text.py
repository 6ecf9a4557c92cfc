"""Scenario text -> plain values: YAML read safely, JSON by its own rules, and nothing else than text, numbers,
lists and mappings.

YAML 1.1 has surprises that would change a simulation without a word: `1e3` is text, `1:30` is ninety, `010` is
eight, `no` is false,
a key given twice keeps the last. Here `1e3` is a number, the others are text (and then refused where a number is
due), and a repeated key is
an error. Aliases may not blow up, and nesting is bounded.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from batchsim.errors import InvalidInput, Problem, problem

MAX_DEPTH = 40
MAX_ALIAS_GROWTH = 10  # an expanded document may be so many times as large as its text, and 100,000 nodes more
MAX_DIGITS = 30

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_WHOLE = re.compile(r"[-+]?\d+(?:[eE]\+?\d+)?")
_BASE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where it is there: ten times as fast


class _Loader(_BASE_LOADER):  # type: ignore[misc]  # the base is one of two classes, known only when imported
    """A safe loader with the scalars of YAML 1.2's core schema."""


def _scalars() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Which plain scalars mean something else than text, by first character."""
    kinds = [
        ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("tag:yaml.org,2002:float", _NUMBER.pattern + r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.0123456789"),
        ("tag:yaml.org,2002:merge", r"<<", "<"),
    ]
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, starts in kinds:
        for start in starts:
            table.setdefault(start, []).append((tag, re.compile(f"(?:{pattern})$")))
    return table


def _number(loader: Any, node: ScalarNode) -> int | float:
    return number(loader.construct_scalar(node))


_Loader.yaml_implicit_resolvers = _scalars()
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)


def number(text: str) -> int | float:
    """The value of a written number: whole if it is written without a point (`1e6` is a million), else a float.

    Digits beyond reason become an infinity, which the rule of the key then refuses.
    """
    text = text.strip().lower()
    if text.endswith((".inf", "infinity")):
        return -math.inf if text.startswith("-") else math.inf
    if text.endswith("nan"):
        return math.nan
    value = float(text)
    if not _WHOLE.fullmatch(text) or math.isinf(value):
        return value
    mantissa, _, exponent = text.partition("e")
    if len(mantissa) + int(exponent or 0) > MAX_DIGITS:
        return value
    power: int = 10 ** int(exponent or 0)
    return int(mantissa) * power


def parse(text: str, path: str = "", *, is_json: bool = False) -> Any:
    """The plain value of a scenario's text. Raises `InvalidInput`, with line and column where the text is not YAML
    (or JSON)."""
    value = _parse_json(text, path) if is_json else _parse_yaml(text, path)
    _check_depth(value, path)
    return value


def read(path: Path) -> Any:
    """The plain value of a scenario file; `.json` is read as JSON, everything else as YAML."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput([Problem(str(path), f"is not UTF-8 text (byte {error.start})")]) from error
    except OSError as error:
        raise InvalidInput([Problem(str(path), f"cannot be read: {error.strerror or error}")]) from error
    return parse(text, str(path), is_json=path.suffix.lower() == ".json")


def _parse_yaml(text: str, path: str) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_node(loader, node, path)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise InvalidInput([_yaml_problem(error, path)]) from error
    except RecursionError as error:
        raise InvalidInput([Problem(path, f"is nested more than {MAX_DEPTH} levels deep")]) from error
    finally:
        loader.dispose()


def _yaml_problem(error: yaml.YAMLError, path: str) -> Problem:
    mark = getattr(error, "problem_mark", None)
    place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else path
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    return Problem(place, f"is not valid YAML: {what}")


def _check_node(loader: Any, root: Node, path: str) -> None:
    """Refuses tags, repeated keys, keys that are no text, aliases to oneself, and documents that aliases blow up."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    problems: list[Problem] = []

    def visit(node: Node, depth: int) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in open_nodes:
            raise InvalidInput([Problem(_place(path, node), "contains itself")])
        if depth > MAX_DEPTH:
            raise InvalidInput([Problem(_place(path, node), f"is nested more than {MAX_DEPTH} levels deep")])
        open_nodes.add(id(node))
        size = 1
        if not _plain_tag(loader, node):
            problems.append(Problem(_place(path, node), "tags are not understood here", node.tag.split(":")[-1]))
        if isinstance(node, SequenceNode):
            size += sum(visit(child, depth + 1) for child in node.value)
        elif isinstance(node, MappingNode):
            problems.extend(_key_problems(node, path))
            size += sum(1 + visit(child, depth + 1) for _, child in node.value)
        open_nodes.discard(id(node))
        sizes[id(node)] = size
        return size

    total = visit(root, 0)
    if problems:
        raise InvalidInput(problems)
    if total > MAX_ALIAS_GROWTH * len(sizes) + 100_000:
        raise InvalidInput([Problem(path, f"its aliases expand to {total:,} values: write them out or leave them out")])


def _plain_tag(loader: Any, node: Node) -> bool:
    """Whether a node is what it looks like: a tag such as `!!timestamp` says otherwise."""
    if isinstance(node, ScalarNode):
        looks: str = loader.resolve(ScalarNode, node.value, (True, False))
        return node.tag in ("tag:yaml.org,2002:str", looks)
    return node.tag == ("tag:yaml.org,2002:map" if isinstance(node, MappingNode) else "tag:yaml.org,2002:seq")


def _key_problems(node: MappingNode, path: str) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, ScalarNode):
            found.append(Problem(_place(path, key), "a key must be text"))
        elif key.tag == "tag:yaml.org,2002:merge":
            continue
        elif key.value in seen:
            found.append(Problem(_place(path, key), "is there twice in the same mapping", repr(key.value)))
        else:
            seen.add(key.value)
            key.tag = "tag:yaml.org,2002:str"  # `1: x` and `null: x` are keys named so, and unknown ones
    return found


def _place(path: str, node: Node) -> str:
    return f"{path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _parse_json(text: str, path: str) -> Any:
    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
        if twice:
            raise InvalidInput([Problem(path, "is there twice in the same mapping", repr(key)) for key in twice])
        return dict(pairs)

    def refuse(constant: str) -> NoReturn:
        raise InvalidInput([problem(path, constant, "is not JSON; write an infinite number in YAML as .inf")])

    try:
        return json.loads(text, object_pairs_hook=mapping, parse_int=number, parse_float=number, parse_constant=refuse)
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        raise InvalidInput([Problem(place, f"is not valid JSON: {error.msg}")]) from error
    except RecursionError as error:
        raise InvalidInput([Problem(path, f"is nested more than {MAX_DEPTH} levels deep")]) from error


def _check_depth(value: Any, path: str, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise InvalidInput([Problem(path, f"is nested more than {MAX_DEPTH} levels deep")])
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        if isinstance(child, (dict, list)):
            _check_depth(child, path, depth + 1)
