"""The form of `batchsim.cost` on arrays of iterations, for fitting; the coefficients are the cost model's own."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from batchsim.calibrate.schema import Row
from batchsim.catalog import Gpu, Model, Profile
from batchsim.cost._physics import Coefficients, coefficients

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Iterations:
    """Measured iterations of one model, tensor parallel size and dtype, as columns."""

    prefill_tokens: Floats
    s2: Floats
    past: Floats
    prefill_seqs: Floats
    decode_seqs: Floats
    context_tokens: Floats
    time_s: Floats

    def __len__(self) -> int:
        return len(self.time_s)

    def __getitem__(self, keep: NDArray[np.bool_]) -> Iterations:
        return Iterations(*(getattr(self, field.name)[keep] for field in fields(self)))

    @property
    def longest(self) -> Floats:
        """The longest context or chunk of each iteration, tokens."""
        chunk = (self.prefill_tokens + self.past) / np.maximum(self.prefill_seqs, 1)
        return np.asarray(np.maximum(chunk, self.context_tokens / np.maximum(self.decode_seqs, 1)))


def iterations(rows: list[Row]) -> Iterations:
    """Rows of `iteration` measurements as columns; chunks of one step have one length."""
    get = {name: np.array([float(getattr(row, name)) for row in rows]) for name in _READ}
    tokens, past = get["tokens"], get["past"]
    chunks = np.where(tokens > 0, np.maximum(get["chunks"], 1), 0.0)
    s2 = tokens * (past + np.divide(tokens, chunks, out=np.zeros_like(tokens), where=chunks > 0) / 2)
    context = get["batch"] * get["context"]
    return Iterations(tokens, s2, past * chunks, chunks, get["batch"], context, get["time_ms"] * 1e-3)


_READ = ("tokens", "chunks", "past", "batch", "context", "time_ms")


@dataclass(frozen=True, slots=True)
class Setting:
    """A model on GPUs: what fixes the coefficients beside the profile."""

    model: Model
    gpu: Gpu
    tensor_parallel: int = 1
    dtype: str = "bf16"
    kv_dtype: str = "auto"

    @property
    def label(self) -> str:
        """`llama-3.1-8b tp1`, with the dtype where it is not bf16."""
        name = f"{self.model.name} tp{self.tensor_parallel}"
        return name if self.dtype == "bf16" else f"{name} {self.dtype}"


def seconds(profile: Profile, setting: Setting, of: Iterations) -> Floats:
    """The time of each iteration, seconds: `FormCost.price` without the rounding (windowed layers left out)."""
    s = setting
    return evaluate(coefficients(profile, s.model, s.gpu, s.tensor_parallel, s.dtype, s.kv_dtype), of)


def evaluate(c: Coefficients, of: Iterations) -> Floats:
    """The form with given coefficients, seconds."""
    tokens = of.prefill_tokens + of.decode_seqs
    distinct, at = np.unique(tokens, return_inverse=True)
    dense = np.array([c.dense_s(int(n)) for n in distinct])[at]
    prefills = of.prefill_tokens > 0
    slower = np.where(prefills, c.mixed_factor, 1.0)
    out = dense + c.prefill_s * of.s2 + c.past_s * of.past + c.context_s * slower * of.context_tokens
    out += c.mixed_s * (prefills & (of.decode_seqs > 0))
    return np.asarray(out + c.seq_s * (of.prefill_seqs + of.decode_seqs))
