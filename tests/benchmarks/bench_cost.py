"""How long one price takes, and how long the catalogue takes to import: `python tests/benchmarks/bench_cost.py`.

Prints medians of alternating runs, processor time. Targets: 0.5 us a price for linear and calibrated, 20 ms for the
catalogue beyond yaml and pydantic.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from batchsim import catalog
from batchsim.cost import CostContext, CostModel, Shape, build
from batchsim.cost.calibrated import Calibrated
from batchsim.cost.linear import Linear
from batchsim.cost.roofline import Roofline
from batchsim.cost.table import Row, TableCost

ROUNDS = 9
DECODE = [Shape(0, 0, 0, 0, n, n * 500 + i) for i, n in enumerate([1, 8, 64, 256] * 2500)]
MIXED = [Shape(512, 512 * 1536, 512, 1, n, n * 500 + i) for i, n in enumerate([1, 8, 64, 256] * 2500)]

_IMPORT = """
import time, yaml, difflib, importlib.resources
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
class Warm(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int = Field(1)
start = time.process_time()
import batchsim.catalog
print((time.process_time() - start) * 1e3)
"""


def costs() -> dict[str, CostModel]:
    """The cost models to time."""
    context = CostContext(catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm"), engine=catalog.engine("vllm-0.19"))
    windowed = CostContext(catalog.model("gemma-3-12b"), catalog.gpu("h100-sxm"))
    rows = [Row(p, d, float(c), 1.0 + p + d + c) for p in (0, 64, 512) for d in (1, 16, 256) for c in (128, 1024, 8192)]
    return {
        "linear": build(Linear(10, 0.1, 1, 0), context),
        "roofline": build(Roofline(), context),
        "calibrated": build(Calibrated(), context),
        "calibrated, windowed": build(Calibrated(), windowed),
        "table": TableCost([*rows, Row(512, 0, 0.0, 9.0)], "benchmark"),
    }


def time_us(price: Callable[[Shape], object], shapes: list[Shape]) -> float:
    """Mean processor time of one price, microseconds."""
    start = process_time()
    for shape in shapes:
        price(shape)
    return (process_time() - start) / len(shapes) * 1e6


def main() -> None:
    """Prints the table."""
    models = costs()
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for name, cost in models.items():
            for kind, shapes in (("decode", DECODE), ("mixed", MIXED)):
                times.setdefault((name, kind), []).append(time_us(cost.price, shapes))
    for name in models:
        decode, mixed = (median(times[name, kind]) for kind in ("decode", "mixed"))
        print(f"{name:22} {decode:5.2f} us a decode step, {mixed:5.2f} us a mixed one")
    root = Path(__file__).resolve().parents[2]
    runs = [
        subprocess.run([sys.executable, "-c", _IMPORT], cwd=root, capture_output=True, text=True, check=True).stdout
        for _ in range(ROUNDS)
    ]
    print(f"catalogue import       {median(map(float, runs)):5.1f} ms beyond yaml and pydantic")


if __name__ == "__main__":
    main()
