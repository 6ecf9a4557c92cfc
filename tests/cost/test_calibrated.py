"""The calibrated form: reproduces the fits, predicts the composed steps, refuses what was not measured."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from batchsim import catalog
from batchsim.catalog import Gpu, Profile, Range
from batchsim.cost import CostContext, FormCost, Shape, build, coefficients, smooth_max
from batchsim.cost._form import windowed_s2
from batchsim.cost.calibrated import Calibrated
from batchsim.cost.roofline import Roofline
from batchsim.errors import InvalidInput

NAMES = {"A100-SXM-80": "a100-80-sxm", "H100-SXM": "h100-sxm", "H200": "h200-sxm", "B200": "b200-sxm", "L40S": "l40s"}
PLAIN: dict[str, Any] = {
    "gpu": "h100-sxm", "status": "fitted", "layer_us": 25.0, "memory_efficiency": 0.8, "compute_efficiency": 0.8,
    "attention_prefill_efficiency": 0.6, "attention_decode_efficiency": 0.9, "seq_us_per_layer": 0.0, "exponent": 2.0,
}  # fmt: skip


def on(gpu: str, model: str = "llama-3.1-8b", tp: int = 1, **formats: str) -> CostContext:
    return CostContext(catalog.model(model), catalog.gpu(gpu), tp, **formats)


def test_physical_sets_give_the_fitted_coefficients(data: Path) -> None:
    """For each of the eleven fits, its physical set gives its coefficients within 0.1 %."""
    fits = yaml.safe_load((data / "data/catalog/coefficients.yaml").read_text())["fits"]
    with (data / "data/catalog/coef_phys.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["model"] != "ALL"]
    assert len(rows) == len(fits) == 11
    for row in rows:
        profile = Profile(
            gpu=NAMES[row["gpu"]],
            status="fitted",
            layer_us=float(row["tL_us"]),
            memory_efficiency=float(row["eff_m"]),
            compute_efficiency=float(row["eff_c"]),
            attention_prefill_efficiency=float(row["e_ap"]),
            attention_decode_efficiency=float(row["e_ad"]),
            seq_us_per_layer=float(row["b_seq_us_per_layer"]),
            exponent=float(row["p-1"]) + 1,
            allreduce_latency_us=float(row["ar_alpha_us"]),
            allreduce_gb_per_s=float(row["ar_beta_GBs"]),
        )
        got = coefficients(profile, catalog.model(row["model"]), catalog.gpu(profile.gpu), int(row["tp"]))
        fit = fits[f"{row['gpu']}/{row['model']}/tp{row['tp']}"]
        assert got.fixed_s * 1e3 == pytest.approx(fit["t0_ms"], rel=1e-3)
        assert got.read_s * 1e3 == pytest.approx(fit["W_ms"], rel=1e-3)
        assert got.token_s * 1e6 == pytest.approx(fit["c_us_per_tok"], rel=1e-3)
        assert got.exponent == pytest.approx(fit["p"], rel=1e-3)
        assert got.linear_token_s * 1e6 == pytest.approx(fit["ar_us_per_tok"], rel=1e-3)
        assert got.prefill_s * 1e9 == pytest.approx(fit["a_p_ns"], rel=1e-3)
        assert got.context_s * 1e9 == pytest.approx(fit["a_d_ns"], rel=1e-3)
        assert got.seq_s * 1e6 == pytest.approx(fit["b_us_per_seq"], rel=1e-3)


def test_composed_steps_are_predicted(data: Path) -> None:
    """One set a GPU over 8B and 70B: mean error 2.5 % on H100, 2.4 on H200, 3.5 on A100, under half a roofline's."""
    errors = defaultdict(list)
    with (data / "data/kernels/composed_iterations.csv").open() as lines:
        for row in csv.DictReader(lines):
            decodes = int(row["D"])
            shape = Shape(
                int(row["Np"]),
                round(2 * float(row["S2"])),
                0,
                int(row["nseq"]) - decodes,
                decodes,
                int(float(row["K"])),
            )
            context = on(NAMES[row["gpu"]], row["model"], int(row["tp"]))
            # The composed steps add pure kernels up, so they cannot show what mixing costs.
            for name, kind in (("calibrated", Calibrated(attn_decode_mixed_factor=1)), ("roofline", Roofline())):
                key = (name, row["gpu"], row["model"], row["tp"])
                if key not in _BUILT:
                    _BUILT[key] = kind.build(context)
                predicted_ms = _BUILT[key].price(shape)[0] / 1e12
                errors[name, row["gpu"]].append(abs(predicted_ms / float(row["t"]) - 1) * 100)
    limits = {"H100-SXM": (2.6, 8.1), "H200": (2.5, 6.0), "A100-SXM-80": (3.5, 10.8)}
    for gpu, (mean, p95) in limits.items():
        assert np.mean(errors["calibrated", gpu]) <= mean
        assert np.percentile(errors["calibrated", gpu], 95) <= p95
        assert np.mean(errors["roofline", gpu]) > 2 * mean


