"""Fitting a GPU's physical parameters to measured iterations: bounded robust least squares on log times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.calibrate.form import Floats, Iterations, Setting, seconds
from batchsim.calibrate.schema import Row
from batchsim.calibrate.single import singles
from batchsim.catalog import Gpu, Profile
from batchsim.errors import InvalidInput, problem

Bounds = Mapping[str, tuple[float, float, float]]

_FP8 = ("layer_us", "memory_efficiency", "compute_efficiency", "exponent", "sustained_slowdown")

PARAMETERS: Bounds = {
    "layer_us": (1.0, 25.0, 200.0),
    "memory_efficiency": (0.3, 0.8, 1.0),
    "compute_efficiency": (0.2, 0.75, 1.0),
    "attention_prefill_efficiency": (0.1, 0.5, 1.0),
    "attention_decode_efficiency": (0.2, 0.8, 1.0),
    "seq_us_per_layer": (0.0, 0.05, 3.0),
    "exponent": (1.0, 2.0, 8.0),
    "sustained_slowdown": (0.0, 0.05, 1.0),
}
"""Parameter -> least, first guess, most."""

PAST_PARAMETER: Bounds = {"past_read_factor": (0.0, 1.0, 50.0)}
"""Fitted as well where chunks over a past were measured."""

MIXED_PARAMETER: Bounds = {"mixed_us_per_layer": (0.0, 5.0, 100.0)}
"""Fitted as well where whole iterations were measured, chunks and decoding sequences together."""

FP8_PARAMETERS: Bounds = {f"fp8.{name}": PARAMETERS[name] for name in _FP8}
"""The dense layers under fp8 weights; attention and the output embedding stay in 16 bits."""

SOFT = 0.05
"""Relative error where the loss turns from squared to absolute: stray timings weigh less."""
UNCERTAIN = 0.3
"""A parameter is named unidentified when the data leave it more uncertain than this, relative."""
POINTS_EACH = 4
LONG_TOKENS = 4096
LARGE_BATCH = 128
HELD_OUT = 0.2

Data = Sequence[tuple[Setting, Iterations]]


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of predictions, percent."""

    mape: float
    p95: float
    count: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted profile, and which of its parameters the data leave open."""

    profile: Profile
    unidentified: tuple[str, ...]


def fit(
    base: Profile, data: Data, kernel_rows: Sequence[Row] = (), gpu: Gpu | None = None, parameters: Bounds = PARAMETERS
) -> Fit:
    """`base` with `parameters` fitted to iterations, and to single kernels (`batchsim.calibrate.single`) where given.

    Raises InvalidInput where there are too few iterations.
    """
    from scipy.optimize import least_squares

    count = sum(len(measured) for _, measured in data)
    if count < POINTS_EACH * len(parameters):
        rule = f"too few iterations to fit {len(parameters)} parameters: at least {POINTS_EACH * len(parameters)}"
        raise InvalidInput([problem("measurements", count, rule)])
    names = list(parameters)
    low, first, high = np.array(list(parameters.values())).T
    observed = [np.log(measured.time_s) for _, measured in data]
    kinds = singles(kernel_rows, gpu) if gpu is not None else []
    gaps = np.array([kind.gap_us for kind in kinds]).reshape(-1, 3)
    lows, start, highs = (np.append(values, gaps[:, i]) for i, values in enumerate((low, first, high)))

    def residuals(values: Floats) -> Floats:
        profile = updated(base, dict(zip(names, map(float, values), strict=False)))
        parts = [np.log(seconds(profile, s, m)) - seen for (s, m), seen in zip(data, observed, strict=True)]
        parts += [kind.residuals(profile, float(g)) for kind, g in zip(kinds, values[len(names) :], strict=True)]
        return np.concatenate(parts)

    scale = np.maximum(np.abs(start), 1e-2)
    result = least_squares(residuals, start, bounds=(lows, highs), loss="soft_l1", f_scale=SOFT, x_scale=scale)
    solved = dict(zip(names, (float(f"{v:.5g}") if v > 1e-6 else 0.0 for v in result.x), strict=False))
    open_ones = _unidentified(
        names, np.maximum(result.x, 0.2 * start), result.jac, np.asarray(residuals(result.x)), lows, highs
    )
    return Fit(updated(base, solved), open_ones)


def updated(base: Profile, values: Mapping[str, float]) -> Profile:
    """`base` with some parameters replaced; `fp8.layer_us` is the field of a part."""
    flat: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    for part in {name.split(".")[0] for name in values if "." in name}:
        inner = {name.split(".")[1]: value for name, value in values.items() if name.startswith(f"{part}.")}
        flat[part] = getattr(base, part).model_copy(update=inner)
    return base.model_copy(update=flat)


def _unidentified(
    names: list[str], at: Floats, jacobian: Floats, left: Floats, low: Floats, high: Floats
) -> tuple[str, ...]:
    """Parameters at a bound, or whose uncertainty, from the Jacobian's singular values, is above `UNCERTAIN`."""
    scaled = jacobian * np.maximum(np.abs(at), 1e-9)
    _, singular, right = np.linalg.svd(scaled, full_matrices=False)
    spread = np.sqrt(np.mean(left**2))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(
            singular[:, None] > 1e-12 * singular[0], right / singular[:, None], np.inf * (np.abs(right) > 1e-6)
        )
    uncertain = spread * np.sqrt(np.nansum(shares**2, axis=0))
    edge = (at >= high * (1 - 1e-6)) | ((at <= low * (1 + 1e-6)) & (low > 0))
    return tuple(name for name, bad in zip(names, (uncertain > UNCERTAIN) | edge, strict=False) if bad)


