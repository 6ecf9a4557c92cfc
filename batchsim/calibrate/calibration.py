"""From measurements of a GPU to its cost profile: the whole of `batchsim calibrate`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchsim.calibrate.allreduce import curves, latency_bandwidth
from batchsim.calibrate.checks import CACHE_BYTES, impossible, too_fast
from batchsim.calibrate.compose import Kernels, aligned, compose, kernels
from batchsim.calibrate.fit import (
    FP8_PARAMETERS,
    MIXED_PARAMETER,
    PARAMETERS,
    PAST_PARAMETER,
    Bounds,
    Data,
    Errors,
    calibrated_range,
    errors,
    fit,
    held_out,
)
from batchsim.calibrate.form import Setting, iterations
from batchsim.calibrate.mixed import beside_a_chunk, second_kernel_us
from batchsim.calibrate.moe import fit_moe
from batchsim.calibrate.schema import Row
from batchsim.catalog import Fp8, Gpu, Profile, Range, gpu, model
from batchsim.errors import InvalidInput, Problem, problem

COMPOSED = (("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("llama-3.1-70b", 8))
"""Models and tensor parallel sizes whose iterations are composed from kernels that name no model."""
GEMM_TOKENS = (1, 4, 16, 64, 128, 192)
"""Rows of the single GEMMs that are fitted: those of decode, which part gaps from reading."""
LEAST_GEMM_WEIGHTS = 2**22
WIDEST_GEMM = 16384
LONG_CHUNK = 2048
"""Tokens of a single chunk from which attention is bound by multiplying."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted profile and everything to know before trusting it."""

    profile: Profile
    data: Data
    held_out: dict[str, Errors]
    fp8: Errors | None
    moe: dict[str, tuple[float, float]]
    """dtype -> mean and 95th percentile error of the expert kernels, percent."""
    unidentified: tuple[str, ...]
    flagged: tuple[Problem, ...]
    in_sample: Errors


def calibrate(rows: Sequence[Row], gpu_name: str, source: str = "") -> Calibration:
    """Fit the profile of a GPU to its measurements.

    `iteration` rows are taken as they are; where there are none, iterations are composed from the kernels. Raises
    InvalidInput for rows of other GPUs, impossible rows, and too few to fit.
    """
    card = gpu(gpu_name, "--gpu")
    _check_gpu(rows, card)
    refused, flagged = impossible(rows, card)
    if refused:
        raise InvalidInput(refused[:20], f"{len(refused)} rows are faster than the datasheet of {card.name} allows")
    data = _iterations(rows, card, "bf16")
    base = _base(rows, card, source or _sources(rows))
    warm = any("gemm" in problem.path for problem in flagged)
    kernel_rows = _gemms(rows, "bf16", warm) + _attentions(rows)
    parameters = _parameters(rows, data)
    found = fit(base, data, kernel_rows, card, parameters)
    misses = held_out(base, data, kernel_rows, card, parameters)
    fitted, fp8, unidentified = found.profile, None, list(found.unidentified)
    fp8_data = _iterations(rows, card, "fp8", needed=False)
    if fp8_data:
        fitted, fp8, more = _fit_fp8(fitted, fp8_data, _gemms(rows, "fp8", warm), card)
        unidentified += more
    cold = [row for row in rows if not too_fast(row, card)[1]]
    fitted, moe = _fit_experts(_fit_kv_fp8(fitted, cold, card), cold, card)
    factor, start_us = beside_a_chunk(rows, card, fitted.mixed_us_per_layer)
    fitted = fitted.model_copy(update={"attn_decode_mixed_factor": factor, "mixed_us_per_layer": start_us})
    fitted = _describe(fitted, data, misses, fp8, moe)
    return Calibration(fitted, data, misses, fp8, moe, tuple(unidentified), tuple(flagged), errors(found.profile, data))


def write(calibration: Calibration, path: Path) -> None:
    """The profile as YAML, as `cost_model.profile` takes it."""
    path.write_text(to_yaml(calibration.profile), encoding="utf-8")


