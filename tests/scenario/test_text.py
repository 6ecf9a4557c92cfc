"""Reading the text of a scenario: what YAML and JSON mean here, and what is refused."""

from __future__ import annotations

import math

import pytest

from batchsim.errors import InvalidInput
from batchsim.scenario.text import parse, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("-8", -8),
        ("1e6", 1_000_000),
        ("0e999999", 0.0),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("010", 10),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("true", True),
        ("~", None),
        ("1:30", "1:30"),
        ("no", "no"),
        ("0x10", "0x10"),
        ("2024-01-01", "2024-01-01"),
        ("'8'", "8"),
    ],
)
def test_a_scalar_means_what_it_looks_like(text: str, value: object) -> None:
    """`1e6` is a million; what YAML 1.1 reads as sixties, octals, dates and yes/no is text, or the plain number."""
    found = parse(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", "f:2:11: 'c': is there twice in the same mapping"),
        ("a: &x [*x]", "f:1:4: contains itself"),
        ("[a]: 1", "f:1:1: a key must be text"),
        ("a: !!python/object:os.system x", "f:1:4: os.system: tags are not understood here"),
        ("a: !!timestamp x", "f:1:4: timestamp: tags are not understood here"),
        ("a: [", "f:2:1: is not valid YAML"),
        ("--- 1\n--- 2", "f:2:1: is not valid YAML"),
        ("\x00", "is not valid YAML"),
        ("[" * 60 + "]" * 60, "is nested more than 40 levels deep"),
        ("- " * 5000, "f:1:"),
    ],
)
def test_text_that_is_no_plain_value_is_refused_with_its_place(text: str, rule: str) -> None:
    """Repeated keys, tags, self-reference, odd keys, broken YAML and deep nesting are refused with line and
    column."""
    with pytest.raises(InvalidInput) as refused:
        parse(text, "f")
    assert rule in str(refused.value)


def test_aliases_work_and_cannot_blow_up() -> None:
    """An alias stands for its anchor; ten anchors of ten aliases each (10^9 values) are refused before they are
    built."""
    assert parse("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}") == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}
    lines = ["a0: &a0 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(InvalidInput, match="aliases expand to"):
        parse("\n".join(lines))


def test_a_number_with_too_many_digits_takes_no_time() -> None:
    """`1e999999999` and ten thousand nines become infinite, which the rule of the key refuses, instead of being
    built."""
    assert parse("1e999999999999") == math.inf
    assert parse("9" * 10_000) == math.inf


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"a": 1, "a": 2}', "'a': is there twice in the same mapping"),
        ('{"a": NaN}', "NaN: is not JSON"),
        ('{"a": Infinity}', "Infinity: is not JSON"),
        ('{"a": }', "f:1:7: is not valid JSON"),
        ("[" * 100_000, "is nested more than 40 levels deep"),
    ],
)
def test_json_is_held_to_its_own_rules(text: str, rule: str) -> None:
    """A repeated key, NaN, broken text and deep nesting are refused in JSON too."""
    with pytest.raises(InvalidInput) as refused:
        parse(text, "f", is_json=True)
    assert rule in str(refused.value)


def test_files_may_carry_a_byte_order_mark_and_must_be_utf8(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A BOM is skipped; a byte that is no UTF-8 is named; a missing file is one line."""
    marked, broken = tmp_path / "marked.yaml", tmp_path / "broken.yaml"
    marked.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    broken.write_bytes(b"a: \xff")
    assert read(marked) == {"a": 1, "b": 2}
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        read(broken)
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        read(tmp_path / "absent.yaml")
