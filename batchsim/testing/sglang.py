"""Recordings of SGLang: the same engine and scheduler as `run`, one turn of its event loop a step.

The front door is off: SGLang's own cuts of limits and prompts are made here. Steps carry the recordings' keys; those of
`retracted` stand under `preempted` too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from batchsim.engine import Engine
from batchsim.kv.content import Contents, Path
from batchsim.kv.radix import RadixCache
from batchsim.recorder import Recorder
from batchsim.request import Request
from batchsim.schedulers.sglang import Sglang
from batchsim.workload.columns import Prefixes

MAX_STEPS = 600
STUCK_STEPS = 3
ENDLESS = 1 << 60
EOS = "\0eos"
"""The segment of the one token that all requests end with."""
STUB = 1 << 40
"""The segment of the one token that is left of a prompt that is too long."""

DEFAULTS: Mapping[str, Any] = {
    "max_total_tokens": 400, "max_running_requests": 16, "max_prefill_tokens": 256, "chunked_prefill_size": 64,
    "context_length": 4096, "disable_radix_cache": True, "overlap": False,
}  # fmt: skip
"""Of the recordings, where they are not SGLang's own."""
RENAMED = {
    "decay_steps": "new_token_ratio_decay_steps",
    "clip_max_new_tokens": "clip_max_new_tokens_estimation",
    "in_batch_check": "in_batch_prefix_caching_check_threshold",
    "in_batch_deprioritize": "in_batch_prefix_caching_deprioritize_threshold",
}

Row = Mapping[str, Any]
Recording = Mapping[str, Any]


def recognized(recording: Recording) -> bool:
    """Whether this is a recording of SGLang."""
    return "sglang_version" in recording or bool({"max_total_tokens", "schedule_policy"} & set(recording["config"]))


def replay(recording: Recording) -> list[dict[str, Any]]:
    """The steps, to the end, a stand-still, `max_steps`, or the step in which the real process would die."""
    player = Player(recording)
    steps: list[dict[str, Any]] = []
    barren = 0
    patience = STUCK_STEPS + player.scheduler.prefill_decode_interval
    for number in range(int(recording.get("max_steps", MAX_STEPS))):
        step = player.step(number)
        if step is None:
            break
        steps.append(step)
        barren = 0 if step["total"] or number < player.last_arrival else barren + 1
        if player.over(number) or barren == patience:
            break
    return steps


