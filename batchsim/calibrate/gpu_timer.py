"""CUDA kernels timed with events; needs torch and a CUDA GPU, and nothing else of this package but its rows."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from batchsim.calibrate.profiler import Impossible, Shape
from batchsim.calibrate.schema import Row

FLUSH_BYTES = 256 * 2**20
WARM_UP = 3


def available() -> str | None:
    """None where kernels can be measured, else why not, in one line."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed: pip install 'batchsim[gpu]'"
    return None if torch.cuda.is_available() else "no CUDA GPU is visible to PyTorch"


def environment() -> dict[str, str]:
    """GPU, driver and versions, as they head the measurements."""
    import torch

    card = torch.cuda.get_device_properties(0)
    return {
        "gpu": card.name,
        "gpus": str(torch.cuda.device_count()),
        "memory_gib": f"{card.total_memory / 2**30:.2f}",
        "driver": _driver(),
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _driver() -> str:
    import subprocess

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603 - fixed words
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({type(error).__name__})"
    lines = done.stdout.splitlines()
    return lines[0].strip() if lines else "unknown"


class CudaTimer:
    """Times kernels on GPU 0: random inputs, warm-up, the L2 cache flushed before each timing."""

    def __init__(self, shape: Shape) -> None:
        import torch

        self._torch = torch
        self._shape = shape
        self._device = torch.device("cuda", 0)
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=self._device)
        self._built: tuple[Row, Callable[[], object]] | None = None

    def times_ms(self, task: Row, repeats: int) -> list[float]:
        """Timings of one kernel, ms; `Impossible` where it does not fit the memory."""
        torch = self._torch
        try:
            if self._built is None or self._built[0] != task:
                self._built = None
                torch.cuda.empty_cache()
                self._built = (task, self._kernel(task))
                for _ in range(WARM_UP):
                    self._built[1]()
            return [self._time(self._built[1]) for _ in range(repeats)]
        except torch.cuda.OutOfMemoryError as error:
            self._built = None
            raise Impossible(str(error)) from error

    def _time(self, run: Callable[[], object]) -> float:
        torch = self._torch
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def _kernel(self, task: Row) -> Callable[[], object]:
        make = getattr(self, f"_{task.op}", None)
        if make is None:
            raise Impossible(f"{task.op} is not measured here")
        kernel: Callable[[], object] = make(task)
        return kernel

    def _random(self, *shape: int) -> Any:
        return self._torch.randn(*shape, dtype=self._torch.bfloat16, device=self._device)

    def _copy(self, task: Row) -> Callable[[], object]:
        source = self._torch.empty(task.bytes, dtype=self._torch.int8, device=self._device)
        target = self._torch.empty_like(source)
        return lambda: target.copy_(source)

    def _gemm(self, task: Row) -> Callable[[], object]:
        x, weight = self._random(task.tokens, task.k), self._random(task.n, task.k)
        out = self._torch.empty(task.tokens, task.n, dtype=x.dtype, device=self._device)
        return self._graphed(lambda: self._torch.mm(x, weight.t(), out=out))

    def _allreduce(self, task: Row) -> Callable[[], object]:
        """NCCL's all-reduce over the first `tp` GPUs of this machine, from one process."""
        torch = self._torch
        if torch.cuda.device_count() < task.tp:
            raise Impossible(f"{task.tp} GPUs are not there")
        from torch.cuda import nccl

        devices = [torch.device("cuda", i) for i in range(task.tp)]
        shards = [torch.zeros(task.bytes // 2, dtype=torch.bfloat16, device=device) for device in devices]
        return lambda: nccl.all_reduce(shards)

    def _attend(self, queries: int, context: int, batch: int, task: Row) -> Callable[[], object]:
        """Attention of `queries` last tokens over `context` tokens for each of `batch` sequences."""
        torch = self._torch
        q = self._random(batch, task.heads, queries, task.head_dim)
        k, v = (self._random(batch, task.kv_heads, context, task.head_dim) for _ in range(2))
        mask = None
        if queries > 1 and context > queries:
            from torch.nn.attention.bias import causal_lower_right

            mask = causal_lower_right(queries, context)
        causal = queries > 1 and mask is None
        attend = torch.nn.functional.scaled_dot_product_attention
        return lambda: attend(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True)

    def _prefill_attention(self, task: Row) -> Callable[[], object]:
        return self._attend(task.tokens, task.tokens + task.past, task.batch, task)

    def _decode_attention(self, task: Row) -> Callable[[], object]:
        return self._graphed(self._attend(1, task.context, task.batch, task))

    def _mixed_attention(self, task: Row) -> Callable[[], object]:
        """A chunk and decodes in one variable-length call, as engines issue mixed steps."""
        torch = self._torch
        varlen = getattr(torch.nn.attention, "varlen", None)
        if varlen is None:
            raise Impossible("this PyTorch has no variable-length attention")
        lengths = [task.tokens] + [1] * task.batch
        contexts = [task.tokens] + [task.context] * task.batch
        q = self._random(sum(lengths), task.heads, task.head_dim)
        repeat = task.heads // task.kv_heads
        k, v = (self._random(sum(contexts), task.kv_heads, task.head_dim) for _ in range(2))
        k, v = (x.repeat_interleave(repeat, dim=1) for x in (k, v))
        ends = [torch.tensor([0, *xs], device=self._device).cumsum(0).int() for xs in (lengths, contexts)]
        return lambda: varlen.varlen_attn(q, k, v, *ends, max(lengths), max(contexts), True)

    def _decode_layer(self, task: Row) -> Callable[[], object]:
        """A whole decode layer under a CUDA graph: norms, products, attention and activation."""
        torch = self._torch
        shape, tp = self._shape, task.tp
        weights = {nk: self._random(*nk) for nk in shape.gemms(tp)[:-1]}
        (qkv, out, up, down) = (weights[nk] for nk in _four(shape, tp))
        x = self._random(task.batch, shape.hidden)
        scale = self._random(shape.hidden)
        attend = self._attend(1, task.context, task.batch, task)
        query = shape.heads * shape.head_dim // tp

        def layer() -> object:
            h = torch.nn.functional.rms_norm(x, (shape.hidden,), scale)
            (h @ qkv.t())[:, :query]
            attended = attend().transpose(1, 2).reshape(task.batch, query)  # type: ignore[attr-defined]
            y = x + attended @ out.t()
            h = torch.nn.functional.rms_norm(y, (shape.hidden,), scale) @ up.t()
            if shape.ffn_matrices == 3:
                gate, value = h.chunk(2, dim=-1)
                h = torch.nn.functional.silu(gate) * value
            return y + h @ down.t()

        return self._graphed(layer)

    def _graphed(self, run: Callable[[], object]) -> Callable[[], object]:
        """The kernel captured in a CUDA graph, so that no launch is timed."""
        torch = self._torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        replay: Callable[[], object] = graph.replay
        return replay


def _four(shape: Shape, tp: int) -> list[tuple[int, int]]:
    query, kv = shape.heads * shape.head_dim // tp, max(1, shape.kv_heads // tp) * shape.head_dim
    inner = shape.intermediate // tp
    return [
        (query + 2 * kv, shape.hidden),
        (shape.hidden, query),
        ((shape.ffn_matrices - 1) * inner, shape.hidden),
        (shape.hidden, inner),
    ]
