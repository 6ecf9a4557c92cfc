"""The original vLLM without chunking, and Sarathi-Serve's alternating steps, written out plainly on `steps.Server`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.oracles.engine_rules import V0Rules
from tests.oracles.steps import Request, Server, Step


class Oracle(Server):
    """Prompts first and alone; priority and delay factor. A step takes one time unit, so a prefill took one too."""

    def __init__(self, scenario: Mapping[str, Any], rules: V0Rules) -> None:
        super().__init__(scenario)
        self.rules = rules
        config = self.config
        self.seats: int = config.get("max_num_seqs", 256)
        self.limit: int = config["max_num_batched_tokens"]
        self.by_priority = config.get("policy") == "priority"
        self.factor: float = config.get("scheduler_delay_factor", 0.0)
        share = config.get("watermark", 0.01) * self.total
        self.watermark = -int(-share // 1) if rules.watermark_rounded_up else int(share)
        self.always_one: bool = config.get("early_release", False) or rules.always_released_early
        self.urgency = {row["id"]: row.get("priority", 0) for row in scenario["requests"]}
        self.now = -1
        self.took = 0
        self.prefilled = False

    def worth(self, request: Request) -> tuple[int, int]:
        """Lower goes first."""
        return (self.urgency[request.id], request.arrival)

    def refuse(self, request: Request) -> bool:
        """Too long, or never above the watermark."""
        return self.hopeless(request)

    def hopeless(self, request: Request) -> bool:
        """It can never start."""
        return request.known > self.limit or self.blocks(request.known) + self.watermark > self.total

    def arrive(self, now: int, refuse: Callable[[Request], bool]) -> None:
        """They stand where their priority says."""
        super().arrive(now, refuse)
        self.sort()

    def sort(self) -> None:
        """The queue under `priority`."""
        if self.by_priority:
            self.waiting.sort(key=lambda r: (*self.worth(r), r.place))

    def schedule(self) -> None:
        """One step."""
        self.now += 1
        self.took, self.prefilled = int(self.prefilled) if self.prefilled else self.took, False
        self.prompts()
        if self.sched:
            self.prefilled = True
            if not self.rules.decodes_ride_along:
                return
            taken = self.sched
            self.decode()
            started = [request for request, _ in taken]
            beside = [(request, n) for request, n in self.sched if request not in started]
            self.sched = [(request, n) for request, n in taken if request.blocks] + beside
            return
        if self.by_priority:
            self.make_way()
        self.decode()
        if self.preempted and not self.sched:
            self.now -= 1  # a step that only evicts takes no time

    def prompts(self) -> None:
        """Whole prompts until one fails."""
        tokens, busy = 0, bool(self.running)
        while self.waiting:
            oldest = min(request.arrival for request in self.waiting)
            past = self.now - oldest + self.rules.delay_reached
            if self.factor and (busy or self.rules.delay_when_idle) and not past > self.factor * self.took:
                return
            head = self.waiting[0]
            if self.hopeless(head):
                self.reject(head)
                continue
            over = 0 if self.rules.limit_each else tokens
            seats = self.seats + self.rules.one_more_seat
            if len(self.running) >= seats or over + head.known > self.limit or not self.fits(head):
                return
            tokens += head.known
            self.start(head, head.known, head.known)

    def fits(self, request: Request) -> bool:
        """Its blocks are free, and the watermark after them."""
        above = 0 if self.rules.watermark_when_idle_only and self.running else self.watermark
        return self.free - self.blocks(request.known) >= above

    def make_way(self) -> None:
        """Running requests that are worse than the best waiting one leave until it could start."""
        best = self.waiting[0] if self.waiting else None
        fits = (lambda _: True) if self.rules.way_for_seats_only else self.fits
        while best and self.running and not (fits(best) and len(self.running) < self.seats):
            worst = max(self.running, key=lambda r: (*self.worth(r), r.place))
            if self.rules.one_makes_way and self.preempted:
                return
            if self.worth(worst) <= self.worth(best):
                return
            self.evict(worst)

    def decode(self) -> None:
        """One token each, in order; the last of those behind, or the request itself, is evicted for want of a block."""
        line = sorted(self.running, key=lambda r: (*self.worth(r), r.place)) if self.by_priority else list(self.running)
        decoding = []
        while line:
            request = line.pop(0)
            while not self.has_room(request) and line:
                self.evict(line.pop(0 if self.rules.next_gives_way else -1))
            if not self.has_room(request):
                self.evict(request)
                break
            self.hold(request, request.computed + 1)
            decoding.append(request)
        self.sched = [(request, 1) for request in self.running if request in decoding]

    def has_room(self, request: Request) -> bool:
        """A block for the next token, if it needs one."""
        need = 1 if self.always_one else self.blocks(request.computed + 1) - request.blocks
        return need <= self.free

    def evict(self, request: Request) -> None:
        """Recompute later, from the front of the queue."""
        self.release(request)
        self.preempted.append((request, request.computed))
        request.computed = 0
        self.waiting.insert(len(self.waiting) if self.rules.evicted_to_back else 0, request)
        self.sort()


class Alternating(Oracle):
    """Steps of chunks and steps of decodes in turns."""

    def __init__(self, scenario: Mapping[str, Any], rules: V0Rules) -> None:
        given = {**scenario, "scheduler": {"max_num_batched_tokens": 1 << 60, **scenario["scheduler"]}}
        super().__init__(given, rules)
        self.chunk: int = self.config["chunk_size"]
        self.always_one = True
        self.chunks_last = False

    def schedule(self) -> None:
        """One step."""
        decoding = [request for request in self.running if request.generating]
        if not (self.chunks_last and decoding) or self.rules.chunks_always_first:
            self.chunks()
        self.chunks_last = bool(self.sched)
        if not self.sched:
            self.decode_generating()

    def chunks(self) -> None:
        """Of running prompts, then of new ones."""
        left = self.chunk
        for request in [request for request in self.running if not request.generating]:
            tokens = min(request.rest, left)
            if tokens:
                self.sched.append((request, tokens))
                left -= tokens
        if self.rules.running_chunk_alone and self.sched:
            return
        while left and self.waiting and self.fits(self.waiting[0]) and len(self.running) < self.config["max_num_seqs"]:
            head = self.waiting[0]
            tokens = min(head.known, left)
            self.start(head, tokens, head.known)
            left -= tokens

    def decode_generating(self) -> None:
        """Decodes; prompts that are under way are evicted like the rest."""
        line, decoding = list(self.running), []
        while line:
            request = line.pop(0)
            if not request.generating:
                continue
            if self.rules.prompts_keep_blocks:
                line = [other for other in line if other.generating]
            while not self.free and line:
                self.evict(line.pop())
            if not self.free:
                self.evict(request)
                break
            self.hold(request, request.computed + 1)
            decoding.append(request)
        self.sched = [(request, 1) for request in decoding]


def run(
    scenario: Mapping[str, Any], oracle: type[Oracle] = Oracle, rules: V0Rules | None = None
) -> tuple[list[Step], list[str]]:
    """The steps, and the ids of the rejected."""
    made = oracle(scenario, rules or V0Rules())
    steps = made.run(made.schedule, made.refuse)
    return steps, [request.id for request in made.rejected]
