"""Random recordings for the oracles: small pools and budgets, so that preemptions, blocked heads and stuck ends abound.

`random_recording(seed)` is the same recording for the same seed; `recordings()` is the same generator as a hypothesis
strategy, which shrinks. A feature is None (chance decides), True or False.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Recording = dict[str, Any]


class Source(Protocol):
    """Where choices come from: a seeded generator, or hypothesis."""

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        ...


class Seeded:
    """Choices of a seeded generator."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self.random.randint(low, high)


class Drawn:
    """Choices of hypothesis, which shrink towards the lowest."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self.draw(st.integers(low, high))


def pick(source: Source, values: Sequence[T]) -> T:
    """One of these; the first is the simplest."""
    return values[source.integer(0, len(values) - 1)]


def chance(source: Source, percent: int) -> bool:
    """True in so many of a hundred cases."""
    return source.integer(0, 99) >= 100 - percent


def wanted(source: Source, feature: bool | None, percent: int) -> bool:
    """A feature as asked for, or by chance."""
    return chance(source, percent) if feature is None else feature


def random_recording(
    seed: int,
    *,
    caching: bool | None = None,
    async_: bool | None = None,
    priority: bool | None = None,
    threshold: bool | None = None,
    aborts: bool | None = None,
    eos: bool | None = None,
) -> Recording:
    """`config`, `requests` and `max_steps` for the vLLM V1 oracle, the same for the same seed and features."""
    return build(Seeded(seed), f"seed {seed}", caching, async_, priority, threshold, aborts, eos)


@st.composite
def recordings(
    draw: st.DrawFn,
    *,
    caching: bool | None = None,
    async_: bool | None = None,
    priority: bool | None = None,
    threshold: bool | None = None,
    aborts: bool | None = None,
    eos: bool | None = None,
) -> Recording:
    """Recordings for the vLLM V1 oracle as a hypothesis strategy."""
    return build(Drawn(draw), "drawn", caching, async_, priority, threshold, aborts, eos)


def build(
    source: Source,
    name: str,
    caching: bool | None,
    async_: bool | None,
    priority: bool | None,
    threshold: bool | None,
    aborts: bool | None,
    eos: bool | None,
) -> Recording:
    """A whole recording from a source of choices."""
    by_priority = wanted(source, priority, 40)
    with_cache = wanted(source, caching, 50)
    config = random_config(source, wanted(source, async_, 30), by_priority, wanted(source, threshold, 25))
    config["enable_prefix_caching"] = with_cache
    with_aborts = wanted(source, aborts, 15)
    with_eos = wanted(source, eos, 25)
    requests: list[dict[str, Any]] = []
    span = pick(source, [0, 5, 10, 25])
    longest = prompt_limit(source, config)
    segments = source.integer(1, 3)
    for place in range(source.integer(2, 14)):
        request = {"id": f"r{place}"} | random_lengths(source, config, longest)
        request["arrival_step"] = source.integer(0, span)
        if by_priority:
            request["priority"] = source.integer(0, 3)
            if chance(source, 20):
                request["arrival_time"] = source.integer(0, 2)
        if with_aborts and chance(source, 40):
            request["abort_step"] = request["arrival_step"] + source.integer(1, 25)
        if with_eos and chance(source, 60):
            request["stop"] = "eos"
        if with_cache and chance(source, 75):
            request["prefix"] = random_prefix(source, request["prompt_len"], segments, requests)
        requests.append(request)
    return {"name": name, "config": config, "requests": requests, "max_steps": 300}


def random_config(source: Source, is_async: bool, by_priority: bool, with_threshold: bool) -> dict[str, Any]:
    """A config that vLLM would start with; only the pool may be too small for one max_model_len request."""
    block_size = pick(source, [4, 1, 2, 3, 8, 16])
    usable = pick(source, [source.integer(3, 12), source.integer(6, 24), source.integer(12, 40), 60])
    budget = pick(source, [64, source.integer(2, 6), source.integer(4, 16), source.integer(8, 40)])
    seats = min(budget, pick(source, [16, 8, source.integer(1, 4), source.integer(3, 10)]))
    length = pick(source, [4096, source.integer(24, 80)])
    chunked = chance(source, 85)
    if not chunked:
        length = min(length, source.integer(16, 64))
        budget = max(budget, length)
    threshold = source.integer(1, max(1, budget // 2)) if with_threshold else 0
    return {
        "max_num_seqs": seats,
        "max_num_batched_tokens": budget,
        "max_num_scheduled_tokens": source.integer(1, budget) if chance(source, 15) else None,
        "max_num_active_seqs": source.integer(1, seats) if chance(source, 15) else None,
        "num_gpu_blocks": usable + 1,
        "block_size": block_size,
        "max_model_len": length,
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": threshold,
        "long_prefill_token_threshold_adaptive": with_threshold and chance(source, 40),
        "policy": "priority" if by_priority else "fcfs",
        "watermark": pick(source, [0.0, 0.0, 0.05, 0.1, 0.25]),
        "scheduler_reserve_full_isl": chance(source, 65),
        "async_scheduling": is_async,
    }


def prompt_limit(source: Source, config: dict[str, Any]) -> int:
    """The longest prompt: below max_model_len, and at times a little over the pool."""
    pool: int = (config["num_gpu_blocks"] - 1) * config["block_size"]
    share = pick(source, [4, 3, 2, 1])
    model_len: int = config["max_model_len"]
    return max(1, min(model_len - 1, pool // share + source.integer(0, 2), 90))


def random_lengths(source: Source, config: dict[str, Any], longest: int) -> dict[str, Any]:
    """Prompt and output of one request, often on or beside the edge of a block."""
    prompt = source.integer(1, longest)
    if chance(source, 30):
        prompt = max(1, min(longest, prompt // config["block_size"] * config["block_size"] + source.integer(0, 1)))
    pool: int = (config["num_gpu_blocks"] - 1) * config["block_size"]
    output = pick(source, [source.integer(1, 4), source.integer(2, 20), source.integer(10, 40), source.integer(10, 40)])
    if not chance(source, 2):  # more than the pool holds: stuck once it is alone
        output = max(1, min(output, pool + 1 - prompt))
    return {"prompt_len": prompt, "output_len": output}


def random_prefix(source: Source, prompt: int, segments: int, before: list[dict[str, Any]]) -> list[list[Any]]:
    """What the head of a prompt shares: named segments, or an earlier request's prompt and output."""
    if before and chance(source, 40):
        other = pick(source, before)
        shared = min(prompt, other["prompt_len"] + other["output_len"])
        return [[f"req:{other['id']}", shared if chance(source, 70) else source.integer(1, shared)]]
    first = source.integer(1, prompt)
    if chance(source, 50):
        first = prompt
    prefix: list[list[Any]] = [[f"s{source.integer(0, segments)}", first]]
    if first < prompt and chance(source, 40):
        prefix.append([f"t{source.integer(0, segments)}", source.integer(1, prompt - first)])
    return prefix


