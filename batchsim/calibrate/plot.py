"""Measured against predicted iterations, as a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchsim.calibrate.calibration import Calibration
from batchsim.calibrate.form import seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def measured_against_predicted(calibration: Calibration, axes: Axes | None = None) -> Axes:
    """Every iteration: measured time across, prediction's error up; a perfect fit lies on zero."""
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(7, 4.5), layout="constrained").add_subplot()
    for (setting, of), colour in zip(calibration.data, COLOURS * 8, strict=False):
        error = (seconds(calibration.profile.model_copy(update=_UNMIXED), setting, of) / of.time_s - 1) * 100
        axes.plot(of.time_s * 1e3, error, ".", ms=4, alpha=0.6, color=colour, label=setting.label)
    axes.axhline(0, color="0.3", lw=0.8)
    axes.axhspan(-10, 10, color="0.93", zorder=0)
    axes.set_xscale("log")
    axes.set_xlabel("measured time of an iteration, ms")
    axes.set_ylabel("predicted, % above measured")
    e = calibration.in_sample
    axes.set_title(f"{calibration.profile.gpu}: {e.mape:.1f} % mean error, {e.p95:.0f} % at p95, in sample", loc="left")
    axes.legend(frameon=False, fontsize=8)
    return axes


_UNMIXED = {"attn_decode_mixed_factor": 1.0}
"""Iterations composed from kernels do not hold it."""
