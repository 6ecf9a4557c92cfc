"""A GPU as the simulator knows it: peaks and memory."""

from __future__ import annotations

from pydantic import Field, model_validator

from batchsim.catalog.entry import Entry

GIB = 2**30
GB = 10**9


class Gpu(Entry):
    """Datasheet peaks of a GPU (dense, no sparsity) and the memory that CUDA shows."""

    bf16_dense_tflops: float = Field(gt=0, description="peak of dense bf16/fp16 matrix products, 10^12 FLOP/s")
    fp8_dense_tflops: float | None = Field(None, gt=0, description="peak of dense fp8 products; absent: no fp8 units")
    hbm_gb_per_s: float = Field(gt=0, description="peak memory bandwidth, 10^9 bytes/s")
    memory_gb_datasheet: float | None = Field(None, gt=0, description="memory as sold, 10^9 bytes taken literally")
    memory_gib_cuda_visible: float | None = Field(None, gt=0, description="memory that CUDA reports, 2^30 bytes")
    nvlink_gb_per_s_bidir: float = Field(0.0, ge=0, description="link between GPUs, both directions, 10^9 bytes/s")

    @model_validator(mode="after")
    def _has_memory(self) -> Gpu:
        if self.memory_gib_cuda_visible is None and self.memory_gb_datasheet is None:
            raise ValueError("needs memory_gib_cuda_visible (or memory_gb_datasheet)")
        return self

    @property
    def visible_bytes(self) -> int:
        """Memory an engine can use: what CUDA reports (GiB) where known, else the datasheet's GB read as 10^9 bytes."""
        if self.memory_gib_cuda_visible is not None:
            return round(self.memory_gib_cuda_visible * GIB)
        assert self.memory_gb_datasheet is not None
        return round(self.memory_gb_datasheet * GB)

    def peak_flops(self, dtype: str) -> float:
        """Peak FLOP/s of matrix products; fp8 weights on a GPU without fp8 units compute in 16 bits."""
        if dtype == "fp8" and self.fp8_dense_tflops is not None:
            return self.fp8_dense_tflops * 1e12
        return self.bf16_dense_tflops * 1e12

    @property
    def bytes_per_s(self) -> float:
        """Peak memory bandwidth, bytes/s."""
        return self.hbm_gb_per_s * 1e9
