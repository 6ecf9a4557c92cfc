"""The summary of a run: one flat mapping with the outside contract's names, in a fixed order, undefined as None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.metrics import burden, fairness, fleet, latency, throughput
from batchsim.metrics.itl import gaps_of, itl_stats_ns, stats_ns
from batchsim.metrics.percentiles import PERCENTS, Stats, describe, samples_needed, too_few
from batchsim.metrics.sharing import shared_sub_block_tokens
from batchsim.metrics.slo import Slo, Verdict, judge
from batchsim.metrics.stable import Stability, stability
from batchsim.metrics.throughput import Span, per_second
from batchsim.metrics.windows import Window, window_section
from batchsim.records import Records, Requests, Status

Bools = NDArray[np.bool_]
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E"}


@dataclass(frozen=True, slots=True)
class SummaryContext:
    """What a summary needs to know beside the records.

    gpus: the one count that cost uses.  slo: targets by class name.  gpu_hour: money for a GPU-hour, if priced.
    extrapolated: share of the iterations priced outside the cost model's calibrated range, None without such a range.
    warnings: sentences from before and during the run.  scenario: as run, defaults filled in.
    window: a part of the run to report beside the whole.
    """

    gpus: int = 1
    slo: Mapping[str, Slo] = field(default_factory=dict)
    gpu_hour: float | None = None
    extrapolated: float | None = None
    warnings: tuple[str, ...] = ()
    scenario: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    window: Window | None = None


def summary(records: Records, context: SummaryContext) -> dict[str, Any]:
    """Every figure of a run. Several classes of traffic add `classes`, several tenants `tenants`, a window `window`."""
    requests, iterations, workload = records.requests, records.iterations, records.workload
    span = throughput.span_of(records)
    verdict = judge(records, context.slo)
    rates = stability(records)
    stats = _latencies(records)
    status = np.bincount(requests.status, minlength=len(Status)).tolist()
    tokens_out = int(requests.emitted_tokens.sum())
    tokens_in = throughput.input_tokens(records)
    result: dict[str, Any] = {
        "duration": span.seconds,
        "completed": status[Status.COMPLETED],
        "failed": status[Status.REJECTED] + status[Status.CANCELLED],
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "request_throughput": per_second(status[Status.COMPLETED], span),
        "request_goodput": _goodput(verdict, span),
        "output_throughput": per_second(tokens_out, span),
        "total_token_throughput": per_second(tokens_in + tokens_out, span),
    }
    for name in LATENCIES:
        result |= latency.stat_keys(name, stats[name])
    result |= {
        "submitted": len(requests) - status[Status.UNSENT],
        "rejected": status[Status.REJECTED],
        "cancelled": status[Status.CANCELLED],
        "running_at_end": status[Status.RUNNING],
        "waiting_at_end": status[Status.WAITING],
        "preemptions": int(requests.preemptions.sum()),
        "recomputed_tokens": int(requests.recomputed_tokens.sum()),
        "prefix_hit_tokens": int(requests.prefix_hit_tokens.sum()),
        "resume_hit_tokens": int(requests.resume_hit_tokens.sum()),
        "iterations": int(iterations.repeats.sum()),
        "gpus": context.gpus,
        "gpu_busy_fraction": throughput.gpu_busy_fraction(records, span),
        "mean_running": throughput.mean_running(records, span),
        "mean_waiting": throughput.mean_waiting(records, span),
        "kv_blocks_total": records.kv_blocks_total,
        "kv_peak_fraction": throughput.kv_peak_fraction(records),
        "kv_mean_fraction": throughput.kv_mean_fraction(records, span),
        "slo_attainment": verdict.attainment(),
        "cost_per_million_output_tokens": throughput.cost_per_million_output_tokens(
            context.gpus, context.gpu_hour, span, tokens_out
        ),
        "stable": rates.stable,
        "extrapolated": context.extrapolated,
    }
    result |= _extras(records, verdict, rates, span)
    result |= _fleet(records, context, span, tokens_out)
    result |= burden.burdens(records, span, context.scenario.get("scheduler") or {})
    if workload.max_concurrency is not None:
        result |= _client_side(records)
    if len(workload.classes) > 1:
        result["classes"] = _classes(records, verdict, span)
    if len(workload.tenants) > 1:
        result["tenants"] = _tenants(records)
    if context.window is not None:
        result["window"] = window_section(records, context.window, span)
    result["warnings"] = [*context.warnings, *_warnings(records, result, stats, rates)]
    return result | {"scenario": dict(context.scenario), "versions": dict(context.versions)}


def _latencies(records: Records, members: Bools | None = None) -> dict[str, Stats]:
    """Statistics in ns of the four latencies, of everyone or of some."""
    requests = records.requests
    columns: dict[str, NDArray[Any]] = {
        "ttft": latency.ttft_ns(requests),
        "tpot": latency.tpot_ns(requests),
        "e2el": latency.e2e_ns(requests),
    }
    if members is None:
        itl = itl_stats_ns(records)
    else:
        itl = stats_ns(gaps_of(records, members))
        columns = {name: column[members] for name, column in columns.items()}
    found = {name: describe(latency.defined(column)) for name, column in columns.items()}
    return {"ttft": found["ttft"], "tpot": found["tpot"], "itl": itl, "e2el": found["e2el"]}


def _goodput(verdict: Verdict, span: Span, members: Bools | None = None) -> float | None:
    """Good requests per second; None without targets."""
    judged = verdict.judged if members is None else verdict.judged & members
    return per_second(int((verdict.good & judged).sum()), span) if judged.any() else None


def _extras(records: Records, verdict: Verdict, rates: Stability, span: Span) -> dict[str, Any]:
    """What the contract's keys leave out and people ask for next."""
    return {
        "padded_fraction": throughput.padded_fraction(records.iterations),
        "slo_attainment_by_target": verdict.attainment_by_target() or None,
        "offered_rate_per_s": rates.offered_per_s,
        "served_rate_per_s": rates.served_per_s,
        "mean_queue_ms": _mean_queue_ms(records),
        "censored_requests": _unfinished(records),
        "shared_sub_block_tokens": shared_sub_block_tokens(records),
    }


