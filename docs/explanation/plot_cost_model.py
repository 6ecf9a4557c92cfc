"""Draws the figures of cost-model.md: `python docs/explanation/plot_cost_model.py` writes them beside this file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from batchsim import catalog
from batchsim.calibrate import schema
from batchsim.calibrate.calibration import calibrate
from batchsim.calibrate.plot import measured_against_predicted
from batchsim.cost._physics import coefficients

HERE = Path(__file__).parent / "images"
GPU, MODEL = "h100-sxm", "llama-3.1-8b"
TOKENS = np.unique(np.geomspace(1, 16384, 200).astype(int))


def step_time() -> Figure:
    """Time of a step against the tokens in it: flat while weights are read, then proportional."""
    profile = catalog.profile(GPU)
    assert profile is not None
    c = coefficients(profile, catalog.model(MODEL), catalog.gpu(GPU))
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    read_ms, multiply_ms = c.read_s * 1e3, c.token_s * TOKENS * 1e3
    axes.loglog(TOKENS, [c.dense_s(int(n)) * 1e3 for n in TOKENS], color="#0072B2", lw=2)
    axes.loglog(TOKENS, multiply_ms, "--", color="#D55E00", lw=1)
    axes.axhline(read_ms, ls="--", color="#009E73", lw=1)
    axes.text(1.1, read_ms * 0.8, "read the weights", color="#009E73", va="top")
    axes.text(1500, c.token_s * 1500e3 * 0.55, "multiply them", color="#D55E00")
    axes.text(2.2, c.dense_s(2) * 1.15e3, "one step, attention left out", color="#0072B2")
    knee = read_ms / (c.token_s * 1e3)
    axes.set_ylim(bottom=2)
    axes.set_title(f"Reading and multiplying meet at {knee:.0f} tokens: {MODEL} on {GPU}", loc="left")
    axes.set_xlabel("tokens computed in the step (decoding sequences + prompt tokens)")
    axes.set_ylabel("ms")
    return figure


def fit_of(gpu: str) -> Figure:
    """Measured against predicted iterations of the shipped tables."""
    table = Path(str(files("batchsim.catalog").joinpath("measurements", f"{gpu}.csv")))
    figure = Figure(figsize=(7, 4), layout="constrained")
    measured_against_predicted(calibrate(schema.read(table), gpu), figure.add_subplot())
    return figure


def main() -> None:
    HERE.mkdir(exist_ok=True)
    step_time().savefig(HERE / "step-time.png", dpi=110)
    for gpu in ("h100-sxm", "a100-80-sxm"):
        fit_of(gpu).savefig(HERE / f"fit-{gpu}.png", dpi=110)


if __name__ == "__main__":
    main()
