"""What no fleet can beat: the time of a request that has a replica to itself, and the work that must be done at all.

Both come from the cost model without a simulation. A request alone takes each chunk of its prompt and each of its
tokens by itself; sharing a step never makes it faster. Work is counted at the best batching that seats, KV memory and
token budget allow, so a fleet below the bound serves less than is offered, however it schedules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchsim.cost.model import Shape
from batchsim.records import FS_PER_NS
from batchsim.scenario.resolve import Resolved
from batchsim.scheduler import attribute
from batchsim.study.targets import Figure, Goal, judged
from batchsim.workload.columns import Int64, Workload

Float64 = NDArray[np.float64]
FS_PER_S = 1e15
RESOURCES = ("compute", "kv", "token_budget", "seats")
SEATS = ("max_num_active_seqs", "max_num_seqs", "max_batch_size", "batch_size")
BUDGETS = ("max_num_batched_tokens", "max_num_tokens", "max_batch_prefill_tokens", "chunk_size", "max_prefill_tokens")


@dataclass(frozen=True, slots=True)
class Alone:
    """Every request with a replica to itself, ns: to the first token, per token after it, to the end, longest gap."""

    ttft_ns: Float64
    tpot_ns: Float64
    e2e_ns: Float64
    itl_ns: Float64


@dataclass(frozen=True, slots=True)
class Work:
    """Replicas' worth of each resource that the offered rate takes at least, and what one token costs.

    load: replicas needed by resource, not rounded; None where the arrivals have no rate.
    prompt_s, output_s: GPU time of one token of either kind at the best batching, seconds of a replica.
    """

    load: dict[str, float] | None
    prompt_s: float
    output_s: float

    def replicas(self) -> int:
        """The lower bound: the largest load, rounded up."""
        return 1 if self.load is None else max(1, math.ceil(max(self.load.values()) - 1e-9))


def seats_of(resolved: Resolved) -> int | None:
    """Requests that a replica runs at once, as its scheduler's parameters say; None where they do not."""
    return _parameter(resolved, SEATS)


def budget_of(resolved: Resolved) -> int | None:
    """Tokens of one step, as the scheduler's parameters say; None where they do not."""
    return _parameter(resolved, BUDGETS)


def _parameter(resolved: Resolved, names: Sequence[str]) -> int | None:
    scheduler = resolved.scheduler()
    found = (attribute(scheduler, name, None) for name in names)
    return next((value for value in found if isinstance(value, int) and value > 0), None)


def alone(resolved: Resolved, workload: Workload) -> Alone:
    """Latencies that no fleet size, load or luck improves on; shared prefixes count as cached if there is a cache."""
    prompt, output = workload.prompt_tokens, workload.output_tokens
    cached = _shared_tokens(resolved, workload)
    kinds, where = np.unique(np.stack([prompt, cached, output]), axis=1, return_inverse=True)
    ttft, gap, last = (np.zeros(kinds.shape[1]) for _ in range(3))
    for place, (tokens, past, answer) in enumerate(kinds.T.tolist()):
        ttft[place] = _prefill_fs(resolved, tokens, past) / FS_PER_NS
        gap[place], last[place] = (value / FS_PER_NS for value in _decode_fs(resolved, tokens, answer))
    where = where.reshape(-1)
    first, each = ttft[where] + resolved.ingress_ns, gap[where]
    return Alone(first, each, first + each * np.maximum(output - 1, 0), last[where])


def floor(resolved: Resolved, workload: Workload, goals: Sequence[Goal]) -> tuple[Figure, ...]:
    """The figures that every target has at least, whatever the fleet: where one fails, no size passes.

    A request that the front door turns away is infinitely late at any size.
    """
    best = alone(resolved, workload)
    refused = _refused(resolved, workload)
    columns = {"ttft_ms": best.ttft_ns, "tpot_ms": best.tpot_ns, "e2e_ms": best.e2e_ns, "itl_ms": best.itl_ns}
    values = {name: np.where(refused, np.inf, np.floor(column)) for name, column in columns.items()}
    return judged(goals, values, {goal.name: goal.members(workload) for goal in goals}, workload.output_tokens > 1)


