"""TensorRT-LLM's two stages written out plainly on `steps.Server`: `run(scenario)` returns the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracles.engine_rules import TensorrtRules
from tests.oracles.steps import Request, Server, Step


class Oracle(Server):
    """The rules, one a method. `active` is everybody here in order of arrival, as in the real one's list."""

    def __init__(self, scenario: Mapping[str, Any], rules: TensorrtRules) -> None:
        super().__init__(scenario)
        self.rules = rules
        config = self.config
        self.policy: str = config.get("capacity_scheduler_policy", "GUARANTEED_NO_EVICT")
        self.batch_size: int = config.get("max_batch_size", 2048)
        self.budget: int = config.get("max_num_tokens", 8192)
        self.chunked: bool = config.get("enable_chunked_prefill", False)
        self.equal: bool = config.get("context_chunking_policy") == "EQUAL_PROGRESS"

    @property
    def active(self) -> list[Request]:
        """Everybody here, by arrival."""
        return sorted([*self.running, *self.waiting], key=lambda request: (request.arrival, request.place))

    def refuse(self, request: Request) -> bool:
        """A request that can never be served."""
        over = self.policy != "MAX_UTILIZATION" and self.blocks(request.prompt + request.limit) > self.total
        return over or self.never(request)

    def never(self, request: Request) -> bool:
        """Its prompt finds no step."""
        return request.known > self.budget and not (self.chunked and self.budget >= self.block)

    def schedule(self) -> None:
        """Capacity, then the micro batch."""
        listed = self.to_next_step() if self.policy == "MAX_UTILIZATION" else self.to_the_end()
        self.micro_batch(listed)

    # -- stage 1

    def to_the_end(self) -> list[Request]:
        """All that generate; then the others in order while blocks to their end remain."""
        listed = [request for request in self.active if request.generating]
        free = self.free - self.rules.one_block_kept_back  # those that started hold theirs
        static = self.policy == "STATIC_BATCH" and not self.rules.static_lets_in
        for request in self.active:
            if request.generating or (static and self.running and not request.started):
                continue
            need = 0 if request.started else self.blocks(request.prompt + request.limit)
            if self.never(request):
                self.reject(request)
                continue
            if len(listed) >= self.batch_size or need > free:
                if self.rules.skip_blocked_head:
                    continue
                break
            free -= need
            listed.append(request)
        return listed

    def to_next_step(self) -> list[Request]:
        """In order, blocks for the next step; the last that started is paused where they are missing."""
        line, listed, place, free = self.active, [], 0, self.free
        while place < len(line):
            request = line[place]
            if not request.started and self.never(request):
                line.remove(request)
                self.reject(request)
                continue
            need = self.next_step(request)
            if len(listed) < self.batch_size and need <= free:
                listed.append(request)
                free -= need
                place += 1
                continue
            started = [later for later in range(place, len(line)) if line[later].started]
            if not started:
                break
            last = started[0] if self.rules.oldest_behind_paused else started[-1]
            victim = line[last]
            free += 0 if self.rules.paused_blocks_come_late else victim.blocks
            self.pause(victim)
            del line[last:]
        return listed

    def next_step(self, request: Request) -> int:
        """Blocks that a request takes in its next step."""
        if not request.started:
            return self.blocks(request.known + self.rules.room_for_one_more)
        return self.blocks(request.computed + 1) - request.blocks if request.generating else 0

    def pause(self, victim: Request) -> None:
        """Blocks freed; it starts again later with its output as part of the prompt, in its old place."""
        self.release(victim)
        self.preempted.append((victim, victim.computed))
        victim.computed = 0
        self.waiting.append(victim)
        if not self.rules.paused_to_back:
            self.waiting.sort(key=lambda request: (request.arrival, request.place))

    # -- stage 2

    def micro_batch(self, listed: list[Request]) -> None:
        """Generations cost one token each; contexts whole, or cut to what is left."""
        generations: list[Request] = []
        contexts: list[Request] = []
        tokens = 0
        for request in listed:
            if request.generating:
                if tokens + 1 > self.budget:
                    break
                generations.append(request)
                tokens += 0 if self.rules.generations_are_free else 1
            elif self.chunked:
                contexts.append(request)
            else:
                if tokens + request.rest > self.budget:
                    if self.rules.walk_goes_on:
                        continue
                    break
                contexts.append(request)
                tokens += request.rest
            if len(generations) + len(contexts) >= self.batch_size:
                break
        chunks = {request: request.rest for request in contexts}
        if self.chunked and sum(chunks.values()) > self.budget - tokens:
            chunks = self.cut(contexts, self.budget - tokens)
        for request in self.running:
            if request in generations:
                self.hold(request, request.computed + 1)
                self.sched.append((request, 1))
        for request in contexts:
            if chunks[request]:
                self.compute(request, chunks[request])

    def cut(self, contexts: list[Request], left: int) -> dict[Request, int]:
        """Chunks, in units of a block, that together fit in `left` tokens."""
        chunks = dict.fromkeys(contexts, 0)
        if not self.equal:
            for request in contexts:
                chunks[request] = min(request.rest, left)
                if chunks[request] < request.rest and not self.rules.chunk_not_rounded:
                    chunks[request] -= chunks[request] % self.block
                left -= chunks[request]
            return chunks
        while True:
            before = left
            for request in contexts:
                more = min(self.block * (1 + self.rules.two_blocks_a_turn), request.rest - chunks[request])
                if more <= left:
                    chunks[request] += more
                    left -= more
            if left == before:
                return chunks

    def compute(self, request: Request, tokens: int) -> None:
        """A chunk of a context, which takes all its blocks when it starts."""
        if request.started:
            self.sched.append((request, tokens))
        else:
            evicts = self.policy == "MAX_UTILIZATION"
            whole = request.computed + tokens if self.rules.blocks_as_computed else request.known
            self.start(request, tokens, whole if evicts else request.prompt + request.limit)


def run(scenario: Mapping[str, Any], rules: TensorrtRules | None = None) -> tuple[list[Step], list[str]]:
    """The steps, and the ids of the rejected."""
    oracle = Oracle(scenario, rules or TensorrtRules())
    steps = oracle.run(oracle.schedule, oracle.refuse)
    return steps, [request.id for request in oracle.rejected]
