"""Building cost models: host time, and models from outside the package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchsim.catalog import Engine
from batchsim.cost import CostContext, CostModel, Shape, build


class Constant:
    """A pricer that knows nothing but price."""

    def price(self, shape: Shape) -> tuple[int, int | None]:
        return 7, None


@dataclass(frozen=True)
class Mine:
    """A cost kind from outside."""

    def build(self, context: CostContext) -> Constant:
        return Constant()


def test_a_model_from_outside_needs_only_price() -> None:
    """It gets host time, a description and an empty range from the package."""
    cost = build(Mine(), CostContext(engine=Engine(step_host_ms=1, seq_host_us=1)))
    assert isinstance(cost, CostModel)
    assert cost.price(Shape(5, 25, 0, 1, 2, 10)) == (7 + 10**12 + 3 * 10**9, None)
    assert cost.describe()["kind"].endswith(":Mine")
    assert cost.outside(np.array([1]), np.array([1]), np.array([1])) == {}
