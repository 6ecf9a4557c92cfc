"""How many KV blocks fit: GPU memory, less the weights, less what the engine needs for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from batchsim.catalog import Gpu, Model
from batchsim.errors import DoesNotFit, InvalidInput, problem

GIB = 2**30


@dataclass(frozen=True, slots=True)
class KvSettings:
    """The keys of `kv_cache` that decide the size of the pool."""

    block_size: Annotated[int, Field(ge=1, description="tokens of a block")] = 16
    gpu_memory_utilization: Annotated[
        float, Field(gt=0, le=1, description="share of the visible memory that the engine takes")
    ] = 0.92
    overhead_gib: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="activations, CUDA graphs and runtime on each GPU, GiB")
    ] = 1.5
    dtype: Annotated[Literal["auto", "bf16", "fp16", "fp8"], Field(description="of the KV cache; auto: 16 bits")] = (
        "auto"
    )
    num_blocks: Annotated[
        int | None, Field(ge=1, description="blocks that requests can use; wins over the estimate")
    ] = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """The KV pool of a replica; bytes are of one GPU. Without a model and a GPU they are None."""

    source: Literal["override", "estimate"]
    blocks: int
    block_size: int
    bytes_per_token: int | None = None
    visible_bytes: int | None = None
    budget_bytes: int | None = None
    """visible_bytes * gpu_memory_utilization"""
    weights_bytes: int | None = None
    overhead_bytes: int | None = None
    kv_bytes: int | None = None
    """What the blocks take."""

    @property
    def tokens(self) -> int:
        """Tokens that the pool holds."""
        return self.blocks * self.block_size


def blocks_in(available_bytes: int, block_size: int, bytes_per_token: int) -> int:
    """Whole blocks in so many bytes."""
    return max(0, available_bytes) // (block_size * bytes_per_token)


def kv_capacity(
    model: Model | None,
    gpu: Gpu | None,
    *,
    dtype: str = "bf16",
    tensor_parallel: int = 1,
    settings: KvSettings = KvSettings(),
) -> Capacity:
    """The KV pool of one replica of `model` on `tensor_parallel` GPUs.

    blocks = floor((visible * utilization - weights - overhead) / (block_size * KV bytes per token of a GPU)).
    `num_blocks` wins over that, whether or not the estimate fits. DoesNotFit, with the bytes, where not one block fits.
    """
    if model is None or gpu is None:
        if settings.num_blocks is not None:
            return Capacity("override", settings.num_blocks, settings.block_size)
        missing = [key for key, value in (("model", model), ("gpu", gpu)) if value is None]
        rule = "missing: the size of the KV cache needs it, or give kv_cache.num_blocks"
        raise InvalidInput([problem(key, None, rule) for key in missing])
    per_token = model.kv_bytes_per_token(settings.dtype, tensor_parallel)
    budget = int(gpu.visible_bytes * settings.gpu_memory_utilization)
    weights = model.weights_bytes(dtype, tensor_parallel)
    overhead = round(settings.overhead_gib * GIB)
    blocks = settings.num_blocks or blocks_in(budget - weights - overhead, settings.block_size, per_token)
    if not blocks:
        sizes = (
            f"{weights:,} bytes of {dtype} weights and {overhead:,} of overhead against {budget:,} bytes "
            f"({settings.gpu_memory_utilization:g} of {gpu.visible_bytes:,})"
        )
        block = settings.block_size * per_token
        short = weights + overhead + block - budget
        left = (
            f"one KV block takes {block:,}; {short:,} bytes ({short / GIB:.1f} GiB) too few: "
            "raise tensor_parallel, or take a smaller dtype or a larger gpu"
        )
        rule = f"does not fit on {gpu.name} with tensor_parallel {tensor_parallel}: {sizes}; {left}"
        raise DoesNotFit([problem("model", model.name, rule)])
    return Capacity(
        source="estimate" if settings.num_blocks is None else "override",
        blocks=blocks,
        block_size=settings.block_size,
        bytes_per_token=per_token,
        visible_bytes=gpu.visible_bytes,
        budget_bytes=budget,
        weights_bytes=weights,
        overhead_bytes=overhead,
        kv_bytes=blocks * settings.block_size * per_token,
    )
