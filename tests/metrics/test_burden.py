"""What a policy costs and for whom, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from batchsim.metrics.burden import limits_of
from batchsim.simulation import simulate
from tests.schedulers.runs import listed, row


def test_waits_and_service_by_hand() -> None:
    """One seat, two requests of prompt 10 and 2 tokens: 22 ms each, the second waits for the first; a third of the time
    is queue.
    """
    summary = simulate(listed({"kind": "vllm", "max_num_seqs": 1}, [row(10, 2), row(10, 2)])).summary
    assert summary["mean_service_ms"] == 22.0
    assert summary["longest_wait_ms"] == 22.0
    assert summary["queue_share"] == pytest.approx(1 / 3)
    assert summary["seat_bound_fraction"] == 1.0
    assert summary["token_bound_fraction"] == summary["kv_bound_fraction"] == 0.0


def test_the_budget_binds_the_steps_that_use_it_up() -> None:
    """A prompt of 100 at 40 tokens a step: two of four steps are full (40, 40, 20, then a decode)."""
    summary = simulate(listed({"kind": "vllm", "max_num_seqs": 4, "max_num_batched_tokens": 40}, [row(100, 2)])).summary
    assert summary["token_bound_fraction"] == 0.5
    assert summary["seat_bound_fraction"] == 0.0


def test_kv_binds_while_one_waits_for_blocks() -> None:
    """Ten blocks of 16, two requests of prompt 90 and 10 tokens: the second waits through all ten steps of the
    first.
    """
    summary = simulate(listed({"kind": "vllm"}, [row(90, 10), row(90, 10)], blocks=10)).summary
    assert summary["kv_bound_fraction"] == 0.5


def test_recomputed_share_and_rates() -> None:
    """Tokens lost to evictions over all tokens computed, and evictions a second."""
    run = simulate(listed({"kind": "vllm"}, [row(40, 60) for _ in range(3)], blocks=12))
    summary, rows = run.summary, run.records.iterations
    computed = int(((rows.prefill_tokens + rows.decode_seqs) * rows.repeats).sum())
    assert summary["recomputed_tokens"] > 0
    assert computed == 3 * 99 + summary["recomputed_tokens"]
    assert summary["recomputed_fraction"] == summary["recomputed_tokens"] / computed
    assert summary["preemptions_per_s"] == summary["preemptions"] / summary["duration"]
    assert summary["recomputed_tokens_per_s"] == summary["recomputed_tokens"] / summary["duration"]


def test_service_by_tenant_is_weighted() -> None:
    """A: 100 + 2 * 10, B: 20 + 2 * 10; Jain (160)^2 / (2 * (120^2 + 40^2)) = 0.8."""
    rows = [row(100, 10, tenant="A"), row(20, 10, tenant="B")]
    summary = simulate(listed({"kind": "vllm"}, rows)).summary
    assert summary["tenants"]["weighted_tokens"] == {"A": 120, "B": 40}
    assert summary["jain_weighted_tokens"] == summary["tenants"]["jain_weighted_tokens"] == pytest.approx(0.8)
    assert simulate(listed({"kind": "vllm"}, rows[:1])).summary["jain_weighted_tokens"] is None


def test_padding_is_counted() -> None:
    """A static batch of prompts 10 and 4 pads 6 tokens; the shorter answer of 1 leaves one row to compute 2 steps for
    nobody.
    """
    summary = simulate(listed({"kind": "static", "batch_size": 2}, [row(10, 3), row(4, 1)])).summary
    assert summary["padded_tokens"] == 6 + 2
    assert summary["padded_fraction"] == 8 / 24
    assert summary["seat_bound_fraction"] is None


@pytest.mark.parametrize(
    ("section", "limits"),
    [
        ({"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_num_active_seqs": 4}, (4, 64)),
        ({"max_num_seqs": 8, "chunk_size": 32}, (8, 32)),
        ({"batch_size": 4}, None),
        ({"max_num_seqs": 8, "max_num_batched_tokens": None}, None),
    ],
)
def test_limits(section: dict[str, int], limits: tuple[int, int] | None) -> None:
    """Seats and budget are the least of the keys that are set."""
    assert limits_of(section) == limits
