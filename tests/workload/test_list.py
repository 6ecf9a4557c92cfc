"""Requests written out."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from batchsim.errors import InvalidInput
from batchsim.workload.columns import ABSENT
from tests.workload.inputs import drawn


def row(name: str | None = None, **more: Any) -> dict[str, Any]:
    """One request."""
    made: dict[str, Any] = {"arrival_ms": 0, "prompt_tokens": 100, "output_tokens": 10}
    return made | ({} if name is None else {"id": name}) | more


def refusal(*requests: dict[str, Any], **more: Any) -> list[str]:
    """The lines that a list is refused with."""
    with pytest.raises(InvalidInput) as refused:
        drawn(kind="list", requests=list(requests), **more)
    return str(refused.value).splitlines()


def test_every_field_reaches_its_column() -> None:
    """Times in exact nanoseconds, file order kept, defaults absent."""
    work = drawn(
        kind="list",
        requests=[
            row("a", arrival_ms=1.5, max_tokens=20, priority=-3, tenant="t", session="s", cancel_ms=0.1),
            row(arrival_ms=0, prefix=[["sys", 60], ["req:a", 40]]),
            row(7, arrival_ms=0, prefix=[["sys", 16]]),  # type: ignore[arg-type]
        ],
    )
    assert work.arrival_ns.tolist() == [1_500_000, 0, 0]
    assert work.ids == ("a", "r1", "7")
    assert work.max_tokens.tolist() == [20, ABSENT, ABSENT]
    assert work.priority.tolist() == [-3, 0, 0]
    assert [work.tenants[at] for at in work.tenant] == ["t", "default", "default"]
    assert work.sessions == ("s",)
    assert work.session.tolist() == [0, ABSENT, ABSENT]
    assert work.cancel_ns.tolist() == [100_000, ABSENT, ABSENT]
    assert work.prefixes is not None
    assert work.prefixes.offset.tolist() == [0, 0, 2, 3]
    assert work.prefixes.segment.tolist() == [0, -1, 0]
    assert work.prefixes.tokens.tolist() == [60, 40, 16]


def test_a_closed_loop_beside_a_list_overrides_its_times() -> None:
    """All times become 0, clients appear, and `arrival_ms` may be left out."""
    requests = [row(arrival_ms=500), {"prompt_tokens": 1, "output_tokens": 1}]
    work = drawn(kind="list", requests=requests, arrivals={"kind": "closed", "concurrency": 2})
    assert work.arrival_ns.tolist() == [0, 0]
    assert work.clients is not None
    assert work.clients.concurrency == 2
    assert not work.open_loop


def test_all_problems_of_a_list_come_at_once() -> None:
    """Each with its place, value and rule."""
    assert refusal(
        row("a"),
        row("a", output_tokens=11, max_tokens=10),
        {"prompt_tokens": 5, "output_tokens": 5},
        row("d", prefix=[["sys", 70], ["x", 31]]),
        row("e", prefix=[["req:nobody", 5]]),
        row("f", prefix=[["req:f", 5]]),
        row("g", prefix=[["req:d", 111]], prompt_tokens=200),
    ) == [
        "workload.requests[1].id: a: is the id of workload.requests[0] too",
        "workload.requests[1].output_tokens: 11: is above this request's max_tokens (10)",
        "workload.requests[2].arrival_ms: missing: only a closed loop needs no arrival times",
        "workload.requests[3].prefix: 101 tokens: must be at most the prompt's 100",
        "workload.requests[4].prefix[0]: req:nobody: no request has this id",
        "workload.requests[5].prefix[0]: req:f: a request cannot be its own prefix",
        "workload.requests[6].prefix[0]: 111: req:d has 110 tokens, prompt and output",
    ]


def test_a_request_named_like_a_default_is_a_repeat() -> None:
    """`r1` written out clashes with the second request's default name."""
    assert refusal(row("r1"), row()) == ["workload.requests[1].id: r1: is the id of workload.requests[0] too"]


def test_prefixes_in_a_circle_are_refused() -> None:
    """No order of computing them exists; a forward reference alone is fine."""
    circle = [row("a", prefix=[["req:c", 5]]), row("b", prefix=[["req:a", 5]]), row("c", prefix=[["req:b", 5]])]
    assert refusal(*circle, row("d")) == [
        "workload.requests: a, b, c: these requests' prefixes name each other in a circle"
    ]
    assert len(drawn(kind="list", requests=[row("a", prefix=[["req:b", 5]]), row("b")])) == 2


def test_many_problems_are_counted_after_twenty() -> None:
    """A table of 30 bad rows names 20 and counts 10."""
    lines = refusal(*[row(output_tokens=5, max_tokens=4) for _ in range(30)])
    assert len(lines) == 21
    assert lines[-1] == "workload.requests: and 10 more problems"


@pytest.mark.parametrize(
    "bad",
    [
        {"prompt_tokens": 0},
        {"output_tokens": 0},
        {"prompt_tokens": True},
        {"prompt_tokens": "3"},
        {"prompt_tokens": 3.0},
        {"prompt_tokens": 2**60},
        {"arrival_ms": -1},
        {"arrival_ms": float("nan")},
        {"arrival_ms": float("inf")},
        {"priority": 0.5},
        {"prefix": [["sys", 0]]},
        {"prefix": [["sys"]]},
        {"outptu_tokens": 4},
        {"cancel_ms": -1},
        {"id": ""},
        {"id": True},
    ],
)
def test_b16_fields_out_of_bounds_are_refused(bad: dict[str, Any]) -> None:
    """B16 and A18: zero lengths, wrong types, non-finite numbers and unknown keys name their row and key."""
    with pytest.raises(ValidationError) as refused:
        drawn(kind="list", requests=[row(), row(**bad)])
    assert refused.value.errors()[0]["loc"][:4] == ("list", "requests", 1, next(iter(bad)))
