"""Calibration from end to end, on the tables that ship."""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchsim import catalog
from batchsim.calibrate import calibration, fit, schema
from batchsim.calibrate.compose import compose, kernels
from batchsim.calibrate.form import Setting, iterations, seconds
from batchsim.calibrate.schema import Row
from batchsim.errors import InvalidInput

GPUS = ("a100-80-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "l40s", "rtx-pro-6000")
NAMES = {"a100-80-sxm": "A100-SXM-80", "h100-sxm": "H100-SXM", "h200-sxm": "H200"}


@cache
def shipped(gpu: str) -> tuple[Row, ...]:
    return tuple(schema.read(Path(str(files("batchsim.catalog").joinpath("measurements", f"{gpu}.csv")))))


def test_the_tables_are_small_and_keep_their_notice() -> None:
    """All measurements together stay under 3 MB, and each says whose they are and under which licence."""
    paths = [Path(str(files("batchsim.catalog").joinpath("measurements", f"{gpu}.csv"))) for gpu in GPUS]
    assert sum(path.stat().st_size for path in paths) < 3_000_000
    for path in paths:
        head = path.read_text()[:600]
        assert "SPDX-License-Identifier: Apache-2.0" in head
        assert "NVIDIA CORPORATION" in head
        assert "Changed:" in head


def test_a_composed_step_is_the_sum_of_its_kernels() -> None:
    """One layer by hand: four products of 4 ms, two of attention, an output embedding of 1."""
    model = catalog.model("llama-3.1-8b")
    shapes = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    rows = [Row("gemm", "g", "bf16", 1.0, n=n, k=k, tokens=t) for n, k in (*shapes, (128256, 4096)) for t in (1, 512)]
    heads: dict[str, Any] = {"heads": 32, "kv_heads": 8, "head_dim": 128}
    rows += [Row("decode_attention", "g", "bf16", 2.0, batch=4, context=1024, **heads)]
    rows += [Row("prefill_attention", "g", "bf16", 3.0, batch=1, tokens=512, **heads)]
    kernel = kernels(rows, "bf16")
    made = {(row.tokens, row.batch): row.time_ms for row in compose(kernel, kernel, model, 1, "g", "bf16")}
    assert made == {(512, 0): pytest.approx(32 * 7 + 1), (0, 4): pytest.approx(32 * 6 + 1)}
    with pytest.raises(InvalidInput, match="attention"):
        compose(kernel, kernel, model, 2, "g", "bf16")


@pytest.mark.parametrize("gpu", ["l40s", "a100-80-sxm"])
def test_the_shipped_profile_is_what_the_shipped_tables_give(gpu: str) -> None:
    """Calibrating on the package's own tables gives the package's own profile: nothing was tuned by hand."""
    found = calibration.calibrate(shipped(gpu), gpu).profile
    ours = catalog.profile(gpu)
    assert ours is not None
    for name in fit.PARAMETERS:
        assert getattr(found, name) == pytest.approx(getattr(ours, name), rel=0.02, abs=2e-3), name
    assert found.allreduce_curve == ours.allreduce_curve
    assert found.mixed_us_per_layer == ours.mixed_us_per_layer
    assert found.moe is not None
    assert ours.moe is not None
    assert found.moe.model_dump() == pytest.approx(ours.moe.model_dump(), rel=0.02)


def test_a_profile_goes_through_its_file(tmp_path: Path) -> None:
    """What `--out` writes is read back as the same profile, held-out errors, range and provenance in it."""
    found = calibration.calibrate(shipped("l40s"), "l40s", "made here")
    calibration.write(found, tmp_path / "l40s.yaml")
    back = catalog.profile_file(tmp_path / "l40s.yaml")
    assert back == found.profile
    assert back.source == "made here"
    assert back.mape_percent is not None
    assert "larger batch than trained" in back.splits
    assert back.range.decode_seqs == (0, 512)


def test_measurements_of_another_gpu_are_refused() -> None:
    """A table of an L40S does not calibrate an H100."""
    with pytest.raises(InvalidInput, match="l40s: measurements of another GPU than h100-sxm"):
        calibration.calibrate(shipped("l40s"), "h100-sxm")


def test_gemms_alone_do_not_calibrate() -> None:
    """Without attention no iteration can be composed; the refusal says what is missing."""
    with pytest.raises(InvalidInput, match="decode_attention"):
        calibration.calibrate([row for row in shipped("l40s") if row.op == "gemm"], "l40s")


def test_mixed_attention_gives_its_factor() -> None:
    """Measured pairs set attn_decode_mixed_factor: decode that takes 1 ms alone and 2.5 beside a chunk."""
    heads: dict[str, Any] = {"heads": 32, "kv_heads": 8, "head_dim": 128}
    rows = list(shipped("l40s"))
    chunk = next(
        row.time_ms
        for row in rows
        if row.op == "prefill_attention" and (row.heads, row.tokens, row.batch, row.dtype) == (32, 512, 1, "bf16")
    )
    alone = next(
        row.time_ms
        for row in rows
        if row.op == "decode_attention"
        and (row.heads, row.batch, row.context, row.dtype, row.kv_heads) == (32, 32, 1024, "bf16", 8)
    )
    mixed = Row("mixed_attention", "l40s", "bf16", chunk + 2.5 * alone, tokens=512, batch=32, context=1024, **heads)
    assert calibration.calibrate([*rows, mixed], "l40s").profile.attn_decode_mixed_factor == pytest.approx(
        2.5, rel=0.05
    )


HELD_OUT = {  # mean error, %, on the shared composed iterations; 95th percentiles stay under 15
    "h100-sxm": {
        "random": 2.5,
        "longer than trained": 2.5,
        "larger batch than trained": 1.9,
        "trained without mixed": 2.5,
    },
    "h200-sxm": {
        "random": 2.3,
        "longer than trained": 2.4,
        "larger batch than trained": 2.1,
        "trained without mixed": 1.8,
    },
    "a100-80-sxm": {
        "random": 3.5,
        "longer than trained": 4.0,
        "larger batch than trained": 3.7,
        "trained without mixed": 3.8,
    },
}
LEFT_OUT = {"h100-sxm": 3.2, "h200-sxm": 3.5, "a100-80-sxm": 6.0}


@pytest.mark.parametrize("gpu", HELD_OUT)
def test_held_out_errors(data: Path, gpu: str) -> None:
    """One physical set a GPU predicts iterations that it was not fitted to, whole models included."""
    by: dict[tuple[str, int], list[Row]] = defaultdict(list)
    with (data / "data/kernels/composed_iterations.csv").open() as lines:
        for row in csv.DictReader(lines):
            if row["gpu"] == NAMES[gpu]:
                tokens, decodes, tp = int(row["Np"]), int(row["D"]), int(row["tp"])
                by[row["model"], tp].append(
                    Row(
                        "iteration", gpu, "bf16", float(row["t"]), model=row["model"], tp=tp, tokens=tokens,
                        chunks=int(row["nseq"]) - decodes, batch=decodes, context=int(row["kl"]) if decodes else 0,
                    )
                )  # fmt: skip
    card = catalog.gpu(gpu)
    settings = [(Setting(catalog.model(name), card, tp), iterations(rows)) for (name, tp), rows in by.items()]
    base = calibration._base(shipped(gpu), card, "test")
    kernel_rows = calibration._gemms(shipped(gpu), "bf16", False) + calibration._attentions(shipped(gpu))
    misses = fit.held_out(base, settings, kernel_rows, card)
    for name, limit in HELD_OUT[gpu].items():
        assert misses[name].mape <= limit, name
        assert misses[name].p95 <= 15, name
    assert max(e.mape for name, e in misses.items() if name.startswith("without ")) <= LEFT_OUT[gpu]


def test_fp8_is_predicted_from_fp8_measurements() -> None:
    """fp8 8B and 70B on an H200: within 5 % on average of what fp8 kernels add up to, each and together."""
    profile = catalog.profile("h200-sxm")
    assert profile is not None
    data = calibration._iterations(shipped("h200-sxm"), catalog.gpu("h200-sxm"), "fp8")
    assert fit.errors(profile, data).mape < 5
    for setting, of in data:
        assert fit.errors(profile, [(setting, of)]).mape < 5, setting.label


COMPOSED_ELSEWHERE = {  # ms: decode steps at context 1025 as aiconfigurator-core 0.12.0 adds them up, H100, vLLM, bf16
    "mixtral-8x7b": (10.05, 16.69, 23.52, 32.79, 33.49, 36.68, 41.72, 43.75, 58.21),
    "qwen3-30b-a3b": (4.68, 5.98, 7.91, 10.49, 12.62, 20.79, 24.18, 28.34, 33.69),
}


@pytest.mark.parametrize("name", COMPOSED_ELSEWHERE)
def test_experts_are_predicted(name: str) -> None:
    """Decode steps of 1 to 256 sequences on an H100, within 10 % of the step that aiconfigurator-core itself composes."""
    model, profile = catalog.model(name), catalog.profile("h100-sxm")
    assert profile is not None
    rows = [
        Row("iteration", "h100-sxm", "bf16", ms, batch=2**i, context=1024)
        for i, ms in enumerate(COMPOSED_ELSEWHERE[name])
    ]
    of = iterations(rows)
    off = np.abs(seconds(profile, Setting(model, catalog.gpu("h100-sxm")), of) / of.time_s - 1)
    assert off.mean() < 0.05
    assert off.max() < 0.1
