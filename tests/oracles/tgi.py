"""TGI's batcher written out plainly, one step at a time: `run(scenario)` returns the steps of a `steps.Server`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracles.steps import Request, Server, Step


class Oracle(Server):
    """The rules, one a method."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        super().__init__(scenario)
        config = self.config
        self.prefill_budget: int = config.get("max_batch_prefill_tokens", 4096)
        self.concurrent: int = config.get("max_concurrent_requests", 128)
        self.ratio: float = config.get("waiting_served_ratio", 0.3)
        self.patience: int = config.get("max_waiting_tokens", 20)
        self.seats: int | None = config.get("max_batch_size")
        self.chunking: bool = config.get("prefill_chunking", True)
        total = config.get("max_batch_total_tokens")
        self.usable = self.total if total is None else min(self.total, max(total // self.block - 1, 0))
        self.waited = 0  # steps since the last prefill, that one included
        self.decode_next = False

    def refuse(self, request: Request) -> bool:
        """Too many here, or never served."""
        here = len(self.waiting) - 1 + len(self.running)
        too_long = not self.chunking and request.prompt > self.rounded(self.prefill_budget)
        return here >= self.concurrent or too_long or self.need(request) > self.usable

    def need(self, request: Request) -> int:
        """Blocks that a request holds from its first step to its last."""
        return self.blocks(request.prompt + request.limit - 1)

    def rounded(self, tokens: int) -> int:
        """A budget in whole blocks."""
        return self.blocks(tokens) * self.block

    def room(self) -> int:
        """Blocks that may still be reserved."""
        return self.usable - (self.total - self.free)

    def schedule(self) -> None:
        """One step."""
        if self.chunking:
            self.mixed()
        elif not (self.running and self.decode_next) and (taken := self.gathered()):
            self.decode_next = bool(self.running)
            self.waited = 1
            for request in taken:
                self.start(request, request.prompt, request.prompt + request.limit - 1)
        else:
            self.decode_next = False
            self.sched = [(request, 1) for request in self.running]
            self.waited += 1

    def gathered(self) -> list[Request]:
        """Those who may interrupt: as many as fit, if that is enough."""
        smallest = int(len(self.running) * self.ratio)
        if not self.running or self.waited >= self.patience:
            smallest = 0
        taken: list[Request] = []
        tokens = blocks = 0
        for request in self.waiting:
            if self.seats is not None and len(self.running) + len(taken) >= self.seats:
                break
            tokens += request.prompt
            blocks += self.need(request)
            if tokens > self.rounded(self.prefill_budget) or blocks > self.room():
                break
            taken.append(request)
        return taken if len(taken) >= smallest else []

    def mixed(self) -> None:
        """Decodes, unfinished prompts and new ones in one pass."""
        self.sched = [(request, 1) for request in self.running if request.generating]
        prompts = [request for request in self.running if not request.generating]
        used = len(self.sched)
        for place, request in enumerate(prompts):
            others_to_come = len(prompts) - place - 1
            tokens = max(1, min(request.rest, self.prefill_budget - used - others_to_come))
            self.sched.append((request, tokens))
            used += tokens
        budget = self.rounded(max(self.prefill_budget - used, 0))
        while self.waiting and budget > 0 and self.need(self.waiting[0]) <= self.room():
            request = self.waiting[0]
            tokens = min(request.prompt, budget)
            self.start(request, tokens, request.prompt + request.limit - 1)
            budget -= tokens


def run(scenario: Mapping[str, Any]) -> tuple[list[Step], list[str]]:
    """The steps, and the ids of the rejected."""
    oracle = Oracle(scenario)
    steps = oracle.run(oracle.schedule, oracle.refuse)
    return steps, [request.id for request in oracle.rejected]
