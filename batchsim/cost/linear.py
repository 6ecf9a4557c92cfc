"""The textbook cost model, on which hand arithmetic and queueing theory run exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from batchsim.cost.model import FS_PER_MS, CostContext, Flags, Int64, Shape

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum: base, and a price for each prompt token, decoding sequence and context token."""

    base_ms: Annotated[Price, Field(description="of every iteration, ms")] = 0.0
    prefill_token_ms: Annotated[Price, Field(description="of a prompt token, ms")] = 0.0
    decode_seq_ms: Annotated[Price, Field(description="of a decoding sequence, ms")] = 0.0
    context_token_ms: Annotated[Price, Field(description="of a token of a decoding sequence's context, ms")] = 0.0

    def __post_init__(self) -> None:
        if not (self.base_ms or self.prefill_token_ms or self.decode_seq_ms or self.context_token_ms):
            raise ValueError("at least one of its prices must be above 0")

    def build(self, context: CostContext) -> LinearCost:
        """Prices in whole femtoseconds, so that decimal milliseconds stay exact; needs no model and no GPU."""
        prices = (self.base_ms, self.prefill_token_ms, self.decode_seq_ms, self.context_token_ms)
        base, token, seq, context_token = (round(ms * FS_PER_MS) for ms in prices)
        return LinearCost(base, token, seq, context_token, prefill_seq_fs=0)


class LinearCost:
    """A `Linear` in femtoseconds."""

    __slots__ = ("base_fs", "context_fs", "decode_fs", "prefill_seq_fs", "token_fs")

    def __init__(self, base_fs: int, token_fs: int, decode_fs: int, context_fs: int, prefill_seq_fs: int) -> None:
        self.base_fs, self.token_fs = base_fs, token_fs
        self.decode_fs, self.context_fs, self.prefill_seq_fs = decode_fs, context_fs, prefill_seq_fs

    def price(self, shape: Shape) -> tuple[int, int]:
        tokens, _, _, prefills, decodes, context = shape
        first = self.base_fs + self.decode_fs * decodes + self.context_fs * context
        if tokens:
            first += self.token_fs * tokens + self.prefill_seq_fs * prefills
        return first, self.context_fs * decodes

    def with_host(self, step_fs: int, seq_fs: int) -> LinearCost:
        """The same plus the engine's host time."""
        decode_fs, prefill_seq_fs = self.decode_fs + seq_fs, self.prefill_seq_fs + seq_fs
        return LinearCost(self.base_fs + step_fs, self.token_fs, decode_fs, self.context_fs, prefill_seq_fs)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "linear",
            "source": "the scenario",
            "status": "exact",
            "mape_percent": None,
            "p95_percent": None,
            "range": {},
            "notes": [],
        }

    def outside(self, prefill_tokens: Int64, decode_seqs: Int64, context_tokens: Int64) -> Mapping[str, Flags]:
        return {}
