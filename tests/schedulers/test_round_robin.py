"""Turns by tenant: B07 of the practitioners' cases, the half that says what is unfair about them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.metrics.fairness import jain
from tests.schedulers.queues import SMALL, crowd, first_admissions, logged
from tests.schedulers.runs import Row, listed, row

BURST = {"base_ms": 0, "kind": "linear", "prefill_token_ms": 0.1}
"""10,000 prompt tokens a second, and nothing else costs time."""


def backlog(a: int, b: int) -> list[Row]:
    """Tenant A has requests of 2,000 tokens, B of 200, all there from the start."""
    return [row(1999, 1, tenant="A") for _ in range(a)] + [row(199, 1, tenant="B") for _ in range(b)]


@pytest.mark.parametrize(
    ("shares", "index"), [([50, 50], 1.0), ([75, 25], 0.8), ([100, 0], 0.5), ([0, 0], None), ([], None), ([3], 1.0)]
)
def test_jain(shares: list[int], index: float | None) -> None:
    """B07: 1.0, 0.8, 0.5; undefined, not a division by zero, where nobody was served."""
    assert jain(shares) == index  # type: ignore[arg-type]


def test_a_turn_per_request_favours_who_sends_big_ones() -> None:
    """B07: while both wait the token shares are 0.909 and 0.091, Jain 0.599."""
    case = listed(
        {"kind": "round_robin", "max_num_seqs": 1, "max_num_batched_tokens": 2000}, backlog(40, 40), cost=BURST
    )
    run = logged(case)
    first = first_admissions(run)[:60]
    tokens = [sum(2000 for i in first if i < 40), sum(200 for i in first if i >= 40)]
    assert tokens[0] / sum(tokens) == pytest.approx(0.909, abs=0.0005)
    assert tokens[1] / sum(tokens) == pytest.approx(0.091, abs=0.0005)
    assert jain(tokens) == pytest.approx(0.599, abs=0.0005)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_turns_differ_by_one_while_all_wait(seed: int) -> None:
    """Between tenants who wait throughout, the numbers of admitted requests differ by at most one; each line is by
    arrival.
    """
    rows = [{**entry, "arrival_ms": 0} for entry in crowd(seed, 45, tenant=["a", "b", "c"])]
    names = list(dict.fromkeys(entry["tenant"] for entry in rows))
    left = {name: sum(entry["tenant"] == name for entry in rows) for name in names}
    taken = dict.fromkeys(names, 0)
    order = first_admissions(logged(listed({"kind": "round_robin", **SMALL}, rows)))
    for index in order:
        taken[rows[index]["tenant"]] += 1
        left[rows[index]["tenant"]] -= 1
        if all(left.values()):
            assert max(taken.values()) - min(taken.values()) <= 1
    for name in names:
        line = [index for index in order if rows[index]["tenant"] == name]
        assert line == sorted(line)


def test_one_tenant_is_first_come_first_served() -> None:
    """With a single tenant the order is that of arrival."""
    order = first_admissions(logged(listed({"kind": "round_robin", **SMALL}, crowd(3, 40))))
    assert order == sorted(order)
