"""From a GPU's physical parameters, a model and its number formats to the coefficients of an iteration's time.

    T = fixed + smoothmax(read(N), token * N) + linear_token * N + prefill * S2 + past * P + context * K + seq * n
        + mixed, in a step that prefills and decodes

N: prefill tokens + decoding sequences. S2: sum of chunk * (past + chunk/2). P: tokens that chunks find in the cache.
K: contexts of the decoding sequences, summed. n: sequences in the batch. read(N) is the time to read the weights that N
tokens touch, token * N the time to multiply them; docs/explanation/cost-model.md derives each term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from batchsim.catalog import ACTIVATION_BYTES, Gpu, Model, Moe, Profile, weight_bytes

SUSTAINED_TOKENS = 4096
"""A step of more tokens runs long enough for clocks to fall; at twice as many they have fallen."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The coefficients of one model on one kind of GPU, in seconds."""

    fixed_s: float
    """Gaps between layers, reading the output embedding, latencies of all-reduce."""
    read_s: float
    """Reading the weights that every step reads."""
    read_experts_s: float
    """Reading all routed experts."""
    experts: int
    experts_per_token: int
    token_s: float
    """Multiplying the weights, a token."""
    exponent: float
    linear_token_s: float
    """All-reduce, elementwise kernels, inputs and outputs of the products and of attention, a token."""
    prefill_s: float
    """Prefill attention of the layers without a window, a unit of S2; `prefill_window_s` those with one."""
    prefill_window_s: float
    context_s: float
    """Decode attention of the layers without a window, a context token; `context_window_s` those with one."""
    context_window_s: float
    past_s: float
    past_window_s: float
    """Reading a chunk's past, a token of it."""
    seq_s: float
    window: int | None
    mixed_factor: float
    allreduce: tuple[tuple[float, float], ...] = ()
    """Measured all-reduces of all layers: (tokens, seconds), in place of a latency and a bandwidth."""
    experts_token_s: float = 0.0
    """Multiplying the routed experts, a token, where their kernels were measured apart; not in `token_s` then."""
    experts_exponent: float | None = None
    """Of the smooth maximum of the routed experts; None: they are joined with the dense layers."""
    correlation: float = 0.0
    """Of the experts that two tokens choose; 0: independently and evenly."""
    evenness_beyond: float = 1.0
    slowdown: float = 0.0
    mixed_s: float = 0.0
    """Starting a second attention kernel, in a step that prefills and decodes."""

    def read_of(self, tokens: int) -> float:
        """Time to read the weights that so many tokens touch: of the experts, those expected to be chosen, seconds.

        With each token choosing k of E experts evenly, n tokens are expected to touch E * (1 - (1 - k/E)^n).
        """
        return self.read_s + self.experts_read_of(tokens) if self.experts else self.read_s

    def experts_read_of(self, tokens: int) -> float:
        """Time to read the experts that so many tokens are expected to touch, seconds.

        Tokens choose alike: n touch as many experts as n / (1 + correlation * (n - 1)) that choose independently. From
        a choice for every expert on, that number grows as n^evenness_beyond; it never exceeds n.
        """
        chosen = self.experts_per_token / self.experts
        load = tokens * chosen
        few = tokens if load <= 1.0 else 1.0 / chosen
        independent = few / (1.0 + self.correlation * (few - 1.0))
        if load > 1.0:
            independent = min(independent * load**self.evenness_beyond, tokens)
        missed: float = (1.0 - chosen) ** independent
        return self.read_experts_s * (1.0 - missed)

    def sustained(self, tokens: int) -> float:
        """How much slower products are in a long step: clocks fall under sustained load, and operands leave the L2."""
        return 1.0 + self.slowdown * min(max(tokens / SUSTAINED_TOKENS - 1.0, 0.0), 1.0)

    def allreduce_s(self, tokens: int) -> float:
        """All-reduces of so many tokens, off the measured curve: linear between points, its last slope beyond."""
        points = self.allreduce
        if not points:
            return 0.0
        if tokens <= points[0][0]:
            return points[0][1]
        (n0, t0), (n1, t1) = points[-2:]
        for low, high in pairwise(points):
            if tokens <= high[0]:
                (n0, t0), (n1, t1) = low, high
                break
        return t0 + (t1 - t0) * (tokens - n0) / (n1 - n0)

    def dense_s(self, tokens: int) -> float:
        """Time of the layers' matrix products and of all that grows with tokens alone, seconds."""
        work = tokens * self.sustained(tokens)
        if self.experts_exponent is None:
            joined = smooth_max(self.read_of(tokens), self.token_s * work, self.exponent)
        else:
            experts = self.experts_read_of(tokens), self.experts_token_s * tokens
            joined = smooth_max(self.read_s, self.token_s * work, self.exponent)
            joined += smooth_max(*experts, self.experts_exponent)
        return self.fixed_s + joined + self.linear_token_s * tokens + self.allreduce_s(tokens)