class Player:
    """The engine of one recording, driven by step numbers instead of a clock."""

    def __init__(self, recording: Recording) -> None:
        config = {**DEFAULTS, **recording["config"]}
        rows = sorted(recording["requests"], key=lambda row: int(row["arrival_step"]))
        self.overlap = bool(config["overlap"])
        self.scheduler = _scheduler(config)
        self._slots, self._context = int(config["max_total_tokens"]), int(config["context_length"])
        pool = self.scheduler.pool(self._slots, Contents(_prefixes(rows)))
        self.engine = Engine(
            0, self.scheduler, pool, Recorder(log=True), name="replay", max_model_len=ENDLESS, log=True
        )
        self._sign = 1 if config.get("schedule_low_priority_values_first") else -1
        self._rows: dict[int, list[tuple[int, Row]]] = {}
        for place, row in enumerate(rows):
            self._rows.setdefault(int(row["arrival_step"]), []).append((place, row))
        self.last_arrival = max(self._rows, default=-1)
        self._seen: set[int] = set()
        self._flying: int | None = None  # the step in flight, and whether anybody decodes in it
        self._decodes = 0
        self._queued: list[Request] = []

    def over(self, number: int) -> bool:
        """Nobody is here, nobody will come, and nothing is in flight."""
        batch = self.engine.batch
        return number >= self.last_arrival and not batch.seats and not batch.queue and self._flying is None

    def step(self, number: int) -> dict[str, Any] | None:
        """One turn; None where the real process dies in it."""
        engine, batch, scheduler = self.engine, self.engine.batch, self.scheduler
        now: dict[str, Any] = {"step": number}
        self._arrive(number, now)
        batch.draining = number >= self.last_arrival
        late = self._flying
        if self.overlap:
            engine.fly(self._decodes, number + 1)
        idle = not (batch.queue or batch.seats)
        engine.plan(number)
        engine._spun = 0
        if scheduler.crashed:
            return None
        self._tell(now)
        decodes = 0 if batch.step.empty else batch.shape().decode_seqs
        if self.overlap:
            engine.land(number + 1)
            now["finished"] = [request.id for request in engine.finished]
            if late is not None:
                now["processed"] = late
            self._flying, self._decodes = None if batch.step.empty else number, decodes
        else:
            engine.settle(decodes, 1, number + 1, number + 1)
            now["finished"] = [request.id for request in engine.finished]
            scheduler.concluding(batch, [])
        if idle and late is None:
            now["ratio_reset"] = True
        self._tell_after(now)
        return now

    # -- arrivals ----------------------------------------------------------------------------------------------------

    def _arrive(self, number: int, now: dict[str, Any]) -> None:
        for place, row in self._rows.get(number, ()):
            now.setdefault("arrived", []).append(row["id"])
            request = self._request(place, row, now)
            if row.get("ignore_eos"):
                self.scheduler.ignoring.add(place)
            self.engine.push(request, number)

    def _request(self, place: int, row: Row, now: dict[str, Any]) -> Request:
        """With SGLang's cut of its limit; a prompt that is too long becomes a stub of one token."""
        prompt, page = int(row["prompt_len"]), self.scheduler.page_size
        limit = int(row.get("max_new", row["output_len"]))
        longest = min(self._context, self._slots) - 1
        most = max(0, min(limit, longest - prompt - 1, self._slots - -(-prompt // page) * page - page - 1))
        ends_at = int(row["output_len"]) if _ends_itself(row) else most
        if prompt >= longest - 5:
            now.setdefault("too_long", []).append(row["id"])
            return self._stub(place, row, most)
        if most < limit:
            now.setdefault("clipped", []).append([row["id"], most])
        return Request(place, row["id"], 0, prompt, max(1, min(most, ends_at)), most, priority=self._priority(row))

    def _stub(self, place: int, row: Row, most: int) -> Request:
        """All stubs have the same token."""
        request = Request(place, row["id"], 0, 1, 1, most, priority=self._priority(row))
        request.path = Path(((STUB, 0, 1),), place)
        return request

    def _priority(self, row: Row) -> int:
        """In batchsim lower is more urgent."""
        return self._sign * int(row.get("priority", 0))

    # -- what a recording says of a step -----------------------------------------------------------------------------

    def _tell(self, now: dict[str, Any]) -> None:
        """What was decided."""
        batch, scheduler = self.engine.batch, self.scheduler
        step = batch.step
        dropped = {request.index for request in scheduler.dropped}
        for request in scheduler.members:
            if request.index in step.chunks and request.index not in self._seen:
                now.setdefault("new", []).append(request.id)
            elif (
                request.index in step.chunks
                and step.chunks[request.index].past == request.hit_tokens
                and self._comes_back(request)
            ):
                now.setdefault("resumed", []).append(request.id)
            self._seen.add(request.index)
        if scheduler.refused:
            now["refused"] = [
                [r.id, why, int(taken), round(float(room), 6)] for r, why, taken, room in scheduler.refused
            ]
        evicted = [(request, lost) for request, lost in step.preempted if request.index not in dropped]
        now["retracted"] = now["preempted"] = [[request.id, lost, request.emitted_tokens] for request, lost in evicted]
        if dropped:
            now["dropped"] = [request.id for request in scheduler.dropped]
        self._back = {request.index for request in batch.queue.values()}
        now["sched"] = [self._scheduled(request) for request in scheduler.members]
        now["total"] = sum(row[1] for row in now["sched"])
        now["mode"] = None if step.empty else "decode" if not step.chunks else "mixed" if step.tick else "extend"
        if not step.empty:
            now["free_sched"] = self._free()

    def _comes_back(self, request: Request) -> bool:
        """Whether it waited after the step before."""
        return request.index in self._back

    def _scheduled(self, request: Request) -> list[Any]:
        chunk = self.engine.batch.step.chunks.get(request.index)
        if chunk is None:
            return [request.id, 1, request.computed_tokens, "D", 1]
        emits = chunk.past + chunk.tokens == request.prompt_tokens + request._emitted
        return [request.id, chunk.tokens, chunk.past, "P", int(emits)]

    def _tell_after(self, now: dict[str, Any]) -> None:
        """How things stand after the step."""
        batch, scheduler, pool = self.engine.batch, self.scheduler, self.engine.batch.pool
        chunk = scheduler.chunk
        running = [request for request in scheduler.running if request.index in batch.seats]
        if now["mode"] in ("extend", "mixed"):
            here = {request.index for request in running}
            running += [
                r for r in scheduler.members if r.index in batch.seats and r is not chunk and r.index not in here
            ]
        now["running"] = [request.id for request in running]
        now["chunked"] = None if chunk is None else chunk.id
        now["waiting"] = [request.id for request in batch.queue.values()]
        now["full"] = int(scheduler.full)
        now["free"] = self._free()
        now["evictable"] = pool.loose_tokens() if isinstance(pool, RadixCache) else 0
        now["ratio"] = scheduler.ratio

    def _free(self) -> int:
        """Tokens of the pages that are empty."""
        pool = self.engine.batch.pool
        return (pool.vacant if isinstance(pool, RadixCache) else pool.free) * pool.size


def _scheduler(config: Mapping[str, Any]) -> Sglang:
    known = {field.name for field in fields(Sglang) if field.init}
    named = {RENAMED.get(key, key): value for key, value in config.items()}
    return Sglang(
        **{key: value for key, value in named.items() if key in known}, disable_overlap_schedule=not config["overlap"]
    )


def _ends_itself(row: Row) -> bool:
    """Whether its last token is an EOS before its limit."""
    return "max_new" in row and row["output_len"] < row["max_new"] and not row.get("ignore_eos", False)


def _prefixes(rows: list[Row]) -> Prefixes | None:
    """The prompts' shared beginnings; who goes on from one that ended itself has its EOS, which is everybody's."""
    places = {row["id"]: place for place, row in enumerate(rows)}
    names: dict[str, int] = {}
    segments: list[int] = []
    tokens: list[int] = []
    offset = [0]
    for row in rows:
        left = int(row["prompt_len"])
        for name, count in row.get("prefix", ()):
            taken = min(int(count), left)
            left -= taken
            follows = places.get(name[4:]) if name.startswith("req:") else None
            pieces = [(name, taken)] if follows is None else _pieces(rows[follows], taken)
            for piece, length in pieces:
                segments.append(names.setdefault(piece, len(names)) if piece is not None else -(follows or 0) - 1)
                tokens.append(length)
        offset.append(len(segments))
    if not segments:
        return None
    return Prefixes(np.array(offset), np.array(segments), np.array(tokens))


def _pieces(row: Row, taken: int) -> list[tuple[str | None, int]]:
    """The first `taken` tokens of a request's prompt and answer: its own (None), and its EOS."""
    whole = int(row["prompt_len"]) + int(row["output_len"])
    taken = min(taken, whole)
    if taken == whole and _ends_itself(row):
        return [(None, taken - 1), (EOS, 1)]
    return [(None, taken)]