def random_sarathi_recording(seed: int, policy: str | None = None) -> Recording:
    """`config`, `requests` and `max_steps` for sarathi-serve's oracle, the same for the same seed and policy."""
    source = Seeded(seed)
    block_size = pick(source, [4, 1, 2, 3, 8, 16])
    length = source.integer(16, 60)
    whole = -(-length // block_size)
    budget = source.integer(4, 48)
    config = {
        "policy": policy or pick(source, ["sarathi", "vllm", "orca", "faster_transformer"]),
        "max_num_seqs": pick(source, [16, source.integer(1, 4)]),
        "chunk_size": budget,
        "max_batched_tokens": pick(source, [None, source.integer(length, 2 * length)]),
        "num_gpu_blocks": whole + pick(source, [source.integer(1, whole), source.integer(0, 4 * whole), 200]),
        "block_size": block_size,
        "max_model_len": length,
    }
    span = pick(source, [0, 5, 15, 40])
    requests = []
    for place in range(source.integer(1, 14)):
        prompt = source.integer(1, length - 1)
        output = source.integer(1, min(length - prompt, 40))
        if chance(source, 5):
            prompt = length + source.integer(1, 20)
        row = {"id": f"r{place}", "prompt_len": prompt, "output_len": output, "arrival_step": source.integer(0, span)}
        requests.append(row)
    return {"name": f"seed {seed}", "config": config, "requests": requests, "max_steps": 400}