def _mean_queue_ms(records: Records, members: Bools | None = None) -> float | None:
    queue = latency.queue_ns(records.requests)
    queue = queue if members is None else queue[members]
    return describe(latency.defined(queue)).scaled(latency.NS_PER_MS).mean


def _fleet(records: Records, context: SummaryContext, span: Span, tokens_out: int) -> dict[str, Any]:
    """What GPUs yield each; with several replicas what routers did again; with several groups each of them."""
    result = fleet.per_gpu(records, context.gpus, span, tokens_out)
    if records.replicas > 1 and records.pools:
        result["retries"] = records.retries
    if len(records.pools) > 1:
        result["groups"] = fleet.groups(records, span)
    if records.handoffs is not None:
        result["phases"] = fleet.phases(records)
    return result


def _unfinished(records: Records) -> int:
    return int(np.isin(records.requests.status, (Status.RUNNING, Status.WAITING)).sum())


def _client_side(records: Records) -> dict[str, Any]:
    """Behind a client's own cap: its queue, and latencies counted from the schedule (SLOs count from the server's)."""
    requests = records.requests
    result = latency.stat_keys("client_queue", describe(latency.defined(latency.client_queue_ns(requests))))
    ttft, e2e = latency.from_schedule_ttft_ns(requests), latency.from_schedule_e2e_ns(requests)
    result |= latency.stat_keys("from_schedule_ttft", describe(latency.defined(ttft)))
    return result | latency.stat_keys("from_schedule_e2el", describe(latency.defined(e2e)))


