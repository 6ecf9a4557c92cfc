"""Whole iterations made of measured kernels: the sum of a step's GEMMs, attention and all-reduces.

Nothing is fitted here. GEMM times are read off the measured matrix shapes, between them log-log interpolated in rows,
columns and inner size; attention is taken at measured points only. Norms, rope and activations are not in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from batchsim.calibrate.schema import Row
from batchsim.catalog import Model
from batchsim.errors import InvalidInput, problem

MIXED_CHUNKS = (256, 512, 1024, 2048)
MIXED_DECODES = (8, 32, 128, 256)
MOST_DECODES = 512
MOST_PREFILL = 16384
MOST_CONTEXT = 2**19
MIXED_CONTEXT = 2**18
ALIGNED = 16

Point = tuple[int, float]
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Kernels:
    """Measured kernels of one GPU and one dtype, ready to be read."""

    gemm: Mapping[tuple[int, int], Curve]
    """(n, k) -> log rows, log ms."""
    prefill: Mapping[tuple[int, int, int], Mapping[tuple[int, int, int], float]]
    """(heads, kv_heads, head_dim) -> (chunk, chunks, past) -> ms."""
    decode: Mapping[tuple[int, int, int], Mapping[tuple[int, int], float]]
    """(heads, kv_heads, head_dim) -> (sequences, context) -> ms."""
    allreduce: Mapping[int, Curve]
    """GPUs -> log bytes, log ms."""
    moe: Mapping[tuple[int, int, int, int, int], Curve]
    """(expert width, hidden, experts, chosen, GPUs) -> log tokens, log ms."""
    source: str

    def gemm_ms(self, n: int, k: int, rows: float) -> float:
        """Time of a rows x k by k x n product, ms.

        Beyond the widest shape measured, in proportion; InvalidInput where shapes beside it are missing.
        """
        if (n, k) in self.gemm:
            return float(np.exp(_read(self.gemm[n, k], rows)))
        widest, deepest = max(a for a, _ in self.gemm), max(b for _, b in self.gemm)
        if n > widest or k > deepest:
            return self.gemm_ms(min(n, widest), min(k, deepest), rows) * max(1.0, n / widest) * max(1.0, k / deepest)
        n0, n1 = _around(n, [a for a, _ in self.gemm])
        k0, k1 = _around(k, [b for _, b in self.gemm])
        missing = [corner for corner in product((n0, n1), (k0, k1)) if corner not in self.gemm]
        if missing:
            raise InvalidInput([problem("gemm", f"n={n} k={k}", f"not measured, nor (n, k) = {missing[0]} beside it")])
        fn, fk = _share(n, n0, n1), _share(k, k0, k1)
        corners = [(n0, k0, (1 - fn) * (1 - fk)), (n0, k1, (1 - fn) * fk), (n1, k0, fn * (1 - fk)), (n1, k1, fn * fk)]
        return float(np.exp(sum(w * _read(self.gemm[a, b], rows) for a, b, w in corners if w > 0)))

    def allreduce_ms(self, tensor_parallel: int, size_bytes: float) -> float:
        """Time of one all-reduce, ms; 0 on one GPU."""
        if tensor_parallel == 1:
            return 0.0
        if tensor_parallel not in self.allreduce:
            raise InvalidInput([problem("allreduce", f"tp={tensor_parallel}", "not measured")])
        return float(np.exp(_read(self.allreduce[tensor_parallel], size_bytes)))


def kernels(rows: Iterable[Row], dtype: str, kv_dtype: str = "bf16") -> Kernels:
    """The kernels among `rows` for weights of `dtype` and a KV cache of `kv_dtype`."""
    gemm: dict[tuple[int, int], list[Point]] = defaultdict(list)
    reduce: dict[int, list[Point]] = defaultdict(list)
    moe: dict[tuple[int, int, int, int, int], list[Point]] = defaultdict(list)
    prefill: dict[tuple[int, int, int], dict[tuple[int, int, int], float]] = defaultdict(dict)
    decode: dict[tuple[int, int, int], dict[tuple[int, int], float]] = defaultdict(dict)
    source = ""
    for row in rows:
        source = source or row.source
        heads = (row.heads, row.kv_heads, row.head_dim)
        if row.op == "gemm" and row.dtype == dtype and aligned(row):
            gemm[row.n, row.k].append((row.tokens, row.time_ms))
        elif row.op == "allreduce":
            reduce[row.tp].append((row.bytes, row.time_ms))
        elif row.op == "moe" and row.dtype == dtype:
            moe[row.n, row.k, row.experts, row.experts_per_token, row.tp].append((row.tokens, row.time_ms))
        elif row.op == "prefill_attention" and row.dtype == kv_dtype:
            prefill[heads][row.tokens, row.batch, row.past] = row.time_ms
        elif row.op == "decode_attention" and row.dtype == kv_dtype:
            decode[heads][row.batch, row.context] = row.time_ms
    gemms = {key: _curve(points) for key, points in gemm.items()}
    reduces = {key: _curve(points) for key, points in reduce.items()}
    moes = {key: _curve(points) for key, points in moe.items()}
    return Kernels(gemms, prefill, decode, reduces, moes, source)


def aligned(row: Row) -> bool:
    """Whether a GEMM's rows suit its kernel: fp8 products of a ragged row count are up to 1.5 times slower.

    Engines pad to 8 or 16 rows (CUDA graphs) or fill a token budget that is a multiple of 16.
    """
    return row.dtype != "fp8" or row.tokens <= ALIGNED or row.tokens % ALIGNED == 0


def compose(kernel: Kernels, head: Kernels, model: Model, tp: int, gpu: str, dtype: str) -> list[Row]:
    """Iterations of a dense model: prefill, decode and both in one step, wherever attention was measured.

    `head` are the 16-bit kernels: the output embedding stays in 16 bits.
    """
    heads = (model.heads // tp, max(1, model.kv_heads // tp), model.head_dim)
    if heads not in kernel.prefill or heads not in kernel.decode:
        raise InvalidInput([problem("attention", f"heads, kv_heads, head_dim = {heads}", "not measured")])
    dense: dict[tuple[int, int], float] = {}

    def dense_ms(tokens: int, seqs: int) -> float:
        if (tokens, seqs) not in dense:
            dense[tokens, seqs] = _dense_ms(kernel, head, model, tp, tokens, seqs)
        return dense[tokens, seqs]

    out = []
    for step in _steps(kernel, heads):
        tokens = step.chunk * step.chunks + step.decodes
        time_ms = model.layers * step.attention_ms + dense_ms(tokens, step.chunks + step.decodes)
        out.append(
            Row(
                "iteration", gpu, dtype, time_ms, model=model.name, tp=tp, tokens=step.chunk * step.chunks,
                chunks=step.chunks, batch=step.decodes, context=step.context, past=step.past, source=kernel.source,
            )
        )  # fmt: skip
    return out


@dataclass(frozen=True, slots=True)
class _Step:
    attention_ms: float
    chunk: int = 0
    chunks: int = 0
    past: int = 0
    decodes: int = 0
    context: int = 0


def _steps(kernel: Kernels, heads: tuple[int, int, int]) -> Iterator[_Step]:
    prefill, decode = kernel.prefill[heads], kernel.decode[heads]
    for (chunk, chunks, past), ms in prefill.items():
        if 16 <= chunk * chunks <= MOST_PREFILL and chunk >= 16:
            yield _Step(ms, chunk, chunks, past)
    for (seqs, context), ms in decode.items():
        if seqs <= MOST_DECODES and context >= 128 and seqs * context <= MOST_CONTEXT:
            yield _Step(ms, decodes=seqs, context=context)
            if seqs in MIXED_DECODES and seqs * context <= MIXED_CONTEXT:
                measured = [c for c in MIXED_CHUNKS if (c, 1, 0) in prefill]
                yield from (_Step(ms + prefill[c, 1, 0], c, 1, 0, seqs, context) for c in measured)


def _dense_ms(kernel: Kernels, head: Kernels, model: Model, tp: int, tokens: int, seqs: int) -> float:
    """GEMMs and all-reduces of all layers and the output embedding, ms."""
    h, query, kv = model.hidden, model.heads * model.head_dim, max(1, model.kv_heads // tp) * model.head_dim
    shapes = [(query // tp + 2 * kv, h), (h, query // tp)]
    ffn = 0.0
    if model.experts:
        key = (model.moe_intermediate, h, model.experts, model.experts_per_token, tp)
        if key not in kernel.moe:
            raise InvalidInput([problem("moe", f"(n, k, experts, experts_per_token, tp) = {key}", "not measured")])
        ffn = float(np.exp(_read(kernel.moe[key], tokens)))
    else:
        shapes += [((model.ffn_matrices - 1) * model.intermediate // tp, h), (h, model.intermediate // tp)]
    layer = ffn + sum(kernel.gemm_ms(n, k, tokens) for n, k in shapes)
    layer += 2 * kernel.allreduce_ms(tp, 2 * h * tokens)
    return model.layers * layer + head.gemm_ms(model.vocab // tp, h, seqs)


def _curve(points: list[tuple[int, float]]) -> Curve:
    x, y = np.array(sorted(points), dtype=np.float64).T
    return np.log(x), np.log(y)


def _read(curve: Curve, x: float) -> float:
    """Log-log interpolation; beyond the last point in proportion to size, before the first its value."""
    xs, ys = curve
    at = float(np.log(x))
    return float(ys[-1] + at - xs[-1]) if at > xs[-1] else float(np.interp(at, xs, ys))


def _around(value: int, measured: Iterable[int]) -> tuple[int, int]:
    """The nearest measured sizes below and above; below the least, the least on both sides."""
    sizes = sorted(measured)
    below = [size for size in sizes if size <= value] or sizes[:1]
    return below[-1], next(size for size in sizes if size >= value)


def _share(value: int, low: int, high: int) -> float:
    return 0.0 if low == high or value <= low else float(np.log(value / low) / np.log(high / low))
