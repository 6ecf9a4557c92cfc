"""What a policy costs and for whom: work done again, time spent waiting, service by tenant, what a step ran out of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.metrics import fairness
from batchsim.metrics.latency import NS_PER_MS, completed, submitted
from batchsim.metrics.throughput import Span, per_second
from batchsim.records import NEVER, Iterations, Records

Bools = NDArray[np.bool_]
INPUT_WEIGHT, OUTPUT_WEIGHT = 1, 2
"""Weights of a prompt and an output token in a tenant's service, as in the VTC paper."""

LIMITS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("max_num_seqs", "max_num_active_seqs"), ("max_num_batched_tokens", "max_num_scheduled_tokens")),
    (("max_num_seqs",), ("chunk_size",)),
    (("max_batch_size",), ("max_num_tokens",)),
)
"""Keys that schedulers have for their seats and for their token budget; the least of them holds."""
UNLIMITED = {"orca"}
"""Kinds that have seats and no token budget."""


def burdens(records: Records, span: Span, scheduler: Mapping[str, Any]) -> dict[str, float | int | None]:
    """The figures of a run; `scheduler`: its section of the scenario as run."""
    requests, iterations = records.requests, records.iterations
    recomputed = int(requests.recomputed_tokens.sum())
    everyone = np.ones(len(requests), dtype=bool)
    return {
        "padded_tokens": int((iterations.padded_tokens * iterations.repeats).sum()),
        "recomputed_fraction": recomputed_fraction(records),
        "recomputed_tokens_per_s": per_second(recomputed, span),
        "preemptions_per_s": per_second(int(requests.preemptions.sum()), span),
        "longest_wait_ms": fairness.longest_wait_ms(records, everyone),
        "mean_service_ms": mean_service_ms(records, everyone),
        "queue_share": queue_share(records, everyone),
        "jain_weighted_tokens": jain_weighted_tokens(records, everyone),
        **step_bounds(iterations, scheduler),
    }


def recomputed_fraction(records: Records) -> float | None:
    """Share of the computed tokens (padding included) that had been computed before and were lost to evictions."""
    iterations = records.iterations
    computed = int(((iterations.prefill_tokens + iterations.decode_seqs) * iterations.repeats).sum())
    return int(records.requests.recomputed_tokens.sum()) / computed if computed else None


def mean_service_ms(records: Records, members: Bools) -> float | None:
    """Time holding a seat of the completed ones among some requests, ms on average; rests and lost work included."""
    mine = members & completed(records.requests)
    return float(records.requests.ran_ns[mine].mean() / NS_PER_MS) if mine.any() else None


def queue_share(records: Records, members: Bools) -> float | None:
    """Queue time against service time: the share of all the time in the system that was spent without a seat."""
    mine = members & submitted(records.requests)
    waited, ran = int(records.requests.waited_ns[mine].sum()), int(records.requests.ran_ns[mine].sum())
    return waited / (waited + ran) if waited + ran else None


def weighted_tokens(records: Records, members: Bools | None = None) -> NDArray[np.int64]:
    """Service by tenant: prompt tokens of the requests with a first token, and twice the tokens streamed; of all
    requests or of some.
    """
    requests, workload = records.requests, records.workload
    prompts = np.where(requests.first_token_ns != NEVER, requests.prompt_tokens, 0)
    service = INPUT_WEIGHT * prompts + OUTPUT_WEIGHT * requests.emitted_tokens
    if members is not None:
        service = np.where(members, service, 0)
    return np.bincount(workload.tenant, service, minlength=len(workload.tenants)).astype(np.int64)


def jain_weighted_tokens(records: Records, members: Bools) -> float | None:
    """Jain's index of that service over the tenants of some requests; None for fewer than two tenants."""
    if len(records.workload.tenants) < 2:
        return None
    tenants = np.unique(records.workload.tenant[members])
    return fairness.jain(weighted_tokens(records, members)[tenants]) if len(tenants) > 1 else None


def step_bounds(iterations: Iterations, scheduler: Mapping[str, Any]) -> dict[str, float | None]:
    """How often a step was bound, as shares of all steps: by the token budget (used up), the seats (all taken), KV.

    KV: somebody waited though seats and tokens were left. Their blocks did not fit; or the policy kept them out for a
    step, as vLLM does after an eviction. None for schedulers without seats and a token budget in each step; Orca, which
    has no budget, is never bound by it.
    """
    steps = int(iterations.repeats.sum())
    limits = limits_of(scheduler)
    if limits is None or not steps:
        return {"token_bound_fraction": None, "seat_bound_fraction": None, "kv_bound_fraction": None}
    seats, budget = limits
    computed = iterations.prefill_tokens + iterations.decode_seqs
    tokens_out = np.zeros(len(iterations), dtype=bool) if budget is None else computed >= budget
    seats_out = iterations.running >= seats
    blocks_out = (iterations.waiting > 0) & ~tokens_out & ~seats_out
    return {
        name: int(iterations.repeats[bound].sum()) / steps
        for name, bound in (
            ("token_bound_fraction", tokens_out),
            ("seat_bound_fraction", seats_out),
            ("kv_bound_fraction", blocks_out),
        )
    }


def limits_of(scheduler: Mapping[str, Any]) -> tuple[int, int | None] | None:
    """(seats, token budget) that a scheduler's section says; no budget for those that have none at all."""
    if scheduler.get("kind") in UNLIMITED:
        return int(scheduler["max_num_seqs"]), None
    for seat_keys, budget_keys in LIMITS:
        seats = [scheduler[key] for key in seat_keys if isinstance(scheduler.get(key), int)]
        budgets = [scheduler[key] for key in budget_keys if isinstance(scheduler.get(key), int)]
        if seats and budgets:
            return min(seats), min(budgets)
    return None
