"""The engine's host time on top of any cost model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchsim.cost.model import CostContext, CostDescription, CostModel, Flags, Int64, Pricer, Shape


class WithHost:
    """A cost model plus the engine's host time: so much a step, so much a sequence in it."""

    __slots__ = ("_inner", "_name", "_seq_fs", "_step_fs")

    def __init__(self, inner: Pricer, name: str, step_fs: int, seq_fs: int) -> None:
        self._inner, self._name, self._step_fs, self._seq_fs = inner, name, step_fs, seq_fs

    def price(self, shape: Shape) -> tuple[int, int | None]:
        first, growth = self._inner.price(shape)
        return first + self._step_fs + self._seq_fs * (shape.prefill_seqs + shape.decode_seqs), growth

    def describe(self) -> dict[str, Any]:
        if isinstance(self._inner, CostModel):
            return self._inner.describe()
        return {"kind": self._name, "source": self._name, "status": "custom", "mape_percent": None, "notes": []}

    def outside(self, prefill_tokens: Int64, decode_seqs: Int64, context_tokens: Int64) -> Mapping[str, Flags]:
        if isinstance(self._inner, CostModel):
            return self._inner.outside(prefill_tokens, decode_seqs, context_tokens)
        return {}


def build(description: CostDescription, context: CostContext) -> CostModel:
    """The cost model that a scenario asks for, with the host time of its engine.

    Models of this package fold the host time into their own terms (`with_host`); others are wrapped.
    """
    model = description.build(context)
    step_fs, seq_fs = context.engine.step_host_fs(), context.engine.seq_host_fs(context.model)
    fold = getattr(model, "with_host", None)
    if fold is not None:
        folded: CostModel = fold(step_fs, seq_fs)
        return folded
    if isinstance(model, CostModel) and not step_fs and not seq_fs:
        return model
    kind = type(description)
    return WithHost(model, f"{kind.__module__}:{kind.__qualname__}", step_fs, seq_fs)
