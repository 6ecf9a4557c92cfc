"""The roofline from a datasheet: what a GPU could do, without gaps and without measurements."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any

from pydantic import Field

from batchsim.catalog import Gpu, Profile, Range
from batchsim.cost._form import FormCost
from batchsim.cost._physics import coefficients
from batchsim.cost.model import CostContext
from batchsim.errors import InvalidInput, problem

Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The larger of reading and multiplying the weights at a share of the datasheet's peaks, plus attention."""

    compute_efficiency: Annotated[Share, Field(description="share of peak FLOP/s reached")] = 0.7
    memory_efficiency: Annotated[Share, Field(description="share of peak memory bandwidth reached")] = 0.8
    allreduce_gb_per_s: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
        Field(description="bandwidth of all-reduce, 10^9 bytes/s; absent: memory_efficiency of one NVLink direction"),
    ] = None
    allreduce_latency_us: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)], Field(description="latency of one all-reduce, us")
    ] = 0.0

    def build(self, context: CostContext) -> FormCost:
        """The roofline of these GPUs; InvalidInput for tensor parallelism without a link."""
        model, gpu = context.need("roofline")
        profile = self._profile(gpu, context.tensor_parallel)
        priced = coefficients(profile, model, gpu, context.tensor_parallel, context.dtype, context.kv_dtype)
        about: dict[str, Any] = {
            "kind": "roofline",
            "gpu": gpu.name,
            "source": f"{gpu.name}: {gpu.source}",
            "status": "datasheet",
            "mape_percent": None,
            "p95_percent": None,
            "range": {},
            "notes": [
                f"{self.compute_efficiency:.0%} of peak FLOP/s and {self.memory_efficiency:.0%} of peak bandwidth; "
                "no gaps between kernels: expect it to be optimistic"
            ],
        }
        return FormCost(priced, about, Range())

    def _profile(self, gpu: Gpu, tensor_parallel: int) -> Profile:
        link = self.allreduce_gb_per_s or self.memory_efficiency * gpu.nvlink_gb_per_s_bidir / 2
        if tensor_parallel > 1 and not link:
            rule = f"{gpu.name} has no link between GPUs in the catalogue: give cost_model.allreduce_gb_per_s"
            raise InvalidInput([problem("tensor_parallel", tensor_parallel, rule)])
        return Profile(
            gpu=gpu.name,
            status="borrowed",
            layer_us=0.0,
            memory_efficiency=self.memory_efficiency,
            compute_efficiency=self.compute_efficiency,
            attention_prefill_efficiency=self.compute_efficiency,
            attention_decode_efficiency=self.memory_efficiency,
            seq_us_per_layer=0.0,
            exponent=inf,  # a plain maximum
            allreduce_latency_us=self.allreduce_latency_us,
            allreduce_gb_per_s=link or None,
        )
