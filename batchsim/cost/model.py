"""The interface of cost models: what an iteration computes, and what it costs in whole femtoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from batchsim.catalog import Engine, Gpu, Model
from batchsim.errors import InvalidInput, problem

FS_PER_S = 10**15
FS_PER_MS = 10**12
FS_PER_US = 10**9

Int64 = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Shape(NamedTuple):
    """What one iteration computes, summed over its batch."""

    prefill_tokens: int
    """Prompt tokens, recomputed ones included."""
    prefill_s2_x2: int
    """Twice the prefill attention work: sum of chunk * (2 * past + chunk)."""
    prefill_past: int
    """Tokens already in the cache, summed over the chunks."""
    prefill_seqs: int
    decode_seqs: int
    context_tokens: int
    """Contexts of the decoding sequences, summed, the token being computed included."""


class Pricer(Protocol):
    """The least that a cost model from outside the package must offer."""

    def price(self, shape: Shape) -> tuple[int, int | None]: ...


@runtime_checkable
class CostModel(Protocol):
    """Prices iterations, and says how far its prices can be trusted.

    `price` answers (first_fs, growth_fs): the duration of this iteration, and how much longer each further identical
    step of pure decode takes, in which every context has grown by one. It is exactly affine: with `decode_seqs` more
    context tokens the first number is first_fs + growth_fs. growth_fs None: not affine here, price step by step.
    An iteration that computes nothing is never priced.
    """

    def price(self, shape: Shape) -> tuple[int, int | None]: ...

    def describe(self) -> dict[str, Any]:
        """kind, source, status, mape_percent, p95_percent, range, notes: plain values, for reports."""
        ...

    def outside(self, prefill_tokens: Int64, decode_seqs: Int64, context_tokens: Int64) -> Mapping[str, Flags]:
        """For each dimension of the calibrated range, which iterations lie outside; `{}` where there is no range."""
        ...


@dataclass(frozen=True, slots=True)
class CostContext:
    """What a cost model may build on: the model, the GPUs that share it, the number formats and the engine.

    `model` and `gpu` may be absent for cost kinds that need neither (linear, table). `folder` is the scenario's own.
    """

    model: Model | None = None
    gpu: Gpu | None = None
    tensor_parallel: int = 1
    dtype: str = "bf16"
    kv_dtype: str = "auto"
    engine: Engine = field(default_factory=Engine)
    folder: Path = Path()

    def file(self, name: str) -> Path:
        """A file that the scenario names, relative to the scenario's own folder."""
        return self.folder / name

    def need(self, kind: str) -> tuple[Model, Gpu]:
        """The model and the GPU, or InvalidInput that names what a cost model of this kind lacks."""
        if self.model is None or self.gpu is None:
            missing = [key for key in ("model", "gpu") if getattr(self, key) is None]
            raise InvalidInput([problem(key, None, f"missing: cost_model.kind {kind} needs it") for key in missing])
        self.model.check_tensor_parallel(self.tensor_parallel)
        return self.model, self.gpu


class CostDescription(Protocol):
    """A cost kind of a scenario: a dataclass whose fields are the keys of `cost_model`."""

    def build(self, context: CostContext) -> Pricer:
        """The cost model of the GPU's work alone; `batchsim.cost.build` adds the engine's host time."""
        ...
