"""The sections of a scenario file that belong to the scenario itself; the others belong to the part that they
describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys of the top level that hold a single value."""

    name: Annotated[str, Field(min_length=1, max_length=200, description="what the results are called")] = "scenario"
    seed: Annotated[int, Field(ge=0, lt=2**63, description="the same seed draws the same requests")] = 0
    tensor_parallel: Annotated[int, Field(ge=1, le=1024, description="GPUs that one replica is spread over")] = 1
    dtype: Annotated[Literal["bf16", "fp16", "fp8"], Field(description="weights and activations")] = "bf16"
    replicas: Annotated[int, Field(ge=1, le=100_000, description="copies of the model, each on its own GPUs")] = 1
    max_model_len: (
        Annotated[int, Field(ge=1, le=2**40, description="tokens of prompt and answer; null: the model's own limit")]
        | None
    ) = None
    horizon_s: (
        Annotated[float, Field(gt=0, le=1e9, description="seconds; the clock stops there; null: when all is done")]
        | None
    ) = None


@dataclass(frozen=True, slots=True)
class Price:
    """What the GPUs cost, in any currency."""

    gpu_hour: Annotated[float, Field(ge=0, le=1e9, description="money an hour of one GPU")]
