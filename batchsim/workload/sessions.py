"""Conversations: turns that carry everything said before, sent after the answer to the turn before."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from batchsim.errors import InvalidInput, problem
from batchsim.rng import stream
from batchsim.workload.arrivals import Closed, TraceArrivals
from batchsim.workload.columns import ABSENT, Int64, Prefixes, Workload
from batchsim.workload.description import Sessions, TrafficClass
from batchsim.workload.fields import MAX_REQUESTS, NS_PER_S
from batchsim.workload.parts import lengths_of, nanoseconds
from batchsim.workload.prefixes import offsets


def draw_sessions(description: Sessions, seed: int, base_dir: Path) -> Workload:
    """Every turn of every conversation, a conversation's turns one after the other.

    A turn that the server refuses ends its conversation: what would follow is never sent.
    """
    arrivals, count = description.arrivals, description.sessions
    assert not isinstance(arrivals, Closed | TraceArrivals)
    begin_ns = nanoseconds(arrivals.arrivals_s(stream(seed, "workload", "arrivals"), count, None))
    turns = description.turns.draw(count, stream(seed, "workload", "turns"), base_dir, "workload.turns")
    total = int(turns.sum())
    if total > MAX_REQUESTS:
        raise InvalidInput(
            [problem("workload.turns", f"{total:,} turns in all", f"at most {MAX_REQUESTS:,} are possible")]
        )
    session = np.repeat(np.arange(count, dtype=np.int64), turns)
    first = np.r_[True, session[1:] != session[:-1]]
    new, output, limit = lengths_of(_as_class(description), total, seed, base_dir, "workload")
    shared = description.shared_prefix_tokens or 0
    before = _said_before(new + output, first, turns) + shared
    return Workload(
        arrival_ns=begin_ns[session],
        prompt_tokens=before + new,
        output_tokens=output,
        max_tokens=limit,
        priority=np.full(total, description.priority, np.int64),
        tenant=np.zeros(total, np.int64),
        traffic_class=np.zeros(total, np.int64),
        session=session,
        cancel_ns=np.full(total, ABSENT, np.int64),
        tenants=(description.tenant,),
        sessions=tuple(f"s{number}" for number in range(count)),
        prefixes=_prefixes(first, before, shared),
        after=np.where(first, ABSENT, np.arange(total) - 1),
        think_ns=np.full(total, round(description.think_s * NS_PER_S), np.int64),
        max_concurrency=description.max_concurrency,
    )


def _as_class(description: Sessions) -> TrafficClass:
    return TrafficClass(
        name="default",
        share=1.0,
        prompt_tokens=description.prompt_tokens,
        output_tokens=description.output_tokens,
        max_tokens=description.max_tokens,
    )


def _said_before(tokens: Int64, first: np.ndarray[tuple[int], np.dtype[np.bool_]], turns: Int64) -> Int64:
    """Tokens of each turn's conversation before it: a running sum that starts anew with each conversation."""
    running = np.cumsum(tokens) - tokens
    return running - np.repeat(running[first], turns)


def _prefixes(first: np.ndarray[tuple[int], np.dtype[np.bool_]], before: Int64, shared: int) -> Prefixes | None:
    """A first turn begins with the shared tokens, if any (segment 0); every other with the turn before and its answer."""
    has = before > 0
    if not has.any():
        return None
    places = np.flatnonzero(has)
    segment = np.where(first[places], 0, -places)  # -(j + 1) for the turn before, j = place - 1
    return Prefixes(offsets(has.astype(np.int64)), segment.astype(np.int64), before[places])