def to_yaml(fitted: Profile) -> str:
    """A profile as YAML, defaults left out."""
    import yaml

    data = fitted.model_dump(mode="json", exclude_defaults=True)
    return str(yaml.safe_dump(data, sort_keys=False, width=120, default_flow_style=None))


def _parameters(rows: Sequence[Row], data: Data) -> Bounds:
    """What the iterations can say: chunks over a past, and, where they were measured whole, chunks beside decoding."""
    parameters = dict(PARAMETERS)
    if any(measured.past.any() for _, measured in data):
        parameters |= PAST_PARAMETER
    mixed = any(((of.prefill_tokens > 0) & (of.decode_seqs > 0)).any() for _, of in data)
    if mixed and any(row.op == "iteration" for row in rows):
        parameters |= MIXED_PARAMETER
    return parameters


def _check_gpu(rows: Sequence[Row], card: Gpu) -> None:
    strangers = sorted({row.gpu for row in rows} - {card.name, *card.aliases})
    if strangers:
        rule = f"measurements of another GPU than {card.name}"
        raise InvalidInput([problem("gpu", name, rule) for name in strangers])


def _iterations(rows: Sequence[Row], card: Gpu, dtype: str, needed: bool = True) -> Data:
    """Measured iterations by setting, or those composed from kernels."""
    by: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row.op == "iteration" and (row.dtype == "fp8") == (dtype == "fp8"):
            by[row.model, row.tp].append(row)
    if not by:
        by.update(_composed(rows, card, dtype))
    if needed and not by:
        rule = "no iterations, and too few kernels to compose any: gemm, prefill_attention and decode_attention"
        raise InvalidInput([problem("measurements", None, rule)])
    return [(Setting(model(name), card, tp, dtype), iterations(of)) for (name, tp), of in by.items()]


