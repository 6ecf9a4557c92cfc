"""From the profiler's plan to a profile, with kernels whose times are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchsim import catalog
from batchsim.calibrate.calibration import calibrate
from batchsim.calibrate.profiler import Shape, measure, plan
from batchsim.calibrate.schema import Row, read

GPU = catalog.gpu("h100-sxm")
MEMORY, COMPUTE, PREFILL, DECODE, MIXED = 0.8, 0.7, 0.45, 0.85, 1.6


class Physics:
    """A GPU of known efficiencies: 6 us a kernel, then reading or multiplying, smoothly joined, and input and output.

    Beside a chunk decoding takes MIXED times as long, start and all.
    """

    def times_ms(self, task: Row, repeats: int) -> list[float]:
        return [self.ms(task)] * repeats

    def ms(self, t: Row) -> float:
        if t.op == "gemm":
            read, work = 2 * t.n * t.k / (MEMORY * GPU.bytes_per_s), 2 * t.n * t.k * t.tokens / (COMPUTE * 989.4e12)
            joined: float = (read**2.2 + work**2.2) ** (1 / 2.2)
            moved = 2 * t.tokens * (t.n + t.k) / (MEMORY * GPU.bytes_per_s)
            return (6e-6 + joined + moved) * 1e3
        if t.op == "prefill_attention":
            work = 4 * t.heads * t.head_dim * t.batch * t.tokens * (t.past + t.tokens / 2) / (PREFILL * 989.4e12)
            read = t.past * t.batch * 4 * t.kv_heads * t.head_dim / (DECODE * GPU.bytes_per_s)
            moved = 4 * t.batch * t.tokens * (t.heads + t.kv_heads) * t.head_dim / (MEMORY * GPU.bytes_per_s)
            return (6e-6 + work + read + moved) * 1e3
        if t.op == "decode_attention":
            return (6e-6 + 4 * t.kv_heads * t.head_dim * t.batch * t.context / (DECODE * GPU.bytes_per_s)) * 1e3
        if t.op == "mixed_attention":
            chunk = Row(
                "prefill_attention",
                t.gpu,
                "bf16",
                0,
                heads=t.heads,
                kv_heads=t.kv_heads,
                head_dim=128,
                tokens=t.tokens,
                batch=1,
            )
            decode = Row(
                "decode_attention",
                t.gpu,
                "bf16",
                0,
                heads=t.heads,
                kv_heads=t.kv_heads,
                head_dim=128,
                batch=t.batch,
                context=t.context,
            )
            return self.ms(chunk) + MIXED * self.ms(decode)
        return 1.0


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-8b"])
def test_profiling_and_calibrating_finds_the_gpu(tmp_path: Path, name: str) -> None:
    """A GPU of known efficiencies is profiled and calibrated: they come back within 3 %, the mixed factor too."""
    m = catalog.model(name)
    shape = Shape(m.name, m.hidden, m.heads, m.kv_heads, m.head_dim, m.intermediate, m.vocab)
    path = tmp_path / "m.csv"
    measure(plan(shape, GPU.name), Physics(), path, 1e6, {"gpu": "known"})
    found = calibrate(read(path), GPU.name)
    profile = found.profile
    assert profile.calibrated_on == (f"{name} tp1",)
    assert profile.memory_efficiency == pytest.approx(MEMORY, rel=0.03)
    assert profile.compute_efficiency == pytest.approx(COMPUTE, rel=0.03)
    assert profile.attention_prefill_efficiency == pytest.approx(PREFILL, rel=0.03)
    assert profile.attention_decode_efficiency == pytest.approx(DECODE, rel=0.03)
    assert profile.attn_decode_mixed_factor == pytest.approx(MIXED, rel=0.02)
    assert profile.mixed_us_per_layer == pytest.approx(6.0, rel=0.1)
    assert profile.past_read_factor == pytest.approx(1.0, rel=0.1)
    assert found.held_out["random"].mape < 2
    assert found.fp8 is None
