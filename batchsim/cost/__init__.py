"""Cost models: what an iteration of the engine computes -> how long it takes.

The modules without an underscore, `model` apart, are the kinds of a scenario's `cost_model`.
"""

from __future__ import annotations

from batchsim.cost._form import FormCost
from batchsim.cost._host import build
from batchsim.cost._physics import Coefficients, coefficients, smooth_max
from batchsim.cost.model import CostContext, CostDescription, CostModel, Pricer, Shape

__all__ = [
    "Coefficients",
    "CostContext",
    "CostDescription",
    "CostModel",
    "FormCost",
    "Pricer",
    "Shape",
    "build",
    "coefficients",
    "smooth_max",
]
