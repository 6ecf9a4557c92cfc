"""What a policy costs and for whom, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from batchsim.metrics.burden import limits_of
from batchsim.scenario import Scenario, resolve
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


def in_classes(case: Scenario, names: str) -> dict[str, Any]:
    """The summary of a run whose requests are of the classes a and b, one letter each."""
    workload = replace(
        resolve(case).draw(), classes=("a", "b"), traffic_class=np.array(["ab".index(name) for name in names])
    )
    return dict(simulate(case, workload=workload).summary)


def two_classes() -> dict[str, Any]:
    """One seat, 22 ms a request, all at once: a of tenant A, a of tenant B, b of tenant B."""
    rows = [row(10, 2, tenant=tenant) for tenant in "ABB"]
    return in_classes(listed({"kind": "vllm", "max_num_seqs": 1}, rows), "aab")


def test_each_class_has_its_own_waits_and_shares() -> None:
    """a waits 0 and 22 ms, b 44 ms; each is served 22 ms; a: 22 of 66 ms is queue, b: 44 of 66; A and B have 14 each in a."""
    a, b = (two_classes()["classes"][name] for name in "ab")
    assert (a["longest_wait_ms"], b["longest_wait_ms"]) == (22.0, 44.0)
    assert (a["mean_queue_ms"], b["mean_queue_ms"]) == (11.0, 44.0)
    assert a["mean_service_ms"] == b["mean_service_ms"] == 22.0
    assert (a["queue_share"], b["queue_share"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert (a["jain_weighted_tokens"], b["jain_weighted_tokens"]) == (1.0, None)


def test_each_tenant_has_its_longest_wait() -> None:
    """A never waits, B waits 44 ms at most; A has 10 + 2 * 2 = 14 weighted tokens, B 28: Jain 42^2 / (2 * 980) = 0.9."""
    tenants = two_classes()["tenants"]
    assert tenants["longest_wait_ms"] == {"A": 0.0, "B": 44.0}
    assert tenants["weighted_tokens"] == {"A": 14, "B": 28}
    assert tenants["jain_weighted_tokens"] == pytest.approx(0.9)


def test_evictions_are_charged_to_the_class_that_suffers_them() -> None:
    """Two requests outgrow six blocks of 16; the one that came later is evicted, and its class alone pays."""
    summary = in_classes(listed({"kind": "vllm"}, [row(40, 30), row(30, 30)], blocks=6), "ab")
    old, new = summary["classes"]["a"], summary["classes"]["b"]
    assert (old["preemptions"], old["preemptions_per_s"], old["recomputed_tokens_per_s"]) == (0, 0.0, 0.0)
    assert new["preemptions"] == summary["preemptions"] == 1
    assert new["preemptions_per_s"] == 1 / summary["duration"]
    assert new["recomputed_tokens_per_s"] == summary["recomputed_tokens"] / summary["duration"] > 0


def test_orca_has_no_budget_to_run_out_of() -> None:
    """Four steps for one seat of two; a second request whose reservation does not fit waits through the first's two."""
    summary = simulate(listed({"kind": "orca", "max_num_seqs": 2}, [row(90, 2), row(90, 2)], blocks=10)).summary
    assert summary["token_bound_fraction"] == 0.0
    assert summary["seat_bound_fraction"] == 0.0
    assert summary["kv_bound_fraction"] == 0.5


def test_tensorrt_llm_uses_up_its_tokens() -> None:
    """A prompt of 96 in chunks of 48 tokens, then one decode: two of three steps are full."""
    scheduler = {"kind": "tensorrt_llm", "max_num_tokens": 48, "enable_chunked_prefill": True}
    summary = simulate(listed(scheduler, [row(96, 2)])).summary
    assert summary["token_bound_fraction"] == pytest.approx(2 / 3)


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
        ({"max_batch_size": 4, "max_num_tokens": 64}, (4, 64)),
        ({"max_batch_size": 4, "max_queue_delay_ms": 0}, None),
        ({"kind": "orca", "max_num_seqs": 8}, (8, None)),
        ({"max_num_seqs": 8, "max_num_batched_tokens": None}, None),
    ],
)
def test_limits(section: dict[str, int], limits: tuple[int, int | None] | None) -> None:
    """Seats and budget are the least of the keys that are set."""
    assert limits_of(section) == limits
