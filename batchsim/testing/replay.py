"""Plays a recording's requests through the same engine and schedulers as `run`, one iteration a step.

A recording is a mapping with `config`, `requests` and optionally `max_steps`: vLLM's by default, sarathi-serve's where
`config.policy` is one of its policies. The front door's rejections and the guard against standing still are off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from batchsim.assembly import cache
from batchsim.engine import Engine
from batchsim.errors import InvalidInput, problem
from batchsim.kv.blocks import BlockPool
from batchsim.kv.content import Contents
from batchsim.recorder import Recorder
from batchsim.request import Request
from batchsim.scheduler import Scheduler
from batchsim.schedulers.vllm import Vllm
from batchsim.step import Entry
from batchsim.testing import sarathi, sglang
from batchsim.workload.columns import Prefixes

EOS_MARGIN = 1000
"""A recorded request that stops by itself declares this many tokens more than it emits."""
MAX_STEPS = 600
STUCK_STEPS = 3

Recording = Mapping[str, Any]


def replay(recording: Recording) -> list[dict[str, Any]]:
    """The steps of the recording's requests under our scheduler, in the recording's format.

    Each has step, sched, preempted, finished, running, waiting and free. Ends when all have finished, after three steps
    without a token and no arrival to come, or after `max_steps`.
    """
    if sglang.recognized(recording):
        return sglang.replay(recording)
    player = _Player(recording)
    steps: list[dict[str, Any]] = []
    barren = 0
    for number in range(int(recording.get("max_steps", MAX_STEPS))):
        if player.over(number):
            break
        steps.append(player.step(number))
        barren = 0 if steps[-1]["sched"] or player.to_come(number) else barren + 1
        if barren == STUCK_STEPS:
            break
    return steps


class _Player:
    """The engine of one recording, driven by step numbers instead of a clock."""

    def __init__(self, recording: Recording) -> None:
        config = recording["config"]
        self._sarathi = "chunk_size" in config
        arrivals = sorted(recording["requests"], key=lambda row: int(row["arrival_step"]))
        scheduler, pool = _scheduler(config, arrivals)
        self._engine = Engine(
            0, scheduler, pool, Recorder(log=True), name="replay", max_model_len=config["max_model_len"], log=True
        )
        self._arrivals: dict[int, list[Request]] = {}
        self._aborts: dict[int, list[Request]] = {}
        made: dict[str, Request] = {}
        for place, row in enumerate(arrivals):
            request = _request(row, place, config["max_model_len"])
            self._arrivals.setdefault(int(row["arrival_step"]), []).append(request)
            made[row["id"]] = request
        for row in recording["requests"]:  # in the order of the file, as they are aborted
            if row.get("abort_step") is not None:
                self._aborts.setdefault(int(row["abort_step"]), []).append(made[row["id"]])
        self._ahead = bool(config.get("async_scheduling"))
        self._in_flight = False  # whether anybody decodes in the step planned before
        self._last_arrival = max(self._arrivals, default=-1)

    def over(self, number: int) -> bool:
        """Nobody is here and nobody will come."""
        batch = self._engine.batch
        return number > self._last_arrival and not batch.seats and not batch.queue

    def to_come(self, number: int) -> bool:
        """Whether an arrival is still to come after this step."""
        return number < self._last_arrival

    def step(self, number: int) -> dict[str, Any]:
        """Arrivals, then one plan and what it brings about."""
        engine, batch = self._engine, self._engine.batch
        batch.draining = number >= self._last_arrival
        for request in self._arrivals.get(number, ()):
            engine.push(request, number)
        if self._ahead:
            engine.fly(self._in_flight, number + 1)  # the step planned before: it runs while this one is planned
        for request in self._aborts.get(number, ()):
            if request.index in batch.seats or request.index in batch.queue:
                engine.cancel(request, number, busy=False)
        engine.plan(number)
        engine._spun = 0
        step = batch.step
        scheduled = (
            sarathi.scheduled(step) if self._sarathi else [_scheduled(entry) for entry in (step.entries or {}).values()]
        )
        preempted = [request.id if self._sarathi else [request.id, lost] for request, lost in step.preempted]
        decodes = not step.empty and batch.shape().decode_seqs > 0
        if self._ahead:
            engine.land(number + 1)
            self._in_flight = decodes
        else:
            engine.settle(decodes, 1, number + 1, number + 1)
        return {
            "step": number,
            "sched": scheduled,
            "preempted": preempted,
            "finished": [request.id for request in engine.finished],
            "running": [request.id for request in batch.seats.values()],
            "waiting": [request.id for request in batch.queue.values()],
            "free": batch.free,
        }


def _scheduled(entry: Entry) -> list[Any]:
    request, tokens, before, decode = entry
    return [request.id, tokens, before, "D" if decode else "P", int(before + tokens >= request.known_tokens)]


def _request(row: Mapping[str, Any], place: int, max_model_len: int) -> Request:
    prompt, output = int(row["prompt_len"]), int(row["output_len"])
    declared = output + EOS_MARGIN if row.get("stop") == "eos" else output
    request = Request(
        place,
        row["id"],
        0,
        prompt,
        max(1, min(output, max_model_len - prompt)),
        declared,
        priority=int(row.get("priority", 0)),
    )
    request._rank = (row.get("arrival_time", place), row["id"])
    return request


def _scheduler(config: Mapping[str, Any], requests: list[Mapping[str, Any]]) -> tuple[Scheduler, BlockPool]:
    policy = config.get("policy", "fcfs")
    if policy in sarathi.POLICIES:
        return sarathi.scheduler(config), BlockPool(config["num_gpu_blocks"], config["block_size"])
    if policy in ("fcfs", "priority"):
        keys = {field.name for field in fields(Vllm)}
        parameters = {key: value for key, value in config.items() if key in keys}
        blocks, block_size = config["num_gpu_blocks"] - 1, config["block_size"]
        if config.get("enable_prefix_caching"):
            vllm = Vllm(**parameters)
            return vllm, cache(vllm, blocks, block_size, Contents(_prefixes(requests)))
        return Vllm(**parameters), BlockPool(blocks, block_size)
    raise InvalidInput(
        [problem("config.policy", policy, f"not available; one of fcfs, priority, {', '.join(sarathi.POLICIES)}")]
    )


def _prefixes(requests: list[Mapping[str, Any]]) -> Prefixes | None:
    """The prompts' shared beginnings; requests are numbered as they stand here."""
    places = {row["id"]: place for place, row in enumerate(requests)}
    names: dict[str, int] = {}
    segments: list[int] = []
    tokens: list[int] = []
    offset = [0]
    for row in requests:
        left = int(row["prompt_len"])
        for name, count in row.get("prefix", ()):
            count = min(int(count), left)
            left -= count
            follows = places.get(name[4:]) if name.startswith("req:") else None
            segments.append(names.setdefault(name, len(names)) if follows is None else -follows - 1)
            tokens.append(count)
        offset.append(len(segments))
    if not segments:
        return None
    return Prefixes(np.array(offset), np.array(segments), np.array(tokens))
