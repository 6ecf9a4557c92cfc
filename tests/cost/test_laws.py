"""Laws that every affine cost model keeps: positive, monotone, a run equals its steps, physics scales."""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim import catalog
from batchsim.catalog import Engine
from batchsim.cost import CostContext, CostModel, Shape, build, coefficients
from batchsim.cost.calibrated import Calibrated
from batchsim.cost.linear import Linear
from batchsim.cost.roofline import Roofline


class Batch(NamedTuple):
    """Prefill chunks as (past, tokens), and the contexts of the decoding sequences."""

    chunks: list[tuple[int, int]]
    contexts: list[int]

    def shape(self) -> Shape:
        """What a cost model sees of it."""
        return Shape(
            prefill_tokens=sum(tokens for _, tokens in self.chunks),
            prefill_s2_x2=sum(tokens * (2 * past + tokens) for past, tokens in self.chunks),
            prefill_past=sum(past for past, _ in self.chunks),
            prefill_seqs=len(self.chunks),
            decode_seqs=len(self.contexts),
            context_tokens=sum(self.contexts),
        )

    def grown(self) -> Batch:
        """One step of pure decode later."""
        return Batch(self.chunks, [context + 1 for context in self.contexts])


chunks = st.tuples(st.integers(0, 20_000), st.integers(1, 3_000))
contexts = st.integers(1, 50_000)
batches = st.builds(Batch, st.lists(chunks, max_size=4), st.lists(contexts, max_size=40)).filter(
    lambda batch: bool(batch.chunks or batch.contexts)
)
decode_batches = st.builds(Batch, st.just([]), st.lists(contexts, min_size=1, max_size=40))

