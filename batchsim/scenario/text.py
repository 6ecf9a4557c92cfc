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
from yaml.nodes import Node, ScalarNode, SequenceNode

from batchsim.errors import InvalidInput, Problem, problem

MAX_DEPTH = 40
MAX_ALIAS_GROWTH = 10  # an expanded document may be so many times as large as its text, and 100,000 nodes more
MAX_DIGITS = 30

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?[0-9]+(?:[eE]\+?[0-9]{1,3})?")
_FLOAT = re.compile(_NUMBER.pattern + r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = ("", "~", "null", "Null", "NULL")
_BASE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where it is there: ten times as fast


class _Loader(_BASE_LOADER):  # type: ignore[misc]  # the base is one of two classes, known only when imported
    """Text -> nodes, with the plain scalars of YAML 1.2's core schema."""


def _scalars() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Which plain scalars mean something else than text, by first character."""
    kinds = [
        ("bool", "|".join(_WORDS), "tTfF"),
        ("null", "|".join(map(re.escape, _NULLS)), ["~", "n", "N", ""]),
        ("float", _FLOAT.pattern, "-+.0123456789"),
        ("merge", "<<", "<"),
    ]
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, starts in kinds:
        for start in starts:
            table.setdefault(start, []).append((_TAG + tag, re.compile(f"(?:{pattern})$")))
    return table


_Loader.yaml_implicit_resolvers = _scalars()


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
        return _Values(path).of(node)
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


class _Values:
    """Nodes -> values, each node once. Refuses tags, repeated keys, keys that are no text, nodes that contain
    themselves,
    and documents that aliases blow up."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._made: dict[int, tuple[Any, int]] = {}  # node -> its value, and how many values that is
        self._open: set[int] = set()
        self._problems: list[Problem] = []

    def of(self, root: Node) -> Any:
        """The value of a document. Raises `InvalidInput`."""
        value, size = self._value(root, 0)
        if size > MAX_ALIAS_GROWTH * len(self._made) + 100_000:
            rule = f"its aliases expand to {size:,} values: write them out or leave them out"
            self._problems.append(Problem(self._path, rule))
        if self._problems:
            raise InvalidInput(self._problems)
        return value

    def _value(self, node: Node, depth: int) -> tuple[Any, int]:
        if isinstance(node, ScalarNode):
            return self._scalar(node), 1
        if id(node) in self._made:
            return self._made[id(node)]
        if id(node) in self._open:
            raise InvalidInput([Problem(_place(self._path, node), "contains itself")])
        if depth > MAX_DEPTH:
            raise InvalidInput([Problem(_place(self._path, node), f"is nested more than {MAX_DEPTH} levels deep")])
        self._open.add(id(node))
        made = self._list(node, depth) if isinstance(node, SequenceNode) else self._mapping(node, depth)
        self._open.discard(id(node))
        self._made[id(node)] = made
        return made

    def _list(self, node: SequenceNode, depth: int) -> tuple[list[Any], int]:
        if node.tag != _TAG + "seq":
            self._refuse_tag(node)
        pairs = [self._value(child, depth + 1) for child in node.value]
        return [value for value, _ in pairs], 1 + sum(size for _, size in pairs)

    def _mapping(self, node: Any, depth: int) -> tuple[dict[str, Any], int]:
        if node.tag != _TAG + "map":
            self._refuse_tag(node)
        made: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        size = 1
        for key, child in node.value:
            value, inner = self._value(child, depth + 1)
            size += 1 + inner
            if not isinstance(key, ScalarNode):
                self._problems.append(Problem(_place(self._path, key), "a key must be text"))
            elif key.tag == _TAG + "merge":
                merged = self._merge(key, value) | merged
            elif key.value in made:
                self._problems.append(
                    Problem(_place(self._path, key), "is there twice in the same mapping", repr(key.value))
                )
            else:
                made[key.value] = value  # `1: x` and `null: x` are keys named so, and unknown ones
        return merged | made if merged else made, size

    def _merge(self, key: Node, value: Any) -> dict[str, Any]:
        """What `<<` brings in: a mapping, or several, of which the first wins."""
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(one, dict) for one in several):
            self._problems.append(Problem(_place(self._path, key), "must be a mapping, or a list of them", "'<<'"))
            return {}
        merged: dict[str, Any] = {}
        for one in several:
            merged = one | merged
        return merged

    def _scalar(self, node: ScalarNode) -> Any:
        tag, text = node.tag, node.value
        if tag == _TAG + "str" or tag == _TAG + "merge":
            return text
        if tag == _TAG + "float" and _FLOAT.fullmatch(text):
            return number(text)
        if tag == _TAG + "bool" and text in _WORDS:
            return _WORDS[text]
        if not (tag == _TAG + "null" and text in _NULLS):
            self._refuse_tag(node)
        return None

    def _refuse_tag(self, node: Node) -> None:
        """A tag says that a value is not what it looks like."""
        self._problems.append(
            Problem(_place(self._path, node), "tags are not understood here", node.tag.split(":")[-1])
        )


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
