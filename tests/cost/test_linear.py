"""The linear cost model: exact decimal arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from batchsim.catalog import Engine
from batchsim.cost import CostContext, Shape, build
from batchsim.cost.linear import Linear

MS = 10**12


def test_the_textbook_prices_are_exact() -> None:
    """10 + 0.1 a prompt token + 1 a decoding sequence: 100 tokens and 3 decodes take 23 ms to the femtosecond."""
    cost = build(Linear(base_ms=10, prefill_token_ms=0.1, decode_seq_ms=1), CostContext(engine=Engine(step_host_ms=0)))
    assert cost.price(Shape(100, 100 * 100, 0, 1, 3, 999)) == (23 * MS, 0)
    assert cost.price(Shape(0, 0, 0, 0, 3, 999)) == (13 * MS, 0)
    assert cost.price(Shape(8192, 8192**2, 0, 1, 0, 0)) == (829_200_000_000_000, 0)


def test_context_tokens_make_steps_grow() -> None:
    """At 0.001 ms a context token four sequences grow by 0.004 ms a step."""
    cost = build(Linear(base_ms=1, context_token_ms=0.001), CostContext())
    assert cost.price(Shape(0, 0, 0, 0, 4, 100)) == (1_100_000_000_000, 4 * 10**9)


def test_host_time_comes_on_top() -> None:
    """1 ms a step and 50 us a sequence: five sequences add 1.25 ms."""
    engine = Engine(step_host_ms=1.0, seq_host_us=30, sample_us_per_seq=20)
    cost = build(Linear(base_ms=10), CostContext(engine=engine))
    assert cost.price(Shape(7, 49, 0, 2, 3, 30))[0] == 11 * MS + 250 * 10**9
    assert cost.price(Shape(0, 0, 0, 0, 5, 30))[0] == 11 * MS + 250 * 10**9


def test_it_is_exact_and_never_extrapolated() -> None:
    """A linear model claims no error and has no range to leave."""
    cost = build(Linear(base_ms=10), CostContext())
    assert cost.describe()["status"] == "exact"
    assert cost.outside(np.array([10**9]), np.array([1]), np.array([10**9])) == {}


@pytest.mark.parametrize("keys", [{}, {"base_ms": -1}, {"base_ms": float("nan")}, {"decode_seq_ms": float("inf")}])
def test_bad_prices_are_refused(keys: dict[str, float]) -> None:
    """Negative, infinite, not a number, or all zero: refused."""
    with pytest.raises(ValidationError):
        TypeAdapter(Linear).validate_python(keys)
