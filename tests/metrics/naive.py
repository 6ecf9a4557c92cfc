"""A naive simulator that writes down every token, and the records that the engine would have left of the same run.

Plain lists, one loop, no cleverness: what the metrics say of `records` is compared with numpy on `tokens`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from batchsim.records import FS_PER_NS, NEVER, Evictions, Iterations, Records, Requests, Spans, Status
from batchsim.workload.columns import ABSENT, Workload


@dataclass
class One:
    """A request of the naive run."""

    index: int
    replica: int
    arrival_fs: int
    prompt: int
    output: int
    tokens: list[int] = field(default_factory=list)  # ends of steps, ns
    ticks: list[int] = field(default_factory=list)  # the replica's tick of each token, 0: at no tick
    to_compute: int = 0
    admitted: int = NEVER
    waited: int = 0
    ran: int = 0
    since: int = 0
    preemptions: int = 0
    finished: int = NEVER
    evictions: list[tuple[int, int, int]] = field(default_factory=list)  # index, evicted, resumed (ns)


@dataclass(frozen=True)
class Price:
    """fs: duration = base + token * prefilled + seq * decoding + context * contexts."""

    base: int = 9_000_000_123_457
    token: int = 70_000_000_123
    seq: int = 500_000_000_077
    context: int = 13_000_123


@dataclass(frozen=True)
class Rules:
    """How the naive replica batches: chances are drawn each step."""

    seats: int = 4
    mixed: bool = True  # prompts and decodes share a step; else a prompt goes alone
    preempt: float = 0.0
    rest: float = 0.0
    collapse: bool = True
    replicas: int = 1
    horizon_fs: int | None = None
    price: Price = Price()


def half_up_ns(fs: int) -> int:
    """Whole nanoseconds, halves up."""
    return (fs + FS_PER_NS // 2) // FS_PER_NS


def requests_of(rows: list[tuple[float, int, int]], replicas: int = 1) -> list[One]:
    """(arrival in ms, prompt, output) -> requests, dealt to replicas in turn."""
    return [One(i, i % replicas, round(ms * 1e12), prompt, out) for i, (ms, prompt, out) in enumerate(rows)]


def random_rows(seed: int, count: int, rate_ms: float = 30.0, longest: int = 40) -> list[tuple[float, int, int]]:
    """Random requests in order of arrival, times in whole ns."""
    rng = random.Random(seed)
    at, rows = 0.0, []
    for _ in range(count):
        at = round(at + rng.expovariate(1 / rate_ms), 6)
        rows.append((at, rng.randint(1, 30), rng.choice([1, 1, 2, rng.randint(1, longest)])))
    return rows


def run(rows: list[tuple[float, int, int]], rules: Rules, seed: int = 0) -> tuple[list[One], Records]:
    """(requests with all their tokens, the records)."""
    everyone = requests_of(rows, rules.replicas)
    table: list[dict[str, Any]] = []
    for replica in range(rules.replicas):
        mine = [one for one in everyone if one.replica == replica]
        table += _replica(mine, rules, random.Random(seed * 100 + replica), replica)
    return everyone, _records(everyone, table, rules)


def _replica(mine: list[One], rules: Rules, rng: random.Random, replica: int) -> list[dict[str, Any]]:
    waiting: list[One] = []
    running: list[One] = []
    future = list(mine)
    now, ticks, table = 0, 0, list[dict[str, Any]]()
    limit = rules.horizon_fs
    while True:
        while future and future[0].arrival_fs <= now and (limit is None or future[0].arrival_fs < limit):
            one = future.pop(0)
            one.since, one.to_compute = half_up_ns(one.arrival_fs), one.prompt
            waiting.append(one)
        if not waiting and not running:
            if not future or (limit is not None and future[0].arrival_fs >= limit):
                break
            now = future[0].arrival_fs
            continue
        evicted = 0
        if len(running) > 1 and rng.random() < rules.preempt:
            victim = running.pop()
            victim.to_compute = victim.prompt + len(victim.tokens)
            victim.preemptions += 1
            victim.ran += half_up_ns(now) - victim.since
            victim.since = half_up_ns(now)
            victim.evictions.append((victim.index, victim.since, NEVER))
            waiting.insert(0, victim)
            evicted = 1
        elif waiting and len(running) < rules.seats and (evicted == 0):
            one = waiting.pop(0)
            one.waited += half_up_ns(now) - one.since
            one.since = half_up_ns(now)
            if one.evictions:
                one.evictions[-1] = (*one.evictions[-1][:2], one.since)
            one.admitted = half_up_ns(now) if one.admitted == NEVER else one.admitted
            running.append(one)
        prefill = [one for one in running if one.to_compute > 0][:1]
        decode = [one for one in running if one.to_compute == 0]
        if prefill and not rules.mixed:
            decode = []
        if len(decode) > 1 and rng.random() < rules.rest:
            decode.pop(rng.randrange(len(decode)))
        chunk = min(prefill[0].to_compute, 16) if prefill else 0
        context = sum(one.prompt + len(one.tokens) for one in decode)
        price = rules.price
        cost = price.base + price.token * chunk + price.seq * len(decode) + price.context * context
        start, now = now, now + cost
        if limit is not None and now > limit:
            break
        end = half_up_ns(now)
        steady = sum(1 for one in decode if ticks and one.ticks[-1] == ticks)
        key = (tuple(one.index for one in decode), evicted, chunk)
        row = {
            "key": key, "replica": replica, "start": start, "end": now, "repeats": 1, "prefill_tokens": chunk,
            "decode_seqs": len(decode), "context_tokens": context, "running": len(running), "waiting": len(waiting),
            "preempted": evicted, "tick_before": ticks, "steady_seqs": steady, "streaming_seqs": len(decode),
            "kv_first": len(running), "first_fs": cost, "growth_fs": price.context * len(decode),
        }  # fmt: skip
        last = table[-1] if table else None
        if rules.collapse and last and last["key"] == key and not chunk and not evicted and last["end"] == start:
            last.update(repeats=last["repeats"] + 1, end=now, running=len(running), waiting=len(waiting))
        else:
            table.append(row)
        if decode:
            ticks += 1
        for one in decode:
            one.tokens.append(end)
            one.ticks.append(ticks)
        for one in prefill:
            one.to_compute -= chunk
            if one.to_compute == 0:
                one.tokens.append(end)
                one.ticks.append(ticks if decode else 0)
        for one in [one for one in running if one.to_compute == 0 and len(one.tokens) == one.output]:
            running.remove(one)
            one.finished = end
            one.ran += end - one.since
    for one in running + waiting:
        stay = half_up_ns(limit or now) - one.since
        if one in running:
            one.ran += stay
        else:
            one.waited += stay
    for one in future:
        one.since = -2
    return table


def _records(everyone: list[One], table: list[dict[str, Any]], rules: Rules) -> Records:
    spans: list[tuple[int, int, int, int]] = []
    pooled: list[tuple[int, int, int]] = []  # gap, whose, when its token came
    longest: list[int] = []
    for one in everyone:
        odd: list[tuple[int, int, int]] = []
        for i in range(1, len(one.tokens)):
            before, tick = one.ticks[i - 1], one.ticks[i]
            if tick and tick == before + 1 and before:
                if spans and spans[-1][0] == one.index and spans[-1][3] == before:
                    spans[-1] = (*spans[-1][:3], tick)
                else:
                    spans.append((one.index, one.replica, before, tick))
            else:
                odd.append((one.tokens[i] - one.tokens[i - 1], one.index, one.tokens[i]))
        pooled += odd
        longest.append(max((gap for gap, _, _ in odd), default=0))
    status = []
    for one in everyone:
        ended = Status.COMPLETED if one.finished != NEVER else Status.UNSENT if one.since == -2 else None
        status.append(ended if ended is not None else Status.RUNNING if one.tokens else Status.WAITING)
    int64 = lambda values: np.array(list(values), dtype=np.int64)  # noqa: E731
    arrival = int64(half_up_ns(one.arrival_fs) for one in everyone)
    zeros = np.zeros(len(everyone), dtype=np.int64)
    workload = Workload(
        arrival_ns=arrival, prompt_tokens=int64(one.prompt for one in everyone),
        output_tokens=int64(one.output for one in everyone), max_tokens=zeros + ABSENT, priority=zeros, tenant=zeros,
        traffic_class=zeros, session=zeros + ABSENT, cancel_ns=zeros + ABSENT,
    )  # fmt: skip
    requests = Requests(
        status=np.array(status, dtype=np.int8), replica=int64(one.replica for one in everyone), arrival_ns=arrival,
        scheduled_ns=arrival, admitted_ns=int64(one.admitted for one in everyone),
        first_token_ns=int64(one.tokens[0] if one.tokens else NEVER for one in everyone),
        finished_ns=int64(one.finished for one in everyone), prompt_tokens=workload.prompt_tokens,
        output_tokens=workload.output_tokens, emitted_tokens=int64(len(one.tokens) for one in everyone),
        preemptions=int64(one.preemptions for one in everyone), recomputed_tokens=zeros, prefix_hit_tokens=zeros,
        resume_hit_tokens=zeros, waited_ns=int64(one.waited for one in everyone),
        ran_ns=int64(one.ran for one in everyone), odd_gap_ns=int64(longest), reasons={},
    )  # fmt: skip

    def column(name: str) -> Any:
        return int64(row[name] for row in table)

    start_fs = [row["start"] for row in table]
    iterations = Iterations(
        replica=column("replica"), start_ns=int64(fs // FS_PER_NS for fs in start_fs),
        end_ns=int64(half_up_ns(row["end"]) for row in table), repeats=column("repeats"),
        prefill_tokens=column("prefill_tokens"), prefill_s2_x2=column("prefill_tokens") * 0,
        decode_seqs=column("decode_seqs"), context_tokens=column("context_tokens"),
        padded_tokens=column("prefill_tokens") * 0, running=column("running"), waiting=column("waiting"),
        kv_blocks_used=column("running") * 3, kv_blocks_first=column("kv_first") * 3,
        preempted=column("preempted"), tick_before=column("tick_before"),
        steady_seqs=column("steady_seqs"), streaming_seqs=column("streaming_seqs"), first_fs=column("first_fs"),
        growth_fs=column("growth_fs"), start_frac_fs=int64(fs % FS_PER_NS for fs in start_fs),
    )  # fmt: skip
    parts = list(zip(*spans, strict=True)) if spans else [(), (), (), ()]
    horizon = None if rules.horizon_fs is None else half_up_ns(rules.horizon_fs)
    end_ns = horizon if horizon is not None else max((half_up_ns(row["end"]) for row in table), default=0)
    return Records(
        workload=workload, requests=requests, iterations=iterations,
        spans=Spans(*(int64(part) for part in parts), *(int64(row[at] for row in pooled) for at in range(3))),
        evictions=Evictions(*(int64(row[at] for one in everyone for row in one.evictions) for at in range(3))),
        end_ns=end_ns, horizon_ns=horizon,
        kv_blocks_total=100, block_size=16, replicas=rules.replicas,
    )  # fmt: skip


def linear(base_ms: float = 10, token_ms: float = 0.0, seq_ms: float = 0.0) -> Price:
    """The textbook prices of the practitioner cases."""
    return Price(round(base_ms * 1e12), round(token_ms * 1e12), round(seq_ms * 1e12), 0)
