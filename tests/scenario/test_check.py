"""From a mapping to a description: the rules in plain words, at the right place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from batchsim.errors import InvalidInput
from batchsim.scenario.check import build, build_any, values


@dataclass(frozen=True, slots=True)
class Leg:
    """A stretch of time."""

    duration_s: Annotated[float, Field(gt=0)]
    rate_per_s: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 1.0


@dataclass(frozen=True, slots=True)
class Tour:
    """Something with a field of every sort."""

    seats: Annotated[int, Field(ge=1, le=9)] = 3
    wait_ms: Annotated[float, Field(ge=0)] | None = None
    mode: Literal["calm", "wild"] = "calm"
    legs: tuple[Leg, ...] = ()
    first: Leg | None = None
    guide: int | Leg = 0
    open: bool = False
    copy: Annotated[str, Field(min_length=1)] = "x"

    def __post_init__(self) -> None:
        if self.seats == 7:
            raise ValueError("seven seats are unlucky")


def problems(value: Any, kind: Any = Tour) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        build_any(kind, value, "tour") if not isinstance(kind, type) else build(kind, value, "tour")
    return str(refused.value).splitlines()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"seats": 0}, "tour.seats: 0: must be at least 1"),
        ({"seats": 10}, "tour.seats: 10: must be at most 9"),
        ({"seats": True}, "tour.seats: true: must be a whole number"),
        ({"seats": "3"}, "tour.seats: '3': must be a whole number"),
        ({"seats": 3.0}, "tour.seats: 3.0: must be a whole number"),
        ({"seats": None}, "tour.seats: null: must be a whole number"),
        ({"wait_ms": "soon"}, "tour.wait_ms: 'soon': must be a number"),
        ({"wait_ms": math.inf}, "tour.wait_ms: .inf: must be finite"),
        ({"wait_ms": math.nan}, "tour.wait_ms: .nan: must be a number"),
        ({"wait_ms": -1}, "tour.wait_ms: -1: must be at least 0"),
        ({"mode": "Calm"}, "tour.mode: 'Calm': must be one of 'calm', 'wild'"),
        ({"open": 1}, "tour.open: 1: must be true or false"),
        ({"copy": ""}, "tour.copy: '': must not be empty"),
        ({"legs": {}}, "tour.legs: {}: must be a list"),
        ({"legs": [3]}, "tour.legs[0]: 3: must be a mapping (key: value)"),
        ({"legs": [{"duration_s": 0}]}, "tour.legs[0].duration_s: 0: must be above 0"),
        ({"legs": [{}]}, "tour.legs[0].duration_s: missing"),
        ({"legs": [{"duration_s": 1, "rate_per_s": math.nan}]}, "tour.legs[0].rate_per_s: .nan: must be a number"),
        ({"first": {"duration_s": 1, "x": 2}}, "tour.first.x: unknown key; known here: duration_s, rate_per_s"),
        ({"guide": {"duration_s": -1}}, "tour.guide.duration_s: -1: must be above 0"),
        ({"seats": 7}, "tour: seven seats are unlucky"),
        ({"seat": 3}, "tour.seat: unknown key; did you mean 'seats'?"),
        ({"wait": 3}, "tour.wait: unknown key; did you mean 'wait_ms'? (the name carries the unit)"),
        ({"wait_s": 3}, "tour.wait_s: unknown key; did you mean 'wait_ms'? (the name carries the unit)"),
    ],
)
def test_a_broken_rule_is_told_with_place_value_and_rule(value: dict[str, Any], told: str) -> None:
    """Each broken rule is one line: dotted place, the value as typed, the rule in plain words."""
    assert problems(value) == [told]


def test_all_problems_are_told_at_once() -> None:
    """Four mistakes in one mapping are four lines."""
    assert len(problems({"seats": 0, "mode": 1, "legs": [{"duration_s": -1}], "oops": 1})) == 4


def test_a_list_in_a_union_of_kinds_names_the_kind() -> None:
    """In a union told apart by `kind`, a missing and an unknown kind list what there is."""
    from batchsim.workload.arrivals import Arrivals

    assert problems({"kind": "poison", "rate_per_s": 1}, Arrivals) == [
        "tour.kind: 'poison': unknown kind; did you mean 'poisson'?"
    ]
    assert problems({"rate_per_s": 1}, Arrivals)[0].startswith("tour.kind: missing; one of poisson, gamma, constant")


def test_what_is_built_can_be_written_and_built_again() -> None:
    """A description's values, defaults filled in, build an equal one; an infinity passes where the field allows
    it."""
    tour = build(Tour, {"legs": [{"duration_s": 2, "rate_per_s": math.inf}], "first": {"duration_s": 1}}, "tour")
    assert tour.legs == (Leg(2.0, math.inf),)
    assert build(Tour, values(tour), "tour") == tour


def test_keys_that_are_promised_and_not_built_are_not_called_unknown() -> None:
    """A key that the scenario page names and this version lacks is refused as not available."""
    with pytest.raises(InvalidInput, match=r"^tour\.flag: not available in this version$"):
        build(Tour, {"flag": 1}, "tour", unavailable=["flag"])