_BUILT: dict[tuple[str, ...], FormCost] = {}


def test_decode_reads_and_prefill_multiplies() -> None:
    """Llama-3.1-8B on an H100: one decode or eight take about 6.1 ms, 8192 prompt tokens about 19 us each."""
    cost = build(Calibrated(), on("h100-sxm"))
    one, eight = (cost.price(Shape(0, 0, 0, 0, n, n * 100))[0] / 1e12 for n in (1, 8))
    assert one == pytest.approx(6.1, rel=0.05)
    assert eight < 1.02 * one
    prefill_ms = cost.price(Shape(8192, 0, 0, 1, 0, 0))[0] / 1e12
    assert prefill_ms / 8192 * 1e3 == pytest.approx(19.0, rel=0.02)


def test_smooth_maximum() -> None:
    """Far apart it is the larger; where both are 1 it is 2^(1/p); with an infinite exponent it is the plain maximum."""
    assert smooth_max(1.0, 1e-9, 2.0) == pytest.approx(1.0)
    assert smooth_max(1.0, 1.0, 2.0) == pytest.approx(2**0.5)
    assert smooth_max(3.0, 2.0, float("inf")) == 3.0
    assert smooth_max(2.0, 2.0, float("inf")) == 2.0


def test_experts_touched_set_the_weights_read() -> None:
    """Mixtral: one token reads 2 of 8 experts, two 3.5 on average, hundreds all; computing grows with the tokens."""
    profile = catalog.profile("h100-sxm")
    assert profile is not None
    profile = profile.model_copy(update={"moe": None})
    c = coefficients(profile, catalog.model("mixtral-8x7b"), catalog.gpu("h100-sxm"), 1)
    assert c.read_of(1) - c.read_s == pytest.approx(c.read_experts_s * 2 / 8)
    assert c.read_of(2) - c.read_s == pytest.approx(c.read_experts_s * 3.5 / 8)
    assert c.read_of(500) == pytest.approx(c.read_s + c.read_experts_s)
    assert c.token_s * profile.compute_efficiency * 989.4e12 == pytest.approx(2 * 12.6e9, rel=0.01)


def test_tokens_that_choose_alike_touch_as_many_experts_as_fewer_even_ones() -> None:
    """128 experts, 8 a token: with a correlation of 0.2, 16 tokens are as 16 / (1 + 0.2 * 15) = 4 even ones.

    64 tokens, four choices for every expert, are 4 * 4^1.5 = 32; none are more than they are. A GPU's correlation is
    for one that chooses all: it falls with the root of the share chosen, here 1/16.
    """
    c = coefficients(Profile(**PLAIN), catalog.model("qwen3-30b-a3b"), catalog.gpu("h100-sxm"))
    alike = replace(c, correlation=0.2, evenness_beyond=1.5)
    for tokens, as_even in ((1, 1), (16, 4), (64, 32), (4096, 4096)):
        assert alike.experts_read_of(tokens) == pytest.approx(c.experts_read_of(as_even), rel=1e-12)
    read = [alike.experts_read_of(n) for n in range(2000)]
    assert read == sorted(read)
    assert (read[0], read[1]) == (0.0, pytest.approx(c.read_experts_s * 8 / 128))
    beyond = replace(c, correlation=0.0, evenness_beyond=2.0)
    assert beyond.experts_read_of(20) == pytest.approx(c.experts_read_of(20))
    shipped, h100 = catalog.profile("h100-sxm"), catalog.gpu("h100-sxm")
    assert shipped is not None
    assert shipped.moe is not None
    own = coefficients(shipped, catalog.model("qwen3-30b-a3b"), h100)
    assert own.correlation == pytest.approx(shipped.moe.correlation / 4)


@given(st.floats(0, 1), st.floats(0.01, 2), st.sampled_from(["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"]))
def test_more_tokens_touch_more_experts(correlation: float, beyond: float, model: str) -> None:
    """However alike they choose, a token more never touches fewer experts, n never more than n even ones do."""
    even = coefficients(Profile(**PLAIN), catalog.model(model), catalog.gpu("h100-sxm"))
    alike = replace(even, correlation=correlation, evenness_beyond=beyond)
    read = [alike.experts_read_of(n) for n in range(1, 400)]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(read))
    assert all(some <= even.experts_read_of(n) * (1 + 1e-12) for n, some in enumerate(read, 1))


