"""Measuring a GPU's kernels for `batchsim calibrate`: what to measure, in which order, and keeping what was measured.

The standard library suffices here; the kernels themselves run in `gpu_timer` (torch), or in any `Timer`.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Protocol

from batchsim.calibrate.schema import COLUMNS, Row, read

GEMM_TOKENS = (
    1,
    16,
    64,
    128,
    256,
    512,
    2048,
    8192,
    4,
    8,
    32,
    96,
    192,
    384,
    1024,
    1536,
    4096,
    2,
    48,
    257,
    768,
    3072,
    6144,
)
CHUNKS = (512, 2048, 8192, 128, 1024, 4096, 256, 16384, 32, 64)
PASTS = (8192, 32768, 2048, 16384)
PAST_CHUNKS = (512, 2048, 128)
DECODES = (32, 128, 1, 8, 64, 256, 16, 4)
CONTEXTS = (1024, 8192, 256, 4096, 512, 2048, 16384, 32768, 128)
MIXED = tuple((chunk, seqs, context) for context in (1024, 8192) for seqs in (32, 128) for chunk in (256, 512, 1024))
MESSAGES = tuple(2**k for k in (10, 14, 16, 18, 20, 21, 22, 23, 24, 26, 28))
COPY_BYTES = 2**30
ROUNDS = 12
REPEATS = 20
LEAST_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model the kernels depend on; `tp` GPUs share it."""

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    ffn_matrices: int = 3

    def gemms(self, tp: int) -> list[tuple[int, int]]:
        """(n, k) of a layer's products and of the output embedding, each once."""
        query, kv = self.heads * self.head_dim // tp, max(1, self.kv_heads // tp) * self.head_dim
        inner = self.intermediate // tp
        layer = [(query + 2 * kv, self.hidden), (self.hidden, query)]
        layer += [((self.ffn_matrices - 1) * inner, self.hidden), (self.hidden, inner)]
        return list(dict.fromkeys([*layer, (self.vocab // tp, self.hidden)]))

    def attention(self, tp: int) -> tuple[int, int, int]:
        """Query heads and KV heads as one GPU holds them, and their size."""
        return self.heads // tp, max(1, self.kv_heads // tp), self.head_dim


class Timer(Protocol):
    """Runs the kernel of a row, its `time_ms` not set."""

    def times_ms(self, task: Row, repeats: int) -> list[float]:
        """Warmed up, then `repeats` timings, ms. Raises `Impossible` where the machine cannot run it."""
        ...


class Impossible(Exception):
    """This machine cannot run this kernel: it does not fit its memory, or there are too few GPUs."""


def plan(shape: Shape, gpu: str, tp: int = 1, gpus: int = 1) -> list[Row]:
    """What to measure, the most informative first, so that a short budget still gives a profile.

    Rounds of: matrix products, prefill attention, decode attention, mixed steps; each round refines the one before.
    """
    base = Row("copy", gpu, "bf16", 0.0, model=shape.name, tp=tp, source="batchsim profile")
    query, kv, size = shape.attention(tp)
    of_heads = replace(base, heads=query, kv_heads=kv, head_dim=size)
    lanes: list[list[Row]] = [
        [replace(base, op="gemm", n=n, k=k, tokens=m) for m in GEMM_TOKENS for n, k in shape.gemms(tp)],
        [replace(of_heads, op="prefill_attention", tokens=c, batch=1) for c in CHUNKS]
        + [replace(of_heads, op="prefill_attention", tokens=c, batch=1, past=p) for p in PASTS for c in PAST_CHUNKS]
        + [replace(of_heads, op="prefill_attention", tokens=c, batch=b) for c in (512, 128) for b in (4, 16)],
        [replace(of_heads, op="decode_attention", batch=b, context=k) for k in CONTEXTS for b in DECODES],
        [replace(of_heads, op="mixed_attention", tokens=c, batch=b, context=k) for c, b, k in MIXED],
        [replace(of_heads, op="decode_layer", batch=b, context=1024) for b in (1, 32, 256)],
        [replace(base, op="allreduce", tp=n, bytes=size) for n in (2, 4, 8) if n <= gpus for size in MESSAGES],
    ]
    peaks = [replace(base, bytes=COPY_BYTES), replace(base, op="gemm", n=8192, k=8192, tokens=8192)]
    return [*peaks, *_rounds(lanes)]


def _rounds(lanes: list[list[Row]]) -> Iterator[Row]:
    """The lanes in turn, each giving a share of its rows a round, so that all end together."""
    for i in range(ROUNDS):
        for lane in lanes:
            yield from lane[-(-i * len(lane) // ROUNDS) : -(-(i + 1) * len(lane) // ROUNDS)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a profiling run ended."""

    measured: int
    resumed: int
    impossible: int
    left: int
    """Tasks that the time budget did not reach."""


def measure(
    tasks: Sequence[Row],
    timer: Timer,
    path: Path,
    minutes: float,
    environment: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[int, int, Row], None] = lambda done, total, task: None,
) -> Outcome:
    """Time the tasks in order until the budget is spent; every row is on disk before the next begins.

    A file that is there is resumed: what it holds is not measured again. Its head records the environment. The first
    timing of a task decides how many repeats the budget can bear.
    """
    known = {_key(row) for row in read(path)} if path.exists() and _has_rows(path) else set()
    deadline = clock() + minutes * 60
    measured = impossible = resumed = 0
    with path.open("a", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not known:
            file.truncate(0)
            file.writelines(f"# {name}: {value}\n" for name, value in environment.items())
            out.writeheader()
        for done, task in enumerate(tasks):
            progress(done, len(tasks), task)
            if _key(task) in known:
                resumed += 1
                continue
            if clock() >= deadline:
                return Outcome(measured, resumed, impossible, len(tasks) - done)
            try:
                row = replace(task, time_ms=_median_ms(timer, task, deadline - clock()))
            except Impossible:
                impossible += 1
                continue
            out.writerow({name: getattr(row, name) or "" for name in COLUMNS} | {"time_ms": f"{row.time_ms:.6g}"})
            file.flush()
            known.add(_key(row))
            measured += 1
    return Outcome(measured, resumed, impossible, 0)


def _median_ms(timer: Timer, task: Row, left_s: float) -> float:
    """The median of up to `REPEATS` timings, of fewer where a tenth of the time left would not bear them."""
    first = timer.times_ms(task, LEAST_REPEATS)
    bearable = int(left_s * 100 / max(median(first), 1e-6))
    more = min(REPEATS - LEAST_REPEATS, bearable)
    return median([*first, *(timer.times_ms(task, more) if more > 0 else [])])


def _has_rows(path: Path) -> bool:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return len(lines) > 1


def _key(row: Row) -> Row:
    return replace(row, time_ms=0.0)
