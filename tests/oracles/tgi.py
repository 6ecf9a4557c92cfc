"""TGI's batcher written out plainly, one step at a time: `run(scenario)` returns the steps of a `steps.Server`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracles.engine_rules import TgiRules
from tests.oracles.steps import Request, Server, Step


class Oracle(Server):
    """The rules, one a method."""

    def __init__(self, scenario: Mapping[str, Any], rules: TgiRules) -> None:
        super().__init__(scenario)
        self.rules = rules
        config = self.config
        self.prefill_budget: int = config.get("max_batch_prefill_tokens", 4096)
        self.concurrent: int = config.get("max_concurrent_requests", 128)
        self.ratio: float = config.get("waiting_served_ratio", 0.3)
        self.patience: int = config.get("max_waiting_tokens", 20)
        self.seats: int | None = config.get("max_batch_size")
        self.chunking: bool = config.get("prefill_chunking", True)
        total = config.get("max_batch_total_tokens")
        kept = 0 if rules.no_block_kept_back else 1
        self.usable = self.total if total is None else min(self.total, max(total // self.block - kept, 0))
        self.waited = 0  # steps since the last prefill, that one included
        self.decode_next = False

    def refuse(self, request: Request) -> bool:
        """Too many here, or never served."""
        here = len(self.waiting) - 1 + len(self.running)
        too_long = not self.chunking and request.prompt > self.rounded(self.prefill_budget)
        here -= self.rules.one_more_here
        return here >= self.concurrent or too_long or self.need(request) > self.usable

    def need(self, request: Request) -> int:
        """Blocks that a request holds from its first step to its last."""
        return self.blocks(self.held(request))

    def held(self, request: Request) -> int:
        """Tokens that it holds: the last one of its answer is never computed."""
        return request.prompt + request.limit - 1 + self.rules.last_token_held

    def rounded(self, tokens: int) -> int:
        """A budget in whole blocks."""
        return tokens if self.rules.budget_not_rounded else self.blocks(tokens) * self.block

    def room(self) -> int:
        """Blocks that may still be reserved."""
        return self.usable - (self.total - self.free)

    def schedule(self) -> None:
        """One step."""
        if self.chunking:
            self.mixed()
        elif not (self.running and self.decode_next) and (taken := self.gathered()):
            self.decode_next = bool(self.running) and not self.rules.prefill_after_prefill
            self.waited = 0 if self.rules.prefill_not_counted else 1
            for request in taken:
                self.start(request, request.prompt, self.held(request))
        else:
            self.decode_next = False
            self.sched = [(request, 1) for request in self.running]
            self.waited += 1

    def gathered(self) -> list[Request]:
        """Those who may interrupt: as many as fit, if that is enough."""
        smallest = int(len(self.running) * self.ratio + (0.999 if self.rules.ratio_rounded_up else 0))
        if not self.running or self.waited >= self.patience + self.rules.patience_one_longer:
            smallest = 0
        taken: list[Request] = []
        tokens = blocks = 0
        for request in self.waiting:
            if self.seats is not None and len(self.running) + len(taken) >= self.seats:
                break
            tokens += request.prompt
            blocks += self.need(request)
            if tokens > self.rounded(self.prefill_budget) or blocks > self.room():
                if not self.rules.skip_blocked_head:
                    break
                tokens -= request.prompt
                blocks -= self.need(request)
                continue
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
            if self.rules.last_prompt_whole and tokens < request.prompt and self.running:
                break
            self.start(request, tokens, self.held(request))
            budget -= tokens


def run(scenario: Mapping[str, Any], rules: TgiRules | None = None) -> tuple[list[Step], list[str]]:
    """The steps, and the ids of the rejected."""
    oracle = Oracle(scenario, rules or TgiRules())
    steps = oracle.run(oracle.schedule, oracle.refuse)
    return steps, [request.id for request in oracle.rejected]
