"""Steps that prefill and decode: the second attention kernel that they start, and how much slower decoding is beside a
chunk. Composed iterations cannot show either, their attention is measured apart; single kernels can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from batchsim.calibrate.schema import Row
from batchsim.catalog import Gpu, profile

Heads = tuple[int, int, int]


def second_kernel_us(rows: Sequence[Row]) -> float:
    """Time of a decode attention that has next to nothing to read, us; the median of head counts, 0 without any.

    It is what a step of chunks and decoding sequences adds to either alone, a layer, where two kernels do the two.
    """
    least: dict[Heads, float] = {}
    for row in rows:
        if row.op == "decode_attention" and row.dtype != "fp8":
            least[_heads(row)] = min(least.get(_heads(row), np.inf), row.time_ms * 1e3)
    return round(float(np.median(list(least.values()))), 2) if least else 0.0


def beside_a_chunk(rows: Sequence[Row], card: Gpu, alone_us: float) -> tuple[float, float]:
    """Decode attention beside a chunk against alone, a factor, and what starting it adds a layer, us, at most `alone_us`.

    Medians of measured pairs. Without any the shipped profile's factor and `alone_us`: the kernels run one by one.
    """
    pairs = np.array(list(_pairs(rows)))
    if not len(pairs):
        shipped = profile(card.name)
        return (shipped.attn_decode_mixed_factor if shipped else 1.0), alone_us
    added, alone = pairs.T * 1e3
    factor = max(1.0, float(np.median(added / alone)))
    start_us = float(np.median(added - factor * (alone - alone_us)))
    return round(factor, 3), round(min(max(start_us, 0.0), alone_us), 2)


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[float, float]]:
    """Of each mixed attention whose parts were measured too: what the decoding adds to the chunk, and it alone, ms."""
    chunks, decodes = {}, {}
    for row in rows:
        if row.op == "prefill_attention" and row.batch == 1 and row.dtype != "fp8":
            chunks[_heads(row), row.tokens, row.past] = row.time_ms
        elif row.op == "decode_attention" and row.dtype != "fp8":
            decodes[_heads(row), row.batch, row.context] = row.time_ms
    for row in rows:
        chunk = chunks.get((_heads(row), row.tokens, row.past))
        alone = decodes.get((_heads(row), row.batch, row.context))
        if row.op == "mixed_attention" and chunk is not None and alone is not None:
            yield row.time_ms - chunk, alone


def _heads(row: Row) -> Heads:
    return row.heads, row.kv_heads, row.head_dim