def work(resolved: Resolved, workload: Workload, rate_per_s: float | None) -> Work:
    """The least that the offered rate takes of each resource."""
    kept = np.flatnonzero(~_refused(resolved, workload))
    if not len(kept):
        return Work(None, 0.0, 0.0)
    prompt = (workload.prompt_tokens - _shared_tokens(resolved, workload))[kept]
    output = workload.output_tokens[kept]
    context = workload.prompt_tokens[kept] + output / 2
    seats, budget = seats_of(resolved), budget_of(resolved)
    together = max(1, int(min(seats or 10**9, resolved.capacity.tokens / context.mean(), budget or 10**9)))
    decodes = output - 1
    mean_context = float((context * decodes).sum() / decodes.sum()) if decodes.any() else float(context.mean())
    step_fs = _price(resolved, Shape(0, 0, 0, 0, together, int(together * mean_context))) if decodes.any() else 0
    output_s = step_fs / together / FS_PER_S
    prompt_s, full_s = _prefill_s(resolved, prompt, budget, together, mean_context, step_fs)
    if rate_per_s is None:
        return Work(None, prompt_s, output_s)
    best = alone(resolved, workload)
    stay_s = best.e2e_ns[kept] / 1e9 - resolved.ingress_ns / 1e9
    load = {
        "compute": rate_per_s * float((prompt * prompt_s + decodes * output_s).mean()),
        "kv": rate_per_s * float((prompt + output / 2) @ stay_s) / len(kept) / resolved.capacity.tokens,
    }
    if budget is not None and full_s > 0:
        load["token_budget"] = rate_per_s * float((prompt + decodes).mean()) * full_s / budget
    if seats is not None:
        load["seats"] = rate_per_s * float(stay_s.mean()) / seats
    return Work(load, prompt_s, output_s)


def _prefill_s(
    resolved: Resolved, prompt: Int64, budget: int | None, together: int, context: float, step_fs: int
) -> tuple[float, float]:
    """(seconds of a prompt token that rides along with a full decode step, seconds of the shortest full step)."""
    chunk = max(1, (budget - together) if budget is not None and budget > together else int(prompt.mean()))
    shape = Shape(chunk, chunk * chunk, 0, 1, together if step_fs else 0, int(together * context) if step_fs else 0)
    small = max(
        1, min(chunk, int(prompt.mean()))
    )  # attention of one long prompt is dearer than that of many short ones
    shape = shape._replace(prefill_s2_x2=chunk * small)
    riding = max(0, _price(resolved, shape) - step_fs) / chunk / FS_PER_S
    tokens = budget or chunk
    pure = _price(resolved, Shape(tokens, tokens * min(small, tokens), 0, 1, 0, 0)) / FS_PER_S
    return min(riding, pure / tokens), min(pure, riding * tokens)


def _price(resolved: Resolved, shape: Shape) -> int:
    return resolved.cost.price(shape)[0]


def _prefill_fs(resolved: Resolved, prompt: int, cached: int) -> int:
    """A prompt alone, in chunks of the budget."""
    budget, past, total = budget_of(resolved) or prompt, cached, 0
    while past < prompt:
        chunk = min(budget, prompt - past)
        total += _price(resolved, Shape(chunk, chunk * (2 * past + chunk), past, 1, 0, 0))
        past += chunk
    return total


def _decode_fs(resolved: Resolved, prompt: int, output: int) -> tuple[float, int]:
    """(mean gap, longest gap) of a request that decodes alone; 0 for a one-token answer."""
    steps = output - 1
    if steps < 1:
        return 0.0, 0
    first, growth = resolved.cost.price(Shape(0, 0, 0, 0, 1, prompt + 1))
    if growth is None:  # not affine: the first step stands for all, which is no bound from above
        return float(first), first
    return first + growth * (steps - 1) / 2, first + growth * (steps - 1)


def _shared_tokens(resolved: Resolved, workload: Workload) -> Int64:
    """Prompt tokens that a prefix cache could give at best; 0 without one. One token at least is always computed."""
    nothing = np.zeros(len(workload), np.int64)
    if workload.prefixes is None or not attribute(resolved.scheduler(), "caching", False):
        return nothing
    from batchsim.workload.prefixes import rows_of

    np.add.at(nothing, rows_of(workload.prefixes), workload.prefixes.tokens)
    return np.minimum(nothing, workload.prompt_tokens - 1)


def _refused(resolved: Resolved, workload: Workload) -> NDArray[np.bool_]:
    """Requests that the front door turns away at any load."""
    declared = np.where(workload.max_tokens > 0, workload.max_tokens, workload.output_tokens)
    blocks = -(-(workload.prompt_tokens + declared - 1) // resolved.capacity.block_size)
    long = workload.prompt_tokens + declared > resolved.max_model_len
    return np.asarray((blocks > resolved.capacity.blocks) | long)
