"""Four ways to predict an iteration's time, side by side, on iterations held out.

`python tests/benchmarks/bench_forms.py`; needs scikit-learn. Iterations are composed from the shipped kernel tables.
Ours is one physical set a GPU for all models and tensor parallel sizes; the others are fitted to each model and size on
its own, which is easier.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from sklearn.ensemble import RandomForestRegressor

from batchsim import catalog
from batchsim.calibrate import calibration, fit, schema
from batchsim.calibrate.form import Iterations, seconds

GPUS = ("a100-80-sxm", "h100-sxm", "h200-sxm")
Floats = NDArray[np.float64]


def features(of: Iterations) -> Floats:
    """Tokens, quadratic prefill work, context, sequences, 1."""
    tokens = of.prefill_tokens + of.decode_seqs
    seqs = of.prefill_seqs + of.decode_seqs
    return np.stack([tokens, of.s2, of.context_tokens, seqs, np.ones(len(of))], axis=1)


def linear(train: Iterations, test: Iterations) -> Floats:
    """Non-negative coefficients of the features, relative errors squared."""
    x, scale = features(train), features(train).max(axis=0)
    found = least_squares(
        lambda c: (x / scale) @ c / train.time_s - 1, np.full(5, train.time_s.mean() / 5), bounds=(0, np.inf)
    )
    return np.asarray((features(test) / scale) @ found.x)


def roofline(train: Iterations, test: Iterations) -> Floats:
    """max(read, multiply) + context: three coefficients."""

    def form(c: Floats, of: Iterations) -> Floats:
        x = features(of)
        return np.asarray(np.maximum(c[0], c[1] * x[:, 0] / 1e3) + c[2] * x[:, 2] / 1e6)

    start = np.array([train.time_s.min(), train.time_s.max() / 16, 0.05])
    found = least_squares(lambda c: np.log(form(c, train) / train.time_s), start, bounds=(1e-9, np.inf))
    return form(found.x, test)


def forest(train: Iterations, test: Iterations) -> Floats:
    """A random forest on the features."""
    trees = RandomForestRegressor(200, random_state=0, n_jobs=1).fit(features(train), train.time_s)
    return np.asarray(trees.predict(features(test)))


def error(predicted: Floats, of: Iterations) -> Floats:
    return np.abs(predicted / of.time_s - 1) * 100


def main() -> None:
    table: dict[tuple[str, str], list[Floats]] = {}
    for gpu in GPUS:
        card = catalog.gpu(gpu)
        rows = schema.read(Path(str(files("batchsim.catalog").joinpath("measurements", f"{gpu}.csv"))))
        data = calibration._iterations(rows, card, "bf16")
        base, gemm = calibration._base(rows, card, "bench"), calibration._gemms(rows, "bf16", False)
        for split, choose in fit.SPLITS.items():
            masks = [choose(of, np.random.default_rng(0)) for _, of in data]
            train = [(s, of[~mask]) for (s, of), mask in zip(data, masks, strict=True)]
            ours = fit.fit(base, train, gemm, card).profile
            for (setting, of), mask in zip(data, masks, strict=True):
                inside, outside = of[~mask], of[mask]
                for name, predict in (("roofline, 3", roofline), ("linear, 5", linear), ("random forest", forest)):
                    table.setdefault((name, split), []).append(error(predict(inside, outside), outside))
                table.setdefault(("batchsim", split), []).append(error(seconds(ours, setting, outside), outside))
    print(f"{'mean / p95 error, %':20}" + "".join(f"{split:>28}" for split in fit.SPLITS))
    for name in ("roofline, 3", "linear, 5", "random forest", "batchsim"):
        cells = [np.concatenate(table[name, split]) for split in fit.SPLITS]
        print(f"{name:20}" + "".join(f"{c.mean():>20.1f} / {np.percentile(c, 95):<5.1f}" for c in cells))


if __name__ == "__main__":
    main()
