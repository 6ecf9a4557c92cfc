"""What a fleet's groups did, what each GPU yielded, and the phases of requests whose prompt and decode stand apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchsim.compact import Int64, narrow, part
from batchsim.metrics.latency import NS_PER_MS, completed, defined
from batchsim.metrics.percentiles import describe
from batchsim.metrics.throughput import Span, busy_ns, per_second
from batchsim.records import NEVER, Handoffs, Pool, Records, Requests

PHASES = ("prefill_queue", "prefill", "memory_wait", "transfer", "decode_queue", "decode")
"""In order; they add up to E2E."""


def per_gpu(records: Records, gpus: int, span: Span, tokens_out: int) -> dict[str, Any]:
    """Rates by the GPUs owned, and by those of replicas that ran a step; `{}` where the records name no groups."""
    if not records.pools:
        return {}
    ran = np.flatnonzero(np.bincount(narrow(records.iterations, "replica")))
    used = int(np.repeat([p.gpus_per_replica for p in records.pools], [p.replicas for p in records.pools])[ran].sum())
    result: dict[str, Any] = {"used_gpus": used}
    done = int(completed(records.requests).sum())
    for name, count in (("request_throughput", done), ("output_throughput", tokens_out)):
        rate = per_second(count, span)
        for label, number in (("owned", gpus), ("used", used)):
            result[f"{name}_per_{label}_gpu"] = None if rate is None or not number else rate / number
    return result


def groups(records: Records, span: Span) -> list[dict[str, Any]]:
    """One entry a group of replicas."""
    return [_group(records, pool, span) for pool in records.pools]


def _group(records: Records, pool: Pool, span: Span) -> dict[str, Any]:
    rows = records.iterations
    replica = narrow(rows, "replica")
    first, last = np.searchsorted(replica, [pool.first, pool.first + pool.replicas])
    mine = slice(int(first), int(last))
    used = part(rows, "kv_blocks_used", mine)
    requests = records.requests
    here = (requests.replica >= pool.first) & (requests.replica < pool.first + pool.replicas)
    return {
        "name": pool.name,
        "role": pool.role,
        "gpu": pool.gpu,
        "replicas": pool.replicas,
        "gpus": pool.replicas * pool.gpus_per_replica,
        "kv_blocks_total": pool.kv_blocks,
        "completed": int((here & completed(requests)).sum()),
        "iterations": int(part(rows, "repeats", mine).sum()),
        "gpu_busy_fraction": None if span.ns <= 0 else busy_ns(rows, mine, span) / (span.ns * pool.replicas),
        "kv_peak_fraction": float(used.max(initial=0)) / pool.kv_blocks,
    }


def phases_ns(requests: Requests, handoffs: Handoffs) -> dict[str, Int64]:
    """The six phases of every request, ns; NEVER where one did not end or did not come.

    prefill_queue: until a step schedules it.  prefill: until its prompt is computed, evictions included.  memory_wait:
    until the decode side holds blocks for it.  transfer: until its KV is there, the wait for the link included.
    decode_queue: until a step there schedules it.  decode: until its last token.
    """
    done = np.where(completed(requests), requests.finished_ns, NEVER)
    edges = [
        requests.arrival_ns, requests.admitted_ns, handoffs.prefilled_ns, handoffs.pulled_ns, handoffs.landed_ns,
        handoffs.decode_ns, done,
    ]  # fmt: skip
    return {
        name: np.where((start == NEVER) | (end == NEVER), NEVER, end - start)
        for name, start, end in zip(PHASES, edges, edges[1:], strict=False)
    }


def phases(records: Records) -> dict[str, dict[str, float | int | None]]:
    """Mean, percentiles and longest of each phase, ms."""
    assert records.handoffs is not None
    found: dict[str, dict[str, float | int | None]] = {}
    for name, column in phases_ns(records.requests, records.handoffs).items():
        ms = describe(defined(column)).scaled(NS_PER_MS)
        p50, p90, _, p99 = ms.percentiles
        found[name] = {"mean_ms": ms.mean, "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": ms.max, "n": ms.n}
    return found
