"""The cost model fitted to measured kernels: a profile of the GPU, scaled to the model by physics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from batchsim.catalog import Gpu, Model, Profile, names, profile, profile_file, suggest
from batchsim.cost._form import FormCost
from batchsim.cost._physics import coefficients
from batchsim.cost.model import CostContext
from batchsim.errors import InvalidInput, problem

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Fitted to measured kernels: reading and multiplying weights joined smoothly, attention by its work."""

    profile: Annotated[
        str | None, Field(description="GPU whose profile to use, or a profile's YAML file; absent: that of `gpu`")
    ] = None
    allreduce_gb_per_s: Annotated[
        Positive | None, Field(description="bandwidth of all-reduce, 10^9 bytes/s; absent: the profile's")
    ] = None
    allreduce_latency_us: Annotated[
        NotNegative | None, Field(description="latency of one all-reduce, us; absent: the profile's")
    ] = None
    attn_decode_mixed_factor: Annotated[
        Annotated[float, Field(ge=1, allow_inf_nan=False)] | None,
        Field(description="decode attention in a step that also prefills, times slower; absent: the profile's"),
    ] = None

    def build(self, context: CostContext) -> FormCost:
        """The cost model of these GPUs' kernels.

        InvalidInput where there is no profile, or no all-reduce parameters for tensor parallelism.
        """
        model, gpu = context.need("calibrated")
        chosen = self._profile(gpu, context)
        keys = ("allreduce_gb_per_s", "allreduce_latency_us", "attn_decode_mixed_factor")
        given = {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
        if not given.keys().isdisjoint(_LINK):
            given["allreduce_curve"] = {}
        chosen = chosen.model_copy(update=given)
        if context.tensor_parallel > 1 and context.tensor_parallel not in chosen.allreduce_curve:
            _need_interconnect(chosen, gpu, context.tensor_parallel)
        priced = coefficients(chosen, model, gpu, context.tensor_parallel, context.dtype, context.kv_dtype)
        about = _describe(chosen, gpu, context, sorted(given.keys() - {"allreduce_curve"}))
        return FormCost(priced, about, chosen.range)

    def _profile(self, gpu: Gpu, context: CostContext) -> Profile:
        if self.profile is not None and self.profile.lower().endswith((".yaml", ".yml")):
            return profile_file(context.file(self.profile))
        name = gpu.name if self.profile is None else self.profile
        found = profile(name)
        if found is None and self.profile is None:
            rule = "there is no cost profile for it: name a like GPU in cost_model.profile, or use kind: roofline"
            raise InvalidInput([problem("gpu", name, rule)])
        if found is None:
            near = suggest(name, names("profiles"))
            hint = f"; did you mean '{near}'?" if near else "; `batchsim list profiles` shows them"
            raise InvalidInput([problem("cost_model.profile", name, f"unknown profile{hint}")])
        return found


_LINK = ("allreduce_gb_per_s", "allreduce_latency_us")


def _need_interconnect(profile: Profile, gpu: Gpu, tensor_parallel: int) -> None:
    missing = [key for key in _LINK if getattr(profile, key) is None]
    if missing:
        wanted = " and ".join(f"cost_model.{key}" for key in missing)
        rule = f"no all-reduce between {gpu.name} GPUs was measured: give {wanted}"
        raise InvalidInput([problem("tensor_parallel", tensor_parallel, rule)])


def _describe(profile: Profile, gpu: Gpu, context: CostContext, overridden: list[str]) -> dict[str, Any]:
    own = profile.gpu == gpu.name
    model = context.model
    assert model is not None
    return {
        "kind": "calibrated",
        "profile": profile.name,
        "gpu": gpu.name,
        "source": profile.source,
        "status": profile.status if own else "borrowed",
        "mape_percent": profile.mape_percent if own else None,
        "p95_percent": profile.p95_percent if own else None,
        "splits": {name: list(errors) for name, errors in profile.splits.items()} if own else {},
        "calibrated_on": list(profile.calibrated_on),
        "range": {key: list(value) for key, value in profile.range.model_dump(exclude_none=True).items()},
        "overridden": overridden,
        "notes": [*profile.notes, *_caveats(profile, gpu, model, context)],
    }


def _caveats(profile: Profile, gpu: Gpu, model: Model, context: CostContext) -> list[str]:
    """What this model and these number formats add to the profile's own notes."""
    caveats = []
    if profile.gpu != gpu.name:
        caveats.append(f"efficiencies of {profile.gpu} on the peaks of {gpu.name}: not measured")
    if context.dtype == "fp8" and gpu.fp8_dense_tflops is None:
        caveats.append(f"{gpu.name} has no fp8 units: weights are read as fp8 and multiplied in 16 bits")
    elif context.dtype == "fp8" and profile.fp8 is None:
        caveats.append("fp8: 16-bit efficiencies on fp8 peaks, not measured")
    if context.kv_dtype == "fp8" and profile.attention_decode_fp8_efficiency is None:
        caveats.append("fp8 KV: half the bytes at the 16-bit efficiency, not measured")
    if model.experts and (profile.moe_fp8 if context.dtype == "fp8" else profile.moe) is None:
        caveats.append("mixture of experts: dense efficiencies, evenly chosen experts, not measured")
    if model.kv_lora_rank:
        caveats.append("MLA: attention efficiencies of other heads, not measured")
    if model.windowed_layers:
        caveats.append("sliding windows: cut at the batch's mean context")
    return caveats