def _classes(records: Records, verdict: Verdict, span: Span) -> dict[str, Any]:
    """The same figures of each class of traffic."""
    requests, workload = records.requests, records.workload
    sections: dict[str, Any] = {}
    for number, name in enumerate(workload.classes):
        members = workload.traffic_class == number
        status = np.bincount(requests.status[members], minlength=len(Status)).tolist()
        section: dict[str, Any] = {
            "submitted": int(members.sum()) - status[Status.UNSENT],
            "completed": status[Status.COMPLETED],
            "failed": status[Status.REJECTED] + status[Status.CANCELLED],
            "request_throughput": per_second(status[Status.COMPLETED], span),
            "request_goodput": _goodput(verdict, span, members),
            "output_throughput": per_second(int(requests.emitted_tokens[members].sum()), span),
            "slo_attainment": verdict.attainment(members),
            "slo_attainment_by_target": verdict.attainment_by_target(members) or None,
            "preemptions": int(requests.preemptions[members].sum()),
            "preemptions_per_s": per_second(int(requests.preemptions[members].sum()), span),
            "recomputed_tokens": int(requests.recomputed_tokens[members].sum()),
            "recomputed_tokens_per_s": per_second(int(requests.recomputed_tokens[members].sum()), span),
            "longest_wait_ms": fairness.longest_wait_ms(records, members),
            "mean_queue_ms": _mean_queue_ms(records, members),
            "mean_service_ms": burden.mean_service_ms(records, members),
            "queue_share": burden.queue_share(records, members),
            "jain_weighted_tokens": burden.jain_weighted_tokens(records, members),
        }
        for key, stats in _latencies(records, members).items():
            section |= latency.stat_keys(key, stats)
        sections[name] = section
    return sections


def _tenants(records: Records) -> dict[str, Any]:
    """How evenly tenants were served."""
    workload = records.workload
    tokens, weighted = fairness.output_tokens_by_tenant(records), burden.weighted_tokens(records)
    return {
        "jain_weighted_tokens": fairness.jain(weighted),
        "weighted_tokens": dict(zip(workload.tenants, weighted.tolist(), strict=True)),
        "jain_output_tokens": fairness.jain(tokens),
        "output_tokens": dict(zip(workload.tenants, tokens.tolist(), strict=True)),
        "longest_wait_ms": {
            name: fairness.longest_wait_ms(records, workload.tenant == number)
            for number, name in enumerate(workload.tenants)
        },
    }


def hardly_waits(result: Mapping[str, Any]) -> bool:
    """Nearly all the time is spent in a seat and nobody lost one: a growing backlog is then no queue."""
    return result["preemptions"] == 0 and (result["queue_share"] or 0.0) < 0.05


def _warnings(records: Records, result: Mapping[str, Any], stats: Mapping[str, Stats], rates: Stability) -> list[str]:
    """One sentence for each thing that makes a figure less than it looks, and what to do."""
    found: list[str] = []
    few = {name: lacking for name, s in stats.items() if (lacking := too_few(s.n))}
    if few:
        worst = {percent for lacking in few.values() for percent in lacking}
        labels = ", ".join(f"{LATENCIES[name]} (n={stats[name].n})" for name in few)
        percents = ", ".join(f"p{percent}" for percent in PERCENTS if percent in worst)
        found.append(
            f"{percents} of {labels}: too few samples to rely on: use at least "
            f"{max(samples_needed(percent) for percent in worst)} requests"
        )
    if rates.stable is False:
        told = f"{rates.offered_per_s:.3g} req/s offered, {rates.served_per_s:.3g} served"
        if hardly_waits(result):
            found.append(
                f"requests in flight still grow ({told} while they came) although hardly any wait: too short a run to "
                "tell whether it keeps up; use more requests"
            )
        else:
            found.append(f"queue grows without bound: {told}; lower the rate or add replicas")
    if records.stuck is not None:
        found.append(f"no progress: {records.stuck}, and nothing was left to happen before the horizon")
    if unfinished := result["censored_requests"]:
        found.append(
            f"{unfinished:,} of {result['submitted']:,} requests were unfinished at the end: latencies are censored, "
            "too low for those that waited longest; raise horizon_s or lower the rate"
        )
    if result["submitted"] and not result["completed"]:
        found.append("nothing completed: latencies are undefined; see the reasons in requests.csv (--out)")
    elif rejected := result["rejected"]:
        found.append(f"{rejected:,} requests were rejected, the first: {_first_reason(records.requests)}")
    return found


def _first_reason(requests: Requests) -> str:
    """Why the one that arrived first of those rejected was."""
    rejected = np.flatnonzero(requests.status == Status.REJECTED)
    return requests.reasons[int(rejected[requests.arrival_ns[rejected].argmin()])]
