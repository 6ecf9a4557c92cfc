"""What several oracles share: requests, a count of blocks, and a run of equal steps by a step number.

Step t begins when step t - 1 ends; a request that arrives at t is seen by step t. Nothing here is quick or clever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Step = dict[str, Any]


@dataclass(eq=False)
class Request:
    """A request and where it stands. Lengths and counts in tokens."""

    id: str
    place: int
    arrival: int
    prompt: int
    output: int
    limit: int  # longest answer that it declares
    out: int = 0
    computed: int = 0
    blocks: int = 0
    started: bool = False
    generating: bool = False
    done: bool = False

    @property
    def known(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return self.prompt + self.out

    @property
    def rest(self) -> int:
        """Tokens to compute before the next token comes."""
        return self.known - self.computed


class Server:
    """Requests in lists, blocks in a number; a policy fills `sched` and moves requests between the lists."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self.config: Mapping[str, Any] = scenario["scheduler"]
        self.block: int = scenario["block_size"]
        self.total = self.free = scenario["num_blocks"]
        self.requests = [
            Request(row["id"], place, row["arrival_ms"], row["prompt_tokens"], row["output_tokens"], row["max_tokens"])
            for place, row in enumerate(scenario["requests"])
        ]
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.rejected: list[Request] = []
        self.sched: list[tuple[Request, int]] = []
        self.preempted: list[tuple[Request, int]] = []

    def blocks(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block)

    def hold(self, request: Request, tokens: int) -> None:
        """Blocks for so many tokens of a request, from now on."""
        more = max(self.blocks(tokens) - request.blocks, 0)
        request.blocks += more
        self.free -= more
        assert self.free >= 0

    def start(self, request: Request, tokens: int, held: int) -> None:
        """A seat for a waiting request, which computes `tokens` tokens and holds blocks for `held`."""
        self.waiting.remove(request)
        self.running.append(request)
        request.started = True
        self.hold(request, held)
        self.sched.append((request, tokens))

    def release(self, request: Request) -> None:
        """A seat and its blocks come back."""
        self.running.remove(request)
        self.free += request.blocks
        request.blocks = 0
        request.started = request.generating = False

    def reject(self, request: Request) -> None:
        """A waiting request is turned away."""
        self.waiting.remove(request)
        self.rejected.append(request)
        request.done = True

    def run(self, schedule: Callable[[], None], refuse: Callable[[Request], bool]) -> list[Step]:
        """The steps until everybody is done."""
        steps: list[Step] = []
        now = 0
        self.arrive(now, refuse)
        while not all(request.done for request in self.requests):
            self.sched, self.preempted = [], []
            schedule()
            if self.sched or not self.preempted:  # a step that only evicts takes no time
                now += 1
                self.arrive(now, refuse)
            if self.sched or self.preempted:
                steps.append(self.finish())
            assert now < 100_000
        return steps

    def arrive(self, now: int, refuse: Callable[[Request], bool]) -> None:
        """Arrivals come before the ends of a step at the same instant."""
        for request in self.requests:
            if request.arrival == now:
                self.waiting.append(request)
                if refuse(request):
                    self.reject(request)

    def finish(self) -> Step:
        """The end of a step: tokens come, and those who have all of theirs leave."""
        sched = [[request.id, tokens, request.computed] for request, tokens in self.sched]
        finished: list[str] = []
        for request, tokens in self.sched:
            request.computed += tokens
        computed = {request.place for request, _ in self.sched}
        for request in list(self.running):
            if request.place not in computed or request.rest:
                continue
            request.out += 1
            request.generating = True
            if request.out == request.output:
                request.done = True
                self.release(request)
                finished.append(request.id)
        return {
            "sched": sched,
            "preempted": [[request.id, lost] for request, lost in self.preempted],
            "finished": finished,
            "running": [request.id for request in self.running],
            "waiting": [request.id for request in self.waiting],
            "free_blocks": self.free,
        }