def smooth_max(a: float, b: float, exponent: float) -> float:
    """(a^p + b^p)^(1/p): the larger where they differ, above both where they meet; the plain maximum for infinite p."""
    low, high = (a, b) if a < b else (b, a)
    if high <= 0.0:
        return 0.0
    return high * float((1.0 + (low / high) ** exponent) ** (1.0 / exponent))


def coefficients(
    profile: Profile, model: Model, gpu: Gpu, tensor_parallel: int = 1, dtype: str = "bf16", kv_dtype: str = "auto"
) -> Coefficients:
    """The coefficients of `model` shared by `tensor_parallel` GPUs.

    The all-reduce parameters of the profile must be there when there is more than one GPU.
    """
    tp = tensor_parallel
    memory, compute, layer_us, exponent, slowdown = dense_efficiencies(profile, dtype)
    bandwidth, flops = memory * gpu.bytes_per_s, compute * gpu.peak_flops(dtype)
    head_s = ACTIVATION_BYTES * model.vocab * model.hidden / (tp * bandwidth)
    latency_s, ring_s = _allreduce(profile, model, tp)
    windowed = model.windowed_layers
    full = model.layers - windowed
    prefill_s, context_s, past_s = _attention_layer(profile, model, gpu, tp, kv_dtype)
    moe = (profile.moe_fp8 if dtype == "fp8" else profile.moe) if model.experts else None
    layers_us = model.layers * (layer_us + profile.elementwise_us_per_layer)
    layers_us += model.moe_layers * moe.layer_us if moe else 0.0
    moved_bytes = profile.elementwise_byte_factor * _elementwise_bytes(model, tp)
    moved_bytes += profile.activation_factor * _activation_bytes(model, tp, dtype)
    return Coefficients(
        fixed_s=layers_us * 1e-6 + head_s + latency_s,
        read_s=model.always_params * weight_bytes(dtype) / (tp * bandwidth),
        read_experts_s=model.routed_params
        * model.expert_weight_bytes(dtype)
        / (tp * (moe.memory_efficiency * gpu.bytes_per_s if moe else bandwidth)),
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        token_s=2 * (model.always_params if moe else model.active_layer_params) / (tp * flops),
        exponent=exponent,
        linear_token_s=ring_s + moved_bytes / bandwidth,
        prefill_s=full * prefill_s,
        prefill_window_s=windowed * prefill_s,
        context_s=full * context_s,
        context_window_s=windowed * context_s,
        past_s=full * past_s,
        past_window_s=windowed * past_s,
        seq_s=model.layers * profile.seq_us_per_layer * 1e-6,
        window=model.sliding_window if windowed else None,
        mixed_factor=profile.attn_decode_mixed_factor,
        allreduce=_allreduce_points(profile, model, tp),
        slowdown=slowdown,
        mixed_s=model.layers * profile.mixed_us_per_layer * 1e-6,
        **(_experts(moe, model, gpu, tp, dtype) if moe else {}),
    )


def _experts(moe: Moe, model: Model, gpu: Gpu, tp: int, dtype: str) -> dict[str, float]:
    """The coefficients that routed experts have of their own where their kernels were measured."""
    active = model.active_layer_params - model.always_params
    return {
        "experts_token_s": 2 * active / (tp * moe.compute_efficiency * gpu.peak_flops(dtype)),
        "experts_exponent": moe.exponent,
        "correlation": moe.correlation * math.sqrt(model.experts_per_token / model.experts),
        "evenness_beyond": moe.evenness_beyond,
    }


def dense_efficiencies(profile: Profile, dtype: str) -> tuple[float, float, float, float, float]:
    """Memory efficiency, compute efficiency, microseconds a layer, exponent and slowdown of the dense layers."""
    own = profile.fp8 if dtype == "fp8" else None
    keys = ("memory_efficiency", "compute_efficiency", "layer_us", "exponent", "sustained_slowdown")
    values = [getattr(own, key, None) for key in keys]
    memory, compute, layer_us, exponent, slowdown = (
        getattr(profile, key) if value is None else value for key, value in zip(keys, values, strict=True)
    )
    return float(memory), float(compute), float(layer_us), float(exponent), float(slowdown)


