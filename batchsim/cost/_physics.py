"""From a GPU's physical parameters, a model and its number formats to the coefficients of an iteration's time.

    T = fixed + smoothmax(read(N), token * N) + linear_token * N + prefill * S2 + past * P + context * K + seq * n

N: prefill tokens + decoding sequences. S2: sum of chunk * (past + chunk/2). P: tokens that chunks find in the cache.
K: contexts of the decoding sequences, summed. n: sequences in the batch. read(N) is the time to read the weights that N
tokens touch, token * N the time to multiply them; docs/explanation/cost-model.md derives each term.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchsim.catalog import ACTIVATION_BYTES, Gpu, Model, Profile, weight_bytes


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
    """All-reduce and elementwise kernels, a token."""
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

    def read_of(self, tokens: int) -> float:
        """Time to read the weights that so many tokens touch: of the experts, those expected to be chosen, seconds.

        With each token choosing k of E experts evenly, n tokens are expected to touch E * (1 - (1 - k/E)^n).
        """
        if not self.experts:
            return self.read_s
        touched = 1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens
        return self.read_s + self.read_experts_s * touched

    def dense_s(self, tokens: int) -> float:
        """Time of the layers' matrix products and of all that grows with tokens alone, seconds."""
        joined = smooth_max(self.read_of(tokens), self.token_s * tokens, self.exponent)
        return self.fixed_s + joined + self.linear_token_s * tokens


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
    tp, memory, compute, layer_us, exponent = tensor_parallel, *_dense_efficiencies(profile, dtype)
    bandwidth, flops = memory * gpu.bytes_per_s, compute * gpu.peak_flops(dtype)
    head_s = ACTIVATION_BYTES * model.vocab * model.hidden / (tp * bandwidth)
    latency_s, ring_s = _allreduce(profile, model, tp)
    windowed = model.windowed_layers
    full = model.layers - windowed
    prefill_s, context_s, past_s = _attention_layer(profile, model, gpu, tp, kv_dtype)
    return Coefficients(
        fixed_s=model.layers * (layer_us + profile.elementwise_us_per_layer) * 1e-6 + head_s + latency_s,
        read_s=model.always_params * weight_bytes(dtype) / (tp * bandwidth),
        read_experts_s=model.routed_params * model.expert_weight_bytes(dtype) / (tp * bandwidth),
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        token_s=2 * model.active_layer_params / (tp * flops),
        exponent=exponent,
        linear_token_s=ring_s + profile.elementwise_byte_factor * _elementwise_bytes(model, tp) / bandwidth,
        prefill_s=full * prefill_s,
        prefill_window_s=windowed * prefill_s,
        context_s=full * context_s,
        context_window_s=windowed * context_s,
        past_s=full * past_s,
        past_window_s=windowed * past_s,
        seq_s=model.layers * profile.seq_us_per_layer * 1e-6,
        window=model.sliding_window if windowed else None,
        mixed_factor=profile.attn_decode_mixed_factor,
    )


def _dense_efficiencies(profile: Profile, dtype: str) -> tuple[float, float, float, float]:
    """Memory efficiency, compute efficiency, microseconds a layer and exponent of the dense layers."""
    own = profile.fp8 if dtype == "fp8" else None
    keys = ("memory_efficiency", "compute_efficiency", "layer_us", "exponent")
    values = [getattr(own, key, None) for key in keys]
    memory, compute, layer_us, exponent = (
        getattr(profile, key) if value is None else value for key, value in zip(keys, values, strict=True)
    )
    return float(memory), float(compute), float(layer_us), float(exponent)


def _allreduce(profile: Profile, model: Model, tp: int) -> tuple[float, float]:
    """Seconds a step and seconds a token of the two all-reduces of each layer."""
    if tp == 1:
        return 0.0, 0.0
    assert profile.allreduce_latency_us is not None
    assert profile.allreduce_gb_per_s is not None
    moved_bytes = ACTIVATION_BYTES * model.hidden * 2 * (tp - 1) / tp
    per_token_s = 2 * model.layers * moved_bytes / (profile.allreduce_gb_per_s * 1e9)
    return 2 * model.layers * profile.allreduce_latency_us * 1e-6, per_token_s


def _attention_layer(profile: Profile, model: Model, gpu: Gpu, tp: int, kv_dtype: str) -> tuple[float, float, float]:
    """Attention of one layer: seconds a unit of S2, a decoded context token, a token of a chunk's past.

    Decode attention takes the longer of reading the KV and multiplying it; MLA, whose heads share one compressed
    KV, comes near the second.
    """
    flops = profile.attention_prefill_efficiency * gpu.bf16_dense_tflops * 1e12
    bandwidth = profile.attention_decode_efficiency * gpu.bytes_per_s
    heads = model.heads / tp
    if model.kv_lora_rank:
        rank, rope = model.kv_lora_rank, model.qk_rope_head_dim
        prefill_flops = 2 * heads * (model.qk_nope_head_dim + rope + model.v_head_dim)
        decode_flops = 2 * heads * (2 * rank + rope)
    else:
        prefill_flops = decode_flops = 4 * heads * model.head_dim
    read_s = model.kv_layer_bytes(kv_dtype, tp) / bandwidth
    return prefill_flops / flops, max(read_s, decode_flops / flops), profile.past_read_factor * read_s


def _elementwise_bytes(model: Model, tp: int) -> float:
    """Bytes that norms, rope and activations move for a token, all layers."""
    norms = 2 * 4 * model.hidden
    rope = 2 * (model.heads + model.kv_heads) * model.head_dim / tp
    width = model.experts_per_token * model.moe_intermediate if model.experts else model.intermediate
    return float(model.layers * ACTIVATION_BYTES * (norms + rope + 3 * width / tp))
