"""Pieces that every drawn workload is made of: lengths of a class, and times as nanoseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import Generator

from batchsim.errors import InvalidInput, problem
from batchsim.rng import stream
from batchsim.workload.columns import ABSENT, Int64
from batchsim.workload.description import TrafficClass
from batchsim.workload.fields import MAX_TIME_S, NS_PER_S, FloatArray


def lengths_of(entry: TrafficClass, count: int, seed: int, base_dir: Path, place: str) -> tuple[Int64, Int64, Int64]:
    """(prompt tokens, output tokens, declared limits) of the class's requests; answers are cut to their limit."""

    def named(what: str) -> Generator:
        return stream(seed, "workload", what, entry.name)

    pool = pool_of(entry, count)
    prompts = count if entry.distinct_prompts is None else min(count, entry.distinct_prompts)
    prompt = entry.prompt_tokens.draw(prompts, named("prompt_tokens"), base_dir, f"{place}.prompt_tokens")
    if pool is not None:
        prompt = prompt[pool]
    output = entry.output_tokens.draw(count, named("output_tokens"), base_dir, f"{place}.output_tokens")
    if entry.max_tokens is None:
        return prompt, output, np.full(count, ABSENT, np.int64)
    if isinstance(entry.max_tokens, int):
        limit = np.full(count, entry.max_tokens, np.int64)
    else:
        limit = entry.max_tokens.draw(count, named("max_tokens"), base_dir, f"{place}.max_tokens")
    return prompt, np.minimum(output, limit), limit


def pool_of(entry: TrafficClass, count: int) -> Int64 | None:
    """Which prompt of its pool each request of the class takes, or None where prompts are all different."""
    return None if entry.distinct_prompts is None else np.arange(count) % entry.distinct_prompts


def nanoseconds(times_s: FloatArray) -> Int64:
    if len(times_s) and not times_s[-1] <= MAX_TIME_S:
        rule = f"the last request would arrive at {times_s[-1]:.3g} s; at most {MAX_TIME_S} s is possible"
        raise InvalidInput([problem("workload.arrivals", None, rule)])
    return np.rint(times_s * NS_PER_S).astype(np.int64)