def _composed(rows: Sequence[Row], card: Gpu, dtype: str) -> dict[tuple[str, int], list[Row]]:
    if not any(row.op == "gemm" and row.dtype == dtype for row in rows):
        return {}
    kernel, head = kernels(rows, dtype), kernels(rows, "bf16")
    out = {}
    named = sorted({(row.model, row.tp) for row in rows if row.op in ("gemm", "decode_layer") and row.model})
    for name, tp in named or COMPOSED:
        architecture = model(name)
        heads = (architecture.heads // tp, max(1, architecture.kv_heads // tp), architecture.head_dim)
        if _can_compose(kernel, heads, tp, card):
            out[name, tp] = compose(kernel, head, architecture, tp, card.name, dtype)
    return out


def _can_compose(kernel: Kernels, heads: tuple[int, int, int], tp: int, card: Gpu) -> bool:
    """Whether attention and all-reduce were measured; tensor parallelism is left out where GPUs have no link."""
    linked = tp == 1 or (tp in kernel.allreduce and card.nvlink_gb_per_s_bidir > 0)
    return linked and heads in kernel.prefill and heads in kernel.decode


def _gemms(rows: Sequence[Row], dtype: str, warm: bool) -> list[Row]:
    """Single GEMMs worth fitting: of a layer's size, with few rows; beyond the cache where it was warm."""
    least = CACHE_BYTES if warm else 2 * LEAST_GEMM_WEIGHTS
    size = 1 if dtype == "fp8" else 2
    return [
        row
        for row in rows
        if row.op == "gemm" and row.dtype == dtype and row.tokens in GEMM_TOKENS and aligned(row)
        and row.n * row.k * size >= least and row.n <= WIDEST_GEMM
    ]  # fmt: skip


def _attentions(rows: Sequence[Row]) -> list[Row]:
    """Single attentions worth fitting: decode whose keys and values no cache holds, chunks long enough to multiply."""
    sixteen = [row for row in rows if row.dtype != "fp8"]
    return [
        row
        for row in sixteen
        if row.op == "decode_attention" and 4 * row.kv_heads * row.head_dim * row.batch * row.context >= CACHE_BYTES
    ] + [row for row in sixteen if row.op == "prefill_attention" and row.tokens >= LONG_CHUNK and not row.past]


def _base(rows: Sequence[Row], card: Gpu, source: str) -> Profile:
    """What is not fitted by iterations: all-reduce and starting attention, from their own rows; activations move once."""
    linked = card.nvlink_gb_per_s_bidir > 0  # over PCIe it is the host that decides, not the GPU
    link = latency_bandwidth(rows) if linked else None
    first = {name: guess for name, (_, guess, _) in PARAMETERS.items()}
    return Profile(
        name=card.name,
        gpu=card.name,
        status="fitted",
        source=source,
        **first,
        activation_factor=1.0,
        mixed_us_per_layer=second_kernel_us(rows),
        allreduce_latency_us=link[0] if link else None,
        allreduce_gb_per_s=link[1] if link else None,
        allreduce_curve=curves(rows) if linked else {},
    )


def _fit_fp8(fitted: Profile, data: Data, gemm: list[Row], card: Gpu) -> tuple[Profile, Errors, list[str]]:
    start = fitted.model_copy(
        update={"fp8": Fp8(**{name.split(".")[1]: guess for name, (_, guess, _) in FP8_PARAMETERS.items()})}
    )
    found = fit(start, data, gemm, card, FP8_PARAMETERS)
    misses = held_out(start, data, gemm, card, FP8_PARAMETERS)
    return found.profile, misses.get("random", errors(found.profile, data)), list(found.unidentified)


def _fit_kv_fp8(fitted: Profile, rows: Sequence[Row], card: Gpu) -> Profile:
    """Decode attention on an fp8 KV cache: the bandwidth that long contexts reach, of its own rows."""
    import numpy as np

    used = [r for r in rows if r.op == "decode_attention" and r.dtype == "fp8"]
    moved = [2 * r.kv_heads * r.head_dim * r.batch * r.context for r in used]
    large = [(size, r.time_ms * 1e-3) for size, r in zip(moved, used, strict=True) if size >= LARGE_KV_BYTES]
    if len(large) < 8:
        return fitted
    efficiency = float(np.median([size / s for size, s in large])) / card.bytes_per_s
    return fitted.model_copy(update={"attention_decode_fp8_efficiency": round(efficiency, 4)})


LARGE_KV_BYTES = 256 * 2**20
"""KV of one layer that no cache holds."""


def _fit_experts(fitted: Profile, rows: Sequence[Row], card: Gpu) -> tuple[Profile, dict[str, tuple[float, float]]]:
    misses, update = {}, {}
    for dtype, part in (("bf16", "moe"), ("fp8", "moe_fp8")):
        found = fit_moe(rows, card, dtype)
        if found is not None:
            update[part], mape, p95 = found
            misses[dtype] = (round(mape, 2), round(p95, 1))
    return fitted.model_copy(update=update), misses


def _describe(
    fitted: Profile, data: Data, misses: dict[str, Errors], fp8: Errors | None, moe: dict[str, tuple[float, float]]
) -> Profile:
    main = misses.get("random")
    splits = {name: (round(e.mape, 2), round(e.p95, 1)) for name, e in misses.items() if name != "random"}
    if fp8 is not None:
        splits["fp8 random"] = (round(fp8.mape, 2), round(fp8.p95, 1))
    splits |= {f"experts {dtype}, in sample": found for dtype, found in moe.items()}
    update: dict[str, Any] = {
        "splits": splits,
        "calibrated_on": tuple(setting.label for setting, _ in data),
        "range": Range(**calibrated_range(data)),
        "mape_percent": round(main.mape, 2) if main else None,
        "p95_percent": round(main.p95, 1) if main else None,
    }
    return fitted.model_copy(update=update)


def _sources(rows: Sequence[Row]) -> str:
    return ", ".join(sorted({row.source for row in rows if row.source})) or "measured by the user"