def _allreduce(profile: Profile, model: Model, tp: int) -> tuple[float, float]:
    """Seconds a step and seconds a token of the two all-reduces of each layer."""
    if tp == 1 or tp in profile.allreduce_curve:
        return 0.0, 0.0
    assert profile.allreduce_latency_us is not None
    assert profile.allreduce_gb_per_s is not None
    moved_bytes = ACTIVATION_BYTES * model.hidden * 2 * (tp - 1) / tp
    per_token_s = 2 * model.layers * moved_bytes / (profile.allreduce_gb_per_s * 1e9)
    return 2 * model.layers * profile.allreduce_latency_us * 1e-6, per_token_s


def _allreduce_points(profile: Profile, model: Model, tp: int) -> tuple[tuple[float, float], ...]:
    """Tokens and seconds of the two all-reduces of each layer, where they were measured on so many GPUs."""
    points = profile.allreduce_curve.get(tp, ())
    row_bytes = ACTIVATION_BYTES * model.hidden
    return tuple((size / row_bytes, 2 * model.layers * us * 1e-6) for size, us in points)


def _attention_layer(profile: Profile, model: Model, gpu: Gpu, tp: int, kv_dtype: str) -> tuple[float, float, float]:
    """Attention of one layer: seconds a unit of S2, a decoded context token, a token of a chunk's past.

    Decode attention takes the longer of reading the KV and multiplying it; MLA, whose heads share one compressed
    KV, comes near the second.
    """
    flops = profile.attention_prefill_efficiency * gpu.bf16_dense_tflops * 1e12
    efficiency = profile.attention_decode_efficiency
    if kv_dtype == "fp8" and profile.attention_decode_fp8_efficiency is not None:
        efficiency = profile.attention_decode_fp8_efficiency
    bandwidth = efficiency * gpu.bytes_per_s
    heads = model.heads / tp
    if model.kv_lora_rank:
        rank, rope = model.kv_lora_rank, model.qk_rope_head_dim
        prefill_flops = 2 * heads * (model.qk_nope_head_dim + rope + model.v_head_dim)
        decode_flops = 2 * heads * (2 * rank + rope)
    else:
        prefill_flops = decode_flops = 4 * heads * model.head_dim
    read_s = model.kv_layer_bytes(kv_dtype, tp) / bandwidth
    return prefill_flops / flops, max(read_s, decode_flops / flops), profile.past_read_factor * read_s


def _activation_bytes(model: Model, tp: int, dtype: str) -> float:
    """Bytes that matrix products and attention of all layers read and write for a token; routed experts left out.

    Gate and up are one product, so are query, key and value. Inputs of products are as narrow as the weights, the rest
    16 bits.
    """
    h, ffn, moe = model.hidden, model.ffn_matrices, model.moe_layers
    if model.kv_lora_rank:
        rank, rope, query = model.kv_lora_rank, model.qk_rope_head_dim, model.q_lora_rank
        value, nope = model.heads * model.v_head_dim / tp, model.heads * model.qk_nope_head_dim / tp
        read = h + query + rank + value
        written = query + nope + model.heads * rope / tp + rank + rope + nope + value + h
        attention = nope + model.heads * rope / tp + rank + rope + value
    else:
        value, kv = model.heads * model.head_dim / tp, max(1.0, model.kv_heads / tp) * model.head_dim
        read, written = h + value, value + 2 * kv + h
        attention = 2 * value + 2 * kv
    read, written = model.layers * read, model.layers * (written + attention)
    for layers, width in (
        (model.layers - moe, model.intermediate),
        (moe, model.shared_experts * model.moe_intermediate),
    ):
        if width:
            read += layers * (h + width / tp)
            written += layers * ((ffn - 1) * width / tp + h)
    return read * weight_bytes(dtype) + written * ACTIVATION_BYTES


def _elementwise_bytes(model: Model, tp: int) -> float:
    """Bytes that norms, rope and activations move for a token, all layers."""
    norms = 2 * 4 * model.hidden
    rope = 2 * (model.heads + model.kv_heads) * model.head_dim / tp
    width = model.experts_per_token * model.moe_intermediate if model.experts else model.intermediate
    return float(model.layers * ACTIVATION_BYTES * (norms + rope + 3 * width / tp))
