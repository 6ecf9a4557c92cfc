"""From a description to a workload: every random choice of a run is made here, before the clock starts.

Each source of randomness has a named stream: the arrivals; the choice of classes; and for every class its prompt
lengths, answer lengths and declared limits. A class's k-th request is therefore the same whatever else is in the mix.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.random import Generator

from batchsim.errors import InvalidInput, problem
from batchsim.rng import stream
from batchsim.workload import traces
from batchsim.workload.arrivals import Arrivals, Closed, TraceArrivals, endless_rate
from batchsim.workload.columns import ABSENT, Clients, Int64, Prefixes, Workload, settled
from batchsim.workload.description import (
    Drawn,
    Listed,
    Mix,
    Sessions,
    TraceFile,
    TrafficClass,
    WorkloadDescription,
    check,
    ids_of,
)
from batchsim.workload.fields import MAX_REQUESTS, NS_PER_MS, NS_PER_S
from batchsim.workload.parts import lengths_of, nanoseconds, pool_of
from batchsim.workload.prefixes import offsets, stacked
from batchsim.workload.sessions import draw_sessions


def draw(description: WorkloadDescription, seed: int, base_dir: Path = Path()) -> Workload:
    """The requests of a run; the same `seed` gives the same bytes in every process.

    `base_dir`: the folder that paths in the description start from.
    Raises InvalidInput with paths from the scenario's root (`workload.requests[3].prefix`).
    """
    problems = check(description)
    if problems:
        raise InvalidInput(problems)
    if isinstance(description, Listed):
        return settled(_listed(description))
    if isinstance(description, TraceFile):
        return settled(_traced(description, base_dir))
    if isinstance(description, Sessions):
        return settled(draw_sessions(description, seed, base_dir))
    return settled(_mixed(description, seed, base_dir))


# --- drawn


def _mixed(description: Drawn | Mix, seed: int, base_dir: Path) -> Workload:
    if isinstance(description, Mix):
        classes, places = description.mix, [f"workload.mix[{at}]" for at in range(len(description.mix))]
    else:
        classes, places = (_only_class(description),), ["workload"]
    arrival_ns, notes = _arrival_ns(description, stream(seed, "workload", "arrivals"), base_dir)
    count = len(arrival_ns)
    chosen = _choice(classes, count, stream(seed, "workload", "class"))
    tenants = tuple(dict.fromkeys(entry.tenant for entry in classes))
    prompt, output, limit = (np.zeros(count, np.int64) for _ in range(3))
    shared, pooled, shared_tokens, pooled_tokens = (np.zeros(count, np.int64) for _ in range(4))
    segment = 0
    for at, entry in enumerate(classes):
        rows = np.flatnonzero(chosen == at)
        prompt[rows], output[rows], limit[rows] = lengths_of(entry, len(rows), seed, base_dir, places[at])
        pool = pool_of(entry, len(rows))
        if entry.shared_prefix_tokens is not None:
            shared[rows] = segment
            shared_tokens[rows] = np.minimum(entry.shared_prefix_tokens, prompt[rows])
            segment += 1
        if pool is not None:
            pooled[rows] = segment + pool
            pooled_tokens[rows] = prompt[rows] - shared_tokens[rows]
            segment += entry.distinct_prompts or 0
    cancel = [ABSENT if entry.cancel_ms is None else _ns(entry.cancel_ms, NS_PER_MS) for entry in classes]
    return Workload(
        arrival_ns=arrival_ns,
        prompt_tokens=prompt,
        output_tokens=output,
        max_tokens=limit,
        priority=np.array([entry.priority for entry in classes], np.int64)[chosen],
        tenant=np.array([tenants.index(entry.tenant) for entry in classes], np.int64)[chosen],
        traffic_class=chosen,
        session=np.full(count, ABSENT, np.int64),
        cancel_ns=np.array(cancel, np.int64)[chosen],
        tenants=tenants,
        classes=tuple(entry.name for entry in classes),
        prefixes=stacked([shared, pooled], [shared_tokens, pooled_tokens]),
        clients=_clients(description.arrivals),
        max_concurrency=description.max_concurrency,
        open_loop=not (isinstance(description.arrivals, Closed) or endless_rate(description.arrivals)),
        notes=notes,
    )


def _only_class(drawn: Drawn) -> TrafficClass:
    return TrafficClass(
        name="default",
        share=1.0,
        prompt_tokens=drawn.prompt_tokens,
        output_tokens=drawn.output_tokens,
        max_tokens=drawn.max_tokens,
        tenant=drawn.tenant,
        priority=drawn.priority,
        distinct_prompts=drawn.distinct_prompts,
        shared_prefix_tokens=drawn.shared_prefix_tokens,
        cancel_ms=drawn.cancel_ms,
    )


def _arrival_ns(description: Drawn | Mix, rng: Generator, base_dir: Path) -> tuple[Int64, tuple[str, ...]]:
    arrivals, count, duration_s = description.arrivals, description.requests, description.duration_s
    if isinstance(arrivals, Closed):
        assert count is not None
        return np.zeros(count, np.int64), ()
    if isinstance(arrivals, TraceArrivals):
        return _trace_arrivals(arrivals, count, duration_s, base_dir)
    arrival_ns = nanoseconds(arrivals.arrivals_s(rng, count, duration_s))
    if not len(arrival_ns):
        raise InvalidInput([problem("workload.duration_s", duration_s, "no request arrives before it; make it longer")])
    if len(arrival_ns) > MAX_REQUESTS:
        rule = f"more than {MAX_REQUESTS} requests arrive"
        raise InvalidInput([problem("workload.duration_s", duration_s, rule)])
    return arrival_ns, ()


def _trace_arrivals(
    arrivals: TraceArrivals, count: int | None, duration_s: float | None, base_dir: Path
) -> tuple[Int64, tuple[str, ...]]:
    """The trace's own times: all of them, the first `count`, or those before `duration_s`."""
    trace = traces.read(
        base_dir / arrivals.path,
        format=arrivals.format,
        speedup=arrivals.speedup,
        skip_invalid=arrivals.skip_invalid,
        where="workload.arrivals",
    )
    times = trace.workload.arrival_ns
    if count is not None and count > trace.rows:
        rule = f"{arrivals.path} has only {trace.rows} arrivals"
        raise InvalidInput([problem("workload.requests", count, rule)])
    if duration_s is not None:
        count = int(np.searchsorted(times, _ns(duration_s, NS_PER_S), side="left"))
    return times[:count], trace.workload.notes