def test_a_step_that_prefills_and_decodes_starts_a_second_attention() -> None:
    """5 us a layer, 32 layers: 160 us more where both are in a step, nothing where one is."""
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm")
    one, two = (
        FormCost(coefficients(Profile(**PLAIN, mixed_us_per_layer=us), model, gpu), {}, Range()) for us in (0.0, 5.0)
    )
    prefill, decode = Shape(64, 64 * 64, 0, 1, 0, 0), Shape(0, 0, 0, 0, 4, 400)
    both = Shape(64, 64 * 64, 0, 1, 4, 400)
    assert [two.price(shape)[0] - one.price(shape)[0] for shape in (prefill, decode, both)] == [0, 0, 160 * 10**9]


def test_windowed_layers_stop_growing() -> None:
    """gpt-oss-20b: below its window of 128 a step is priced singly, beyond it only the 12 full layers grow."""
    model, cost = catalog.model("gpt-oss-20b"), build(Calibrated(), on("h100-sxm", "gpt-oss-20b"))
    assert isinstance(cost, FormCost)
    assert cost.price(Shape(0, 0, 0, 0, 2, 2 * 128 - 1))[1] is None
    growth = cost.price(Shape(0, 0, 0, 0, 2, 2 * 128))[1]
    assert growth == pytest.approx(2 * cost.coefficients.context_s * 1e15, rel=1e-6)
    profile = catalog.profile("h100-sxm")
    assert profile is not None
    read_s = 12 * model.kv_layer_bytes() / (profile.attention_decode_efficiency * 3350e9)
    assert cost.coefficients.context_s == pytest.approx(read_s, rel=1e-3)


def test_windowed_prefill_work() -> None:
    """Of a whole prompt of c tokens a window w attends to c*w - w*w/2 pairs, or to all c*c/2 of a shorter one."""
    assert windowed_s2(100, 100 * 100, 1024) == 5000
    assert windowed_s2(4096, 4096**2, 1024) == pytest.approx(4096 * 1024 - 1024**2 / 2)
    assert windowed_s2(2 * 4096, 2 * 4096**2, 1024) == pytest.approx(2 * (4096 * 1024 - 1024**2 / 2))


def test_mixed_steps_cost_decode_attention_twice_where_measured_so() -> None:
    """On an RTX 4090 decode attention takes 2.14 times as long in a step that also prefills."""
    cost = build(Calibrated(), on("rtx-4090"))
    pure = cost.price(Shape(0, 0, 0, 0, 64, 64_000))[1]
    mixed = cost.price(Shape(64, 64 * 64, 0, 1, 64, 64_000))[1]
    assert pure is not None
    assert mixed == pytest.approx(2.14 * pure, rel=1e-6)


def test_a_chunk_reads_its_past() -> None:
    """A chunk over 10,000 tokens of past costs the reading of their KV once, beside its quadratic work."""
    cost = build(Calibrated(), on("h100-sxm"))
    with_past, without = (cost.price(Shape(16, 0, past, 1, 0, 0))[0] for past in (10_000, 0))
    profile = catalog.profile("h100-sxm")
    assert profile is not None
    read_s = 10_000 * 131072 / (profile.attention_decode_efficiency * 3350e9)
    assert (with_past - without) / 1e15 == pytest.approx(read_s, rel=1e-4)


@pytest.mark.parametrize("gpu", ["l40s", "rtx-pro-6000", "rtx-4090", "h100-nvl"])
def test_tensor_parallelism_without_a_measured_link_is_refused(gpu: str) -> None:
    """No all-reduce was measured on these: the refusal names the two keys that allow it."""
    wanted = "tensor_parallel: 2: no all-reduce .* cost_model.allreduce_gb_per_s and cost_model.allreduce_latency_us"
    with pytest.raises(InvalidInput, match=wanted):
        build(Calibrated(), on(gpu, tp=2))
    pcie = Calibrated(allreduce_gb_per_s=12, allreduce_latency_us=15)
    assert build(pcie, on(gpu, tp=2)).price(Shape(0, 0, 0, 0, 1, 1))[0] > 0


def test_what_is_missing_or_unknown_is_refused() -> None:
    """No model, no GPU, a GPU without a profile, a profile that is not there: refused with the way out."""
    with pytest.raises(InvalidInput) as refused:
        build(Calibrated(), CostContext())
    assert [problem.path for problem in refused.value.problems] == ["model", "gpu"]
    own = Gpu(bf16_dense_tflops=100, hbm_gb_per_s=1000, memory_gib_cuda_visible=24)
    context = CostContext(catalog.model("qwen3-8b"), own)
    with pytest.raises(InvalidInput, match=r"no cost profile.*cost_model.profile.*roofline"):
        build(Calibrated(), context)
    with pytest.raises(InvalidInput, match="did you mean 'h100-sxm'"):
        build(Calibrated(profile="h100-sx"), context)
    borrowed = build(Calibrated(profile="h100-sxm"), context).describe()
    assert (borrowed["status"], borrowed["mape_percent"]) == ("borrowed", None)
    with pytest.raises(InvalidInput, match="must divide the 32 attention heads"):
        build(Calibrated(), on("h100-sxm", tp=3))


