"""What a step log tells, token by token: the plain truth that records and summary are held against."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from batchsim.records import Records


@dataclass
class Story:
    """One request as its steps tell it: when each token came (end of its step, s), and what it computed."""

    prompt: int
    tokens_s: list[float] = field(default_factory=list)
    computed: int = 0
    lost: int = 0
    evictions: int = 0
    admitted_s: float | None = None
    finishes: int = 0


def stories(records: Records) -> dict[str, Story]:
    """Every request's story; asserts on the way that a step continues where the one before stopped."""
    workload = records.workload
    told = {workload.id_of(i): Story(int(workload.prompt_tokens[i])) for i in range(len(workload))}
    for step in steps_of(records):
        for name, lost in step["preempted"]:
            story = told[name]
            assert lost == story.computed, f"{name} lost {lost} of {story.computed} computed tokens"
            story.computed, story.evictions, story.lost = 0, story.evictions + 1, story.lost + lost
        for name, tokens, before in step["sched"]:
            story = told[name]
            if story.finishes:  # a row that is held computes on for nobody
                continue
            assert tokens > 0
            if before != story.computed:  # a prefix hit at an admission
                assert story.computed == 0, f"{name} starts at {before}, stood at {story.computed}"
            if story.admitted_s is None:
                story.admitted_s = step["start_s"]
            story.computed = before + tokens
            assert story.computed <= story.prompt + len(story.tokens_s), f"{name} computes tokens that nobody knows yet"
            if story.computed == story.prompt + len(story.tokens_s) and name not in step.get("discarded", ()):
                story.tokens_s.append(step["end_s"])
        for name in step["finished"]:
            told[name].finishes += 1
    return told


def steps_of(records: Records) -> list[dict[str, Any]]:
    """The step log; the run must have kept one."""
    assert records.step_log is not None
    return records.step_log


def by_replica(records: Records) -> dict[int, list[dict[str, Any]]]:
    """The step log of each replica."""
    logs: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for step in steps_of(records):
        logs[step["replica"]].append(step)
    return logs
