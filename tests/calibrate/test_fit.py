"""Fitting: known parameters come back, unknowable ones are named, and the form is the cost model's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim import catalog
from batchsim.calibrate import fit as fitting
from batchsim.calibrate.allreduce import curves, latency_bandwidth
from batchsim.calibrate.form import Iterations, Setting, iterations, seconds
from batchsim.calibrate.moe import expert_layer_s, fit_moe
from batchsim.calibrate.schema import Row
from batchsim.catalog import Moe, Profile
from batchsim.cost import CostContext, Shape, build, coefficients
from batchsim.cost.calibrated import Calibrated
from batchsim.errors import InvalidInput

TRUE = Profile(
    gpu="h100-sxm", status="fitted", layer_us=27.0, memory_efficiency=0.83, compute_efficiency=0.71,
    attention_prefill_efficiency=0.44, attention_decode_efficiency=0.86, seq_us_per_layer=0.2, exponent=2.4,
    sustained_slowdown=0.07, allreduce_latency_us=7.0, allreduce_gb_per_s=300.0,
)  # fmt: skip
SETTINGS = [
    Setting(catalog.model(name), catalog.gpu("h100-sxm"), tp)
    for name, tp in (("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("llama-3.1-70b", 8))
]


def steps(noise: float = 0.0, prefill: bool = True, true: Profile = TRUE) -> fitting.Data:
    """Iterations that take exactly what `true` says, or nearly."""
    rng = np.random.default_rng(1)
    rows = [
        Row("iteration", "h100-sxm", "bf16", 1.0, batch=b, context=c)
        for b in (1, 4, 16, 64, 256)
        for c in (128, 1024, 8192)
    ]
    if prefill:
        rows += [
            Row("iteration", "h100-sxm", "bf16", 1.0, tokens=n * m, chunks=m) for n in (64, 512, 4096) for m in (1, 4)
        ]
        rows += [replace(rows[i], tokens=512, chunks=1) for i in (5, 8, 11)]
    out = []
    for setting in SETTINGS:
        of = iterations(rows)
        time_s = seconds(true, setting, of) * np.exp(noise * rng.standard_normal(len(of)))
        out.append((setting, replace(of, time_s=time_s)))
    return out


@settings(max_examples=50)
@given(st.integers(0, 4000), st.integers(1, 8), st.integers(0, 8000), st.integers(0, 300), st.integers(1, 4000))
def test_the_form_is_the_cost_models(chunk: int, chunks: int, past: int, batch: int, context: int) -> None:
    """What is fitted is what is simulated: the form on arrays equals the price of an iteration, to a millionth."""
    if not chunk * chunks + batch:
        return
    row = Row(
        "iteration", "h100-sxm", "bf16", 1.0, tokens=chunk * chunks, chunks=chunks, past=past if chunk else 0,
        batch=batch, context=context if batch else 0,
    )  # fmt: skip
    of, setting = iterations([row]), Setting(catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm"))
    shape = Shape(
        chunk * chunks,
        chunks * chunk * (2 * row.past + chunk),
        row.past * chunks if chunk else 0,
        chunks if chunk else 0,
        batch,
        batch * row.context,
    )
    profile = catalog.profile("h100-sxm")
    assert profile is not None
    price = build(Calibrated(), CostContext(setting.model, setting.gpu)).price(shape)[0]
    assert seconds(profile, setting, of)[0] * 1e15 == pytest.approx(price, rel=1e-6)


def test_known_parameters_come_back() -> None:
    """Noise-free iterations give back every parameter that made them within 1 %, and none is called unidentified."""
    found = fitting.fit(TRUE.model_copy(update={name: v[1] for name, v in fitting.PARAMETERS.items()}), steps())
    for name in fitting.PARAMETERS:
        assert getattr(found.profile, name) == pytest.approx(getattr(TRUE, name), rel=0.01), name
    assert found.unidentified == ()


def test_what_mixing_adds_comes_back_from_whole_iterations() -> None:
    """Steps that prefill and decode take 9 us a layer more: so says a fit that was told to look for it."""
    true = TRUE.model_copy(update={"mixed_us_per_layer": 9.0})
    found = fitting.fit(TRUE, steps(true=true), parameters={**fitting.PARAMETERS, **fitting.MIXED_PARAMETER})
    assert found.profile.mixed_us_per_layer == pytest.approx(9.0, rel=0.01)


def test_single_kernels_part_what_iterations_cannot() -> None:
    """Noisy steps of short chunks say little about attention; decode and prefill attention alone say it within 2 %."""
    heads: dict[str, Any] = {"heads": 32, "kv_heads": 8, "head_dim": 128}
    kv_s, flops = 4 * 8 * 128 / (0.86 * 3350e9), 0.44 * 989.4e12
    kernel_rows = [
        Row("decode_attention", "h100-sxm", "bf16", (20e-6 + b * c * kv_s + b * 0.2e-6) * 1e3, batch=b, context=c, **heads)
        for b in (8, 64) for c in (8192, 32768)
    ] + [
        Row("prefill_attention", "h100-sxm", "bf16", (15e-6 + 2 * 32 * 128 * c * c / flops) * 1e3, batch=1, tokens=c, **heads)
        for c in (2048, 8192, 16384)
    ]  # fmt: skip
    data = [(setting, of[of.prefill_tokens <= 512]) for setting, of in steps(noise=0.05)]
    alone = fitting.fit(TRUE, data)
    found = fitting.fit(TRUE, data, kernel_rows * 4, catalog.gpu("h100-sxm"))
    assert "attention_prefill_efficiency" in alone.unidentified
    assert "attention_prefill_efficiency" not in found.unidentified
    assert found.profile.attention_prefill_efficiency == pytest.approx(0.44, rel=0.02)
    assert found.profile.attention_decode_efficiency == pytest.approx(0.86, rel=0.02)


def test_what_the_data_cannot_say_is_named() -> None:
    """Decode alone says nothing about prefill attention and long steps."""
    found = fitting.fit(TRUE, steps(noise=0.01, prefill=False))
    assert {"attention_prefill_efficiency", "sustained_slowdown"} <= set(found.unidentified)
    assert "attention_decode_efficiency" not in found.unidentified


def test_held_out_errors_are_those_of_the_noise() -> None:
    """With 3 % noise every split predicts what it has not seen within a few percent."""
    misses = fitting.held_out(TRUE, steps(noise=0.03))
    assert {"random", "longer than trained", "larger batch than trained", "trained without mixed"} <= set(misses)
    assert sum(name.startswith("without ") for name in misses) == len(SETTINGS)
    for name, error in misses.items():
        assert 0.5 < error.mape < (8 if name.startswith("without ") else 5), name


def test_a_stray_timing_hardly_moves_the_fit() -> None:
    """One iteration ten times too slow moves no efficiency by more than 2 %."""
    data = steps()
    setting, of = data[0]
    time_s = of.time_s.copy()
    time_s[3] *= 10
    found = fitting.fit(TRUE, [(setting, replace(of, time_s=time_s)), *data[1:]]).profile
    assert found.memory_efficiency == pytest.approx(TRUE.memory_efficiency, rel=0.02)
    assert found.compute_efficiency == pytest.approx(TRUE.compute_efficiency, rel=0.02)


def test_too_few_iterations_are_refused() -> None:
    """Twelve iterations do not fix eight parameters."""
    setting, of = steps()[0]
    few: Iterations = of[np.arange(len(of)) < 12]
    with pytest.raises(InvalidInput, match=r"12: too few iterations to fit 8 parameters: at least 32"):
        fitting.fit(TRUE, [(setting, few)])


def test_all_reduce_keeps_its_two_pieces() -> None:
    """A jump of algorithm stays in the curve; a stray is cut; a plain line gives latency and bandwidth back."""
    sizes = [2**k for k in range(10, 28)]
    us = [5 + s / 2e5 + (60 if s > 2**22 else 0) for s in sizes]
    us[3] = 50.0
    (points,) = curves(
        [Row("allreduce", "g", "bf16", t / 1e3, tp=8, bytes=s) for s, t in zip(sizes, us, strict=True)]
    ).values()
    got = np.interp(sizes, *np.array(points).T)
    assert np.abs(np.delete(got, 3) / np.delete(us, 3) - 1).max() < 0.06
    assert got[3] < 10
    assert list(got) == sorted(got)
    plain = [
        Row("allreduce", "g", "bf16", (7 + 2 * (tp - 1) / tp * s / 300e3) / 1e3, tp=tp, bytes=s)
        for s in sizes
        for tp in (2, 4)
    ]
    assert latency_bandwidth(plain) == pytest.approx((7.0, 300.0), rel=1e-3)
    assert latency_bandwidth([]) is None


def test_expert_kernels_give_their_parameters_back() -> None:
    """Experts of two sizes, timed by known parameters, are predicted within 1 %.

    Steps of one token cannot tell how alike tokens choose: that stays at the first guess.
    """
    card, true = (
        catalog.gpu("h100-sxm"),
        Moe(
            layer_us=20, memory_efficiency=0.8, compute_efficiency=0.5, exponent=2, correlation=0.3, evenness_beyond=1.2
        ),
    )
    rows = [
        Row("moe", card.name, "bf16", 1.0, n=n, k=k, experts=e, experts_per_token=c, tokens=t)
        for n, k, e, c in ((14336, 4096, 8, 2), (768, 2048, 128, 8))
        for t in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024)
    ]
    timed = [
        replace(row, time_ms=float(s) * 1e3) for row, s in zip(rows, expert_layer_s(rows, card, true), strict=True)
    ]
    found = fit_moe(timed, card, "bf16")
    assert found is not None
    assert found[2] < 1
    assert found[0].correlation == pytest.approx(0.3, rel=0.02)
    assert fit_moe(timed[:10], card, "bf16") is None
    alone = fit_moe([row for row in timed if row.tokens == 1] * 12, card, "bf16")
    assert alone is not None
    assert (alone[0].correlation, alone[0].evenness_beyond) == (0.2, 1.0)


def test_the_fit_touches_the_experts_that_a_step_reads() -> None:
    """The fit's own columns of a layer give the reading that the cost model gives, for every number of tokens."""
    card, model, shipped = catalog.gpu("h100-sxm"), catalog.model("qwen3-30b-a3b"), catalog.profile("h100-sxm")
    assert shipped is not None
    assert shipped.moe is not None
    reading = shipped.moe.model_copy(update={"layer_us": 0.0, "compute_efficiency": 1e9})
    cost = coefficients(shipped.model_copy(update={"moe": reading}), model, card)
    tokens = (1, 2, 4, 8, 15, 16, 17, 32, 100, 1024)
    rows = [
        Row("moe", card.name, "bf16", 1.0, n=768, k=2048, experts=128, experts_per_token=8, tokens=t) for t in tokens
    ]
    layers = [cost.experts_read_of(t) / model.moe_layers for t in tokens]
    assert expert_layer_s(rows, card, reading) == pytest.approx(layers, rel=1e-6)