def test_a_profile_of_ones_own_stands_beside_the_scenario(tmp_path: Path) -> None:
    """A profile's file is found relative to the scenario's folder, and prices by its own figures."""
    shipped = catalog.profile("h100-sxm")
    assert shipped is not None
    own = shipped.model_copy(update={"layer_us": shipped.layer_us + 10})
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(own.model_dump(mode="json")))
    context = replace(on("h100-sxm"), folder=tmp_path)
    step = Shape(0, 0, 0, 0, 4, 400)
    slower, shipped_fs = (build(Calibrated(profile=name), context).price(step)[0] for name in ("mine.yaml", None))
    assert slower - shipped_fs == pytest.approx(32 * 10 * 10**9, abs=1)


def test_provenance() -> None:
    """A fitted profile reports its source, error and range; fp8 without fp8 data and experts add a caveat each."""
    about = build(Calibrated(), on("h100-sxm")).describe()
    assert about["status"] == "fitted"
    profile = catalog.profile("h100-sxm")
    assert profile is not None
    assert about["mape_percent"] == profile.mape_percent
    assert 2 < about["mape_percent"] < 4
    assert about["range"]["decode_seqs"] == [0, 512]
    assert build(Calibrated(), on("h100-sxm", "mixtral-8x7b", dtype="fp8")).describe()["notes"] == about["notes"]
    plain = len(build(Calibrated(), on("rtx-4090")).describe()["notes"])
    assert len(build(Calibrated(), on("rtx-4090", "mixtral-8x7b", dtype="fp8")).describe()["notes"]) == plain + 2


def test_iterations_outside_the_calibrated_range_are_told_apart() -> None:
    """Per dimension: 16,385 prompt tokens, 513 decodes, a mean context of 131,073; without decodes there is none."""
    cost = build(Calibrated(), on("h100-sxm"))
    prefill = np.array([16_384, 16_385, 0, 0, 0])
    decodes = np.array([0, 0, 512, 513, 2])
    context = np.array([0, 0, 512 * 1000, 513 * 1000, 2 * 131_073])
    outside = {name: flags.tolist() for name, flags in cost.outside(prefill, decodes, context).items()}
    assert outside == {
        "prefill_tokens": [False, True, False, False, False],
        "decode_seqs": [False, False, False, True, False],
        "context_per_seq": [False, False, False, False, True],
    }


def test_the_range_is_that_of_the_composed_steps(data: Path) -> None:
    """The ranges of the profiles of A100, H100 and H200 hold every composed step, and reach no further."""
    with (data / "data/kernels/composed_iterations.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    for theirs in ("A100-SXM-80", "H100-SXM", "H200"):
        mine = catalog.profile(NAMES[theirs])
        assert mine is not None
        of = [row for row in rows if row["gpu"] == theirs]
        assert mine.range.prefill_tokens == (0, max(int(row["Np"]) for row in of))
        assert mine.range.decode_seqs == (0, max(int(row["D"]) for row in of))
        contexts = [float(row["kl"]) for row in of if int(row["D"])]
        assert mine.range.context_per_seq == (min(contexts), max(contexts))


def test_roofline_is_a_hard_maximum() -> None:
    """Reading 8B in 16 bits at 80 % of 3350 GB/s bounds a decode; multiplying at 70 % of 989 TFLOP/s a long prefill."""
    model, cost = catalog.model("llama-3.1-8b"), build(Roofline(), on("h100-sxm"))
    assert isinstance(cost, FormCost)
    c = cost.coefficients
    read_s = (2 * model.layer_params + 2 * 128256 * 4096) / (0.8 * 3350e9)
    assert c.dense_s(1) == pytest.approx(read_s)
    assert c.dense_s(4096) - c.fixed_s == pytest.approx(4096 * 2 * model.layer_params / (0.7 * 989.4e12))
    assert cost.describe()["status"] == "datasheet"
    with pytest.raises(InvalidInput, match="allreduce_gb_per_s"):
        build(Roofline(), on("l40s", tp=2))
    assert build(Roofline(), on("h100-sxm", tp=2)).price(Shape(0, 0, 0, 0, 1, 1))[0] > 0