def errors(profile: Profile, data: Data) -> Errors:
    """Errors of predicted against measured iterations."""
    parts = [np.abs(seconds(profile, s, m) / m.time_s - 1) * 100 for s, m in data if len(m)]
    every = np.concatenate(parts) if parts else np.zeros(0)
    if not len(every):
        return Errors(float("nan"), float("nan"), 0)
    return Errors(float(every.mean()), float(np.percentile(every, 95)), len(every))


Chooser = Callable[[Iterations, np.random.Generator], NDArray[np.bool_]]

SPLITS: Mapping[str, Chooser] = {
    "random": lambda of, rng: np.asarray(rng.random(len(of)) < HELD_OUT),
    "longer than trained": lambda of, rng: np.asarray(of.longest > LONG_TOKENS),
    "larger batch than trained": lambda of, rng: np.asarray(of.decode_seqs >= LARGE_BATCH),
    "trained without mixed": lambda of, rng: np.asarray((of.prefill_tokens > 0) & (of.decode_seqs > 0)),
}
"""Split -> which iterations are held out."""

KERNELS_OUT: Mapping[str, Callable[[Row], bool]] = {
    "longer than trained": lambda row: row.op != "gemm" and max(row.context, row.tokens) > LONG_TOKENS,
    "larger batch than trained": lambda row: row.op == "decode_attention" and row.batch >= LARGE_BATCH,
}
"""Split -> which single kernels are held out with the iterations."""


def held_out(
    base: Profile,
    data: Data,
    kernel_rows: Sequence[Row] = (),
    gpu: Gpu | None = None,
    parameters: Bounds = PARAMETERS,
    seed: int = 0,
) -> dict[str, Errors]:
    """Errors on iterations that were not fitted, one entry a split, and one for each setting left out whole.

    A split that leaves nothing out, or too little to fit, is absent.
    """
    out = {}
    for name, choose in SPLITS.items():
        rng = np.random.default_rng(seed)
        masks = [choose(measured, rng) for _, measured in data]
        train = [(s, m[~mask]) for (s, m), mask in zip(data, masks, strict=True)]
        test = [(s, m[mask]) for (s, m), mask in zip(data, masks, strict=True)]
        if any(mask.any() for mask in masks) and sum(len(m) for _, m in train) >= POINTS_EACH * len(parameters):
            hidden = KERNELS_OUT.get(name)
            kept = [row for row in kernel_rows if hidden is None or not hidden(row)]
            out[name] = errors(fit(base, train, kept, gpu, parameters).profile, test)
    if len(data) > 1:
        for i, (setting, _) in enumerate(data):
            rest = [pair for j, pair in enumerate(data) if j != i]
            out[f"without {setting.label}"] = errors(fit(base, rest, kernel_rows, gpu, parameters).profile, [data[i]])
    return out


def calibrated_range(data: Data) -> dict[str, tuple[int, int]]:
    """Least and greatest of what was measured, as a profile's `range` holds it."""
    joined = {name: np.concatenate([getattr(m, name) for _, m in data]) for name in ("prefill_tokens", "decode_seqs")}
    mean = np.concatenate([m.context_tokens[m.decode_seqs > 0] / m.decode_seqs[m.decode_seqs > 0] for _, m in data])
    if len(mean):
        joined["context_per_seq"] = mean
    return {name: (int(values.min()), int(values.max())) for name, values in joined.items()}


def fitted_values(profile: Profile, names: Sequence[str] = tuple(PARAMETERS)) -> dict[str, Any]:
    """The fitted parameters by name."""
    return {name: getattr(profile, name) for name in names}
