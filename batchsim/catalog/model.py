"""A transformer's architecture, and what follows from it: parameters, weight bytes, KV bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from batchsim.catalog.entry import Entry
from batchsim.errors import InvalidInput, problem

Dtype = Literal["bf16", "fp16", "fp8"]
KvDtype = Literal["auto", "bf16", "fp16", "fp8"]

ACTIVATION_BYTES = 2
"""Activations stay in 16 bits, under fp8 weights too."""


def weight_bytes(dtype: str) -> int:
    """Bytes of one weight of the layers."""
    return 1 if dtype == "fp8" else 2


def kv_bytes(kv_dtype: str) -> int:
    """Bytes of one element of the KV cache; `auto` is the activations' 16 bits, under fp8 weights too."""
    return 1 if kv_dtype == "fp8" else 2


class Model(Entry):
    """A decoder-only transformer: dense or mixture of experts, MHA, GQA or MLA, with or without sliding windows."""

    layers: int = Field(ge=1, description="transformer layers")
    hidden: int = Field(ge=1, description="width of the residual stream")
    heads: int = Field(ge=1, description="query heads")
    kv_heads: int = Field(ge=1, description="key/value heads")
    head_dim: int = Field(ge=1, description="size of a head; not always hidden / heads, so it must be given")
    intermediate: int = Field(ge=1, description="width of a dense feed-forward layer")
    ffn_matrices: int = Field(3, ge=2, le=3, description="matrices of a feed-forward layer: 3 gated, 2 plain")
    vocab: int = Field(ge=1, description="vocabulary, rows of the embedding")
    tie_embeddings: bool = Field(False, description="input and output embeddings are one matrix")
    max_position_embeddings: int = Field(ge=1, description="longest context, tokens")
    experts: int = Field(0, ge=0, description="routed experts a layer; 0: dense")
    experts_per_token: int = Field(0, ge=0, description="routed experts that compute each token")
    moe_intermediate: int = Field(0, ge=0, description="width of one expert")
    shared_experts: int = Field(0, ge=0, description="experts that compute every token")
    first_k_dense: int = Field(0, ge=0, description="leading layers that are dense in a mixture of experts")
    expert_bits: float | None = Field(None, gt=0, le=16, description="stored bits of an expert weight (MXFP4: 4.25)")
    kv_lora_rank: int = Field(0, ge=0, description="MLA: width of the compressed KV; 0: no MLA")
    q_lora_rank: int = Field(0, ge=0, description="MLA: width of the compressed query; 0: not compressed")
    qk_rope_head_dim: int = Field(0, ge=0, description="MLA: rotary part of a head")
    qk_nope_head_dim: int = Field(0, ge=0, description="MLA: other part of a head")
    v_head_dim: int = Field(0, ge=0, description="MLA: value part of a head")
    sliding_window: int | None = Field(None, ge=1, description="tokens that a windowed layer attends to")
    sliding_layers: int | None = Field(None, ge=0, description="layers with the window; absent: all, if there is one")
    params_published_b: float | None = Field(None, gt=0, description="published parameters, 10^9; a check, not used")

    @model_validator(mode="after")
    def _coherent(self) -> Model:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.experts and not (0 < self.experts_per_token <= self.experts and self.moe_intermediate):
            raise ValueError("a mixture of experts needs experts_per_token (at most experts) and moe_intermediate")
        if not self.experts and (self.experts_per_token or self.moe_intermediate or self.shared_experts):
            raise ValueError("experts_per_token, moe_intermediate and shared_experts need experts")
        if self.first_k_dense > self.layers:
            raise ValueError(f"first_k_dense must be at most layers ({self.layers})")
        if self.kv_lora_rank and not (self.qk_rope_head_dim and self.qk_nope_head_dim and self.v_head_dim):
            raise ValueError("MLA (kv_lora_rank) needs qk_rope_head_dim, qk_nope_head_dim and v_head_dim")
        if (self.sliding_layers or 0) > (self.layers if self.sliding_window else 0):
            raise ValueError(f"sliding_layers needs sliding_window, and is at most layers ({self.layers})")
        return self

    # ---- parameters

    @property
    def attention_params(self) -> int:
        """Attention weights of one layer."""
        h, heads = self.hidden, self.heads
        if not self.kv_lora_rank:
            return h * self.head_dim * (2 * heads + 2 * self.kv_heads)
        qk = self.qk_nope_head_dim + self.qk_rope_head_dim
        query = self.q_lora_rank * (h + heads * qk) if self.q_lora_rank else h * heads * qk
        down = h * (self.kv_lora_rank + self.qk_rope_head_dim)
        up = self.kv_lora_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
        return query + down + up + heads * self.v_head_dim * h

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.first_k_dense if self.experts else 0

    @property
    def routed_params(self) -> int:
        """Weights of all routed experts, all layers."""
        return self.moe_layers * self.experts * self.ffn_matrices * self.hidden * self.moe_intermediate

    @property
    def always_params(self) -> int:
        """Weights of the layers that every step reads: attention, dense feed-forward, shared experts, routers."""
        shared = self.shared_experts * self.ffn_matrices * self.hidden * self.moe_intermediate
        dense = (self.layers - self.moe_layers) * self.ffn_matrices * self.hidden * self.intermediate
        return self.layers * self.attention_params + dense + self.moe_layers * (shared + self.hidden * self.experts)

    @property
    def layer_params(self) -> int:
        """Weights of all layers, embeddings left out."""
        return self.always_params + self.routed_params

    @property
    def active_layer_params(self) -> float:
        """Weights of the layers that multiply one token."""
        share = self.experts_per_token / self.experts if self.experts else 0.0
        return self.always_params + share * self.routed_params

    @property
    def embedding_params(self) -> int:
        """Input and output embeddings; one matrix where they are tied."""
        return self.vocab * self.hidden * (1 if self.tie_embeddings else 2)

    @property
    def parameters(self) -> int:
        """All weights (norms and biases, below 0.1 %, left out)."""
        return self.layer_params + self.embedding_params

    @property
    def active_parameters(self) -> float:
        """Weights that one token meets, embeddings included."""
        return self.active_layer_params + self.embedding_params

    # ---- bytes

    @property
    def windowed_layers(self) -> int:
        """Layers with a sliding window."""
        if self.sliding_window is None:
            return 0
        return self.layers if self.sliding_layers is None else self.sliding_layers

    def expert_weight_bytes(self, dtype: str) -> float:
        """Bytes of one weight of a routed expert."""
        return self.expert_bits / 8 if self.expert_bits else float(weight_bytes(dtype))

    def weights_bytes(self, dtype: str, tensor_parallel: int = 1) -> int:
        """Bytes of weights on each GPU. Under fp8 the embeddings stay in 16 bits, as in published fp8 checkpoints."""
        self.check_tensor_parallel(tensor_parallel)
        layers = self.always_params * weight_bytes(dtype) + self.routed_params * self.expert_weight_bytes(dtype)
        return round((layers + self.embedding_params * ACTIVATION_BYTES) / tensor_parallel)

    def kv_bytes_per_token(self, kv_dtype: str = "auto", tensor_parallel: int = 1) -> int:
        """KV bytes of one token on each GPU.

        Heads are shared out, but a rank holds at least one; the compressed KV of MLA is held by every rank.
        Windowed layers count in full, as where every layer gets the same blocks.
        """
        return self.layers * self.kv_layer_bytes(kv_dtype, tensor_parallel)

    def kv_layer_bytes(self, kv_dtype: str = "auto", tensor_parallel: int = 1) -> int:
        """KV bytes of one token in one layer on each GPU."""
        self.check_tensor_parallel(tensor_parallel)
        if self.kv_lora_rank:
            return (self.kv_lora_rank + self.qk_rope_head_dim) * kv_bytes(kv_dtype)
        return 2 * max(1, self.kv_heads // tensor_parallel) * self.head_dim * kv_bytes(kv_dtype)

    def check_tensor_parallel(self, tensor_parallel: int) -> None:
        """Raise InvalidInput where the heads cannot be shared out over so many GPUs."""
        tp, kv = tensor_parallel, self.kv_heads
        if tp < 1:
            raise InvalidInput([problem("tensor_parallel", tp, "must be at least 1")])
        if self.heads % tp:
            rule = f"must divide the {self.heads} attention heads of {self.name}"
            raise InvalidInput([problem("tensor_parallel", tp, rule)])
        if not self.kv_lora_rank and kv % tp and tp % kv:
            rule = f"must divide the {kv} KV heads of {self.name}, or be a multiple of them"
            raise InvalidInput([problem("tensor_parallel", tp, rule)])
