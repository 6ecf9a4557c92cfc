"""A cost profile: the physical parameters of a GPU's kernels, fitted to measurements or borrowed from a like GPU."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from batchsim.catalog.entry import Entry


class Range(BaseModel):
    """What a profile was calibrated on, each as [least, most]. Outside it, a prediction is extrapolated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefill_tokens: tuple[int, int] | None = Field(None, description="prompt tokens of a step")
    decode_seqs: tuple[int, int] | None = Field(None, description="decoding sequences of a step")
    context_per_seq: tuple[float, float] | None = Field(None, description="mean context of the decoding sequences")


class Fp8(BaseModel):
    """Parameters of fp8 kernels where they were measured; absent ones are the 16-bit ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layer_us: float | None = Field(None, ge=0, description="gaps and small kernels a layer, us")
    memory_efficiency: float | None = Field(None, gt=0, description="share of peak bandwidth, reading weights")
    compute_efficiency: float | None = Field(None, gt=0, description="share of peak fp8 FLOP/s, dense layers")
    exponent: float | None = Field(None, ge=1, description="of the smooth maximum")
    sustained_slowdown: float | None = Field(None, ge=0, description="how much slower products are in long steps")


class Moe(BaseModel):
    """Parameters of grouped expert kernels where they were measured; absent ones are the dense layers'."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layer_us: float = Field(ge=0, description="gaps and routing of a layer of experts, us")
    memory_efficiency: float = Field(gt=0, description="share of peak bandwidth, reading experts")
    compute_efficiency: float = Field(gt=0, description="share of peak FLOP/s, multiplying experts")
    exponent: float = Field(ge=1, description="of the smooth maximum")
    correlation: float = Field(
        0.0, ge=0, le=1, description="how alike tokens choose experts, before the root of the share chosen: 0 is evenly"
    )
    evenness_beyond: float = Field(
        1.0, gt=0, le=2, description="exponent of tokens beyond one choice for every expert: 1 is evenly"
    )


class Profile(Entry):
    """Efficiencies and gaps of a GPU's kernels: one set for all models, tensor parallel sizes and batch shapes."""

    gpu: str = Field(description="the GPU it is for")
    status: Literal["fitted", "partly borrowed", "borrowed"] = Field(description="how far it was measured on this GPU")
    borrowed_from: str | None = Field(None, description="the GPU whose efficiencies stand in")

    layer_us: float = Field(ge=0, description="gaps between kernels a layer, us")
    memory_efficiency: float = Field(gt=0, description="share of peak bandwidth, reading weights")
    compute_efficiency: float = Field(gt=0, description="share of peak FLOP/s, dense layers")
    attention_prefill_efficiency: float = Field(gt=0, description="share of peak 16-bit FLOP/s, prefill attention")
    attention_decode_efficiency: float = Field(gt=0, description="share of peak bandwidth, decode attention")
    seq_us_per_layer: float = Field(ge=0, description="time a sequence and layer, us")
    exponent: float = Field(ge=1, allow_inf_nan=True, description="of the smooth maximum of reading and multiplying")
    sustained_slowdown: float = Field(
        0.0, ge=0, description="how much slower products are at 8192 tokens a step and more than at 4096"
    )
    allreduce_latency_us: float | None = Field(None, ge=0, description="of one all-reduce, us; absent: not measured")
    allreduce_gb_per_s: float | None = Field(None, gt=0, description="of all-reduce, 10^9 bytes/s; absent: unknown")
    allreduce_curve: dict[int, tuple[tuple[float, float], ...]] = Field(
        default_factory=dict, description="GPUs -> measured all-reduce, [bytes, us] points; other counts: the two above"
    )
    activation_factor: float = Field(
        0.0, ge=0, description="share of moving the inputs and outputs of products and attention that nothing hides"
    )
    attn_decode_mixed_factor: float = Field(1.0, ge=1, description="decode attention in a step that also prefills")
    mixed_us_per_layer: float = Field(
        0.0, ge=0, description="a second attention kernel a layer, in a step that prefills and decodes, us"
    )
    past_read_factor: float = Field(1.0, ge=0, description="how often a chunk reads its past KV, beside multiplying it")
    elementwise_us_per_layer: float = Field(0.0, ge=0, description="norm, rope and activation kernels a layer, us")
    elementwise_byte_factor: float = Field(0.0, ge=0, description="share of their bytes that reaches memory")
    attention_decode_fp8_efficiency: float | None = Field(
        None, gt=0, description="share of peak bandwidth, decode attention on an fp8 KV cache; absent: not measured"
    )
    moe: Moe | None = Field(None, description="grouped expert kernels; absent: as dense layers, not measured")
    moe_fp8: Moe | None = Field(None, description="the same with fp8 weights")
    fp8: Fp8 | None = Field(None, description="fp8 kernels; absent: 16-bit efficiencies on fp8 peaks, not measured")

    mape_percent: float | None = Field(None, ge=0, description="held-out mean absolute error of a step's time, %")
    p95_percent: float | None = Field(None, ge=0, description="95th percentile of that error, %")
    splits: dict[str, tuple[float, float]] = Field(
        default_factory=dict, description="held-out error of other splits: [mean absolute, 95th percentile], %"
    )
    calibrated_on: tuple[str, ...] = Field((), description="models and tensor parallel sizes of the data")
    range: Range = Field(default_factory=Range, description="the range of the data")
    notes: tuple[str, ...] = Field((), description="what to know before trusting it")