MODELS = ["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "gemma-3-12b", "gpt-oss-20b"]
ENGINES = [catalog.engine("none"), catalog.engine("vllm-v0"), Engine(sample_us_per_seq=78, sample_vocab=152_000)]


def calibrated(
    model: str, gpu: str = "h100-sxm", tp: int = 1, engine: Engine = ENGINES[0], **formats: str
) -> CostModel:
    context = CostContext(catalog.model(model), catalog.gpu(gpu), tp, engine=engine, **formats)
    return build(Calibrated(), context)


costs = st.one_of(
    st.builds(
        calibrated,
        st.sampled_from(MODELS),
        st.sampled_from(["h100-sxm", "a100-80-sxm", "h200-sxm"]),
        st.sampled_from([1, 2, 4]),
        st.sampled_from(ENGINES),
        dtype=st.sampled_from(["bf16", "fp8"]),
        kv_dtype=st.sampled_from(["auto", "fp8"]),
    ),
    st.sampled_from(MODELS).map(
        lambda name: build(Roofline(), CostContext(catalog.model(name), catalog.gpu("h100-sxm"), 2))
    ),
    st.builds(
        lambda base, token, seq, context, engine: build(Linear(base, token, seq, context), CostContext(engine=engine)),
        st.floats(0.01, 50),
        st.floats(0, 1),
        st.floats(0, 5),
        st.floats(0, 0.01),
        st.sampled_from(ENGINES),
    ),
)


@given(costs, batches)
def test_positive_and_whole(cost: CostModel, batch: Batch) -> None:
    """Every step takes time, in whole femtoseconds."""
    first, growth = cost.price(batch.shape())
    assert first > 0
    assert isinstance(first, int)
    assert growth is None or (isinstance(growth, int) and growth >= 0)


@given(costs, batches, st.data())
def test_monotone_in_every_argument(cost: CostModel, batch: Batch, data: st.DataObject) -> None:
    """A longer chunk, a longer past, a longer context, one more chunk or sequence: never a shorter step."""
    before = cost.price(batch.shape())[0]
    more = [Batch([*batch.chunks, (0, 1)], batch.contexts), Batch(batch.chunks, [*batch.contexts, 1])]
    if batch.chunks:
        (past, tokens), *rest = batch.chunks
        step = data.draw(st.integers(1, 5_000))
        more += [Batch([(past + step, tokens), *rest], batch.contexts)]
        more += [Batch([(past, tokens + step), *rest], batch.contexts)]
    if batch.contexts:
        more += [Batch(batch.chunks, [batch.contexts[0] + data.draw(st.integers(1, 99_999)), *batch.contexts[1:]])]
    for larger in more:
        assert cost.price(larger.shape())[0] >= before, larger


@given(costs, decode_batches, st.integers(1, 50))
def test_a_run_equals_its_steps(cost: CostModel, batch: Batch, steps: int) -> None:
    """k steps in closed form, k*first + growth*k(k-1)/2, equal the k steps priced one by one, to the femtosecond."""
    first, growth = cost.price(batch.shape())
    if growth is None:
        return
    total = 0
    for _ in range(steps):
        total += cost.price(batch.shape())[0]
        batch = batch.grown()
    assert total == steps * first + growth * steps * (steps - 1) // 2


@given(costs, batches)
def test_affine_in_context(cost: CostModel, batch: Batch) -> None:
    """With every context one longer, a step takes exactly first + growth, in mixed steps too."""
    first, growth = cost.price(batch.shape())
    if growth is not None:
        assert cost.price(batch.grown().shape())[0] == first + growth


@given(st.sampled_from(MODELS), st.integers(1, 8192))
def test_continuous_at_the_knee(model: str, tokens: int) -> None:
    """One more token never adds more than multiplying it and reading the experts it may wake: no jump at the knee.

    Where clocks fall in long steps, each token there also slows the ones before it.
    """
    profile = catalog.profile("h100-sxm")
    assert profile is not None
    c = coefficients(profile, catalog.model(model), catalog.gpu("h100-sxm"))
    step = c.dense_s(tokens + 1) - c.dense_s(tokens)
    woken = c.read_of(tokens + 1) - c.read_of(tokens)
    multiply = (c.token_s + c.experts_token_s) * (1 + 3 * c.slowdown)
    assert 0 <= step <= (multiply + c.linear_token_s + woken) * (1 + 1e-6)


@given(st.sampled_from(MODELS), st.sampled_from([2, 4]), st.sampled_from(["bf16", "fp8"]))
def test_tensor_parallelism_scales_as_physics_says(model: str, tp: int, dtype: str) -> None:
    """tp GPUs read, multiply and attend in 1/tp of the time (but MLA's KV is not divided), and pay all-reduce."""
    profile, spec, gpu = catalog.profile("h100-sxm"), catalog.model(model), catalog.gpu("h100-sxm")
    assert profile is not None
    alone, shared = (coefficients(profile, spec, gpu, n, dtype) for n in (1, tp))
    for term in ("read_s", "read_experts_s", "token_s", "prefill_s", "prefill_window_s"):
        assert getattr(shared, term) * tp == pytest.approx(getattr(alone, term), rel=1e-12), term
    if spec.kv_lora_rank:
        assert alone.context_s >= shared.context_s >= alone.context_s / tp
    else:
        assert shared.context_s * tp == pytest.approx(alone.context_s, rel=1e-12)
    assert shared.allreduce_s(1) > 0 == alone.allreduce_s(1)
    assert shared.allreduce_s(8192) > shared.allreduce_s(1024) > shared.allreduce_s(1)
    assert shared.fixed_s > alone.fixed_s / tp


@given(st.sampled_from(MODELS))
def test_formats_scale_as_physics_says(model: str) -> None:
    """fp8 weights are read in half the time and multiplied at the fp8 peak; fp8 KV is read in half the time."""
    profile, spec, gpu = catalog.profile("h100-sxm"), catalog.model(model), catalog.gpu("h100-sxm")
    assert profile is not None
    assert gpu.fp8_dense_tflops is not None
    unmeasured = {"fp8": None, "attention_decode_fp8_efficiency": None, "moe": None, "moe_fp8": None}
    profile = profile.model_copy(update=unmeasured)
    wide, narrow = coefficients(profile, spec, gpu), coefficients(profile, spec, gpu, 1, "fp8", "fp8")
    assert narrow.read_s == pytest.approx(wide.read_s / 2)
    assert narrow.token_s == pytest.approx(wide.token_s * gpu.bf16_dense_tflops / gpu.fp8_dense_tflops)
    assert narrow.past_s == pytest.approx(wide.past_s / 2)
    assert wide.context_s >= narrow.context_s >= wide.context_s / 2
    unchanged = {"prefill_s", "prefill_window_s", "seq_s", "fixed_s"}
    assert {key: asdict(wide)[key] for key in unchanged} == {key: asdict(narrow)[key] for key in unchanged}


@settings(max_examples=50)
@given(costs, batches, st.integers(0, 5_000), st.integers(0, 200))
def test_host_time_is_added_exactly(cost: CostModel, batch: Batch, step_us: int, seq_us: int) -> None:
    """Host time adds its microseconds a step and a sequence, and nothing to the growth."""
    shape = batch.shape()
    first, growth = cost.price(shape)
    added = cost.with_host(step_us * 10**9, seq_us * 10**9)  # type: ignore[attr-defined]
    assert added.price(shape) == (first + (step_us + seq_us * (shape.prefill_seqs + shape.decode_seqs)) * 10**9, growth)