def _choice(classes: tuple[TrafficClass, ...], count: int, rng: Generator) -> Int64:
    edges = np.cumsum([entry.share for entry in classes])[:-1]
    return np.searchsorted(edges, rng.random(count), side="right").astype(np.int64)


def _clients(arrivals: Arrivals | None) -> Clients | None:
    return Clients(arrivals.concurrency, _ns(arrivals.think_s, NS_PER_S)) if isinstance(arrivals, Closed) else None


def _ns(time: float, unit_ns: int) -> int:
    return round(time * unit_ns)


# --- written out, or read


def _listed(description: Listed) -> Workload:
    rows, ids = description.requests, ids_of(description)
    closed = description.arrivals is not None
    tenants = {name: at for at, name in enumerate(dict.fromkeys(entry.tenant for entry in rows))}
    sessions = {name: at for at, name in enumerate(dict.fromkeys(
        str(entry.session) for entry in rows if entry.session is not None))}  # fmt: skip

    def column(values: list[int]) -> Int64:
        return np.array(values, np.int64)

    def time(value_ms: float | None) -> int:
        return ABSENT if value_ms is None else _ns(value_ms, NS_PER_MS)

    arrival_ns = column([0 if closed else time(entry.arrival_ms) for entry in rows])
    return Workload(
        arrival_ns=arrival_ns,
        prompt_tokens=column([entry.prompt_tokens for entry in rows]),
        output_tokens=column([entry.output_tokens for entry in rows]),
        max_tokens=column([ABSENT if entry.max_tokens is None else entry.max_tokens for entry in rows]),
        priority=column([entry.priority for entry in rows]),
        tenant=column([tenants[entry.tenant] for entry in rows]),
        traffic_class=np.zeros(len(rows), np.int64),
        session=column([ABSENT if entry.session is None else sessions[str(entry.session)] for entry in rows]),
        cancel_ns=column([time(entry.cancel_ms) for entry in rows]),
        tenants=tuple(tenants),
        sessions=tuple(sessions),
        ids=tuple(ids),
        prefixes=_listed_prefixes(description, ids),
        clients=_clients(description.arrivals),
        max_concurrency=description.max_concurrency,
        open_loop=not closed and bool((arrival_ns != arrival_ns[0]).any()),
    )


def _listed_prefixes(description: Listed, ids: list[str]) -> Prefixes | None:
    rows = description.requests
    if not any(entry.prefix for entry in rows):
        return None
    place = {name: at for at, name in enumerate(ids)}
    number: dict[str, int] = {}
    segment = [
        -(place[name[4:]] + 1) if name.startswith("req:") else number.setdefault(name, len(number))
        for entry in rows
        for name, _ in entry.prefix
    ]
    tokens = [tokens for entry in rows for _, tokens in entry.prefix]
    counts = np.array([len(entry.prefix) for entry in rows])
    return Prefixes(offsets(counts), np.array(segment, np.int64), np.array(tokens, np.int64))


def _traced(description: TraceFile, base_dir: Path) -> Workload:
    closed = description.arrivals is not None
    trace = traces.read(
        base_dir / description.path,
        format=description.format,
        limit=description.limit,
        speedup=description.speedup,
        skip_invalid=description.skip_invalid,
        hash_block_tokens=description.hash_block_tokens,
        in_file_order=closed,
    )
    workload = trace.workload
    return replace(
        workload,
        arrival_ns=np.zeros(len(workload), np.int64) if closed else workload.arrival_ns,
        clients=_clients(description.arrivals),
        max_concurrency=description.max_concurrency,
        open_loop=not closed and bool(workload.arrival_ns.any()),
    )
