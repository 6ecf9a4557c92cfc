"""SGLang's scheduler, release 0.5.23: prefill first, optimistic admission, retraction, and one step planned ahead."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchsim.batch import Batch
from batchsim.kv.blocks import BlockPool
from batchsim.kv.content import Contents
from batchsim.kv.radix import RadixCache
from batchsim.request import Request
from batchsim.scheduler import DEAF, FLOW, ONCE, Verdict, Wait
from batchsim.schedulers._sglang import GO_ON, NO_ROOM, Pass
from batchsim.schedulers._sglang_queue import Line, urgency
from batchsim.schedulers._sglang_settings import Settings

MOST_RUNNING = (2048, 4096, 512)
"""The least and the most of SGLang's own limit on running requests, and its share of pool over context."""

Members = list[Request]
Prompts = list[tuple[Request, int, int]]  # request, tokens it publishes, its evictions when the step was planned


@dataclass
class Sglang(Settings):
    """SGLang: a prefill batch runs alone whenever somebody can enter; who bet too much room is retracted."""

    ratio: float = field(default=0.0, init=False, repr=False)
    full: bool = field(default=False, init=False, repr=False)  # nobody enters until somebody leaves
    chunk: Request | None = field(default=None, init=False, repr=False)  # the one whose prompt is unfinished
    running: Members = field(default_factory=list, init=False, repr=False)  # in SGLang's order
    members: Members = field(default_factory=list, init=False, repr=False)  # of the step planned last
    dropped: Members = field(default_factory=list, init=False, repr=False)  # by the plan: did not fit even alone
    crashed: bool = field(default=False, init=False, repr=False)  # the real process would have died in this plan
    refused: list[tuple[Request, str, bool, float]] = field(default_factory=list, init=False, repr=False)
    ignoring: set[int] = field(default_factory=set, init=False, repr=False)  # indices of those with ignore_eos

    # What the engine reads: see `Scheduler`.

    folds_output = True

    def __post_init__(self) -> None:
        if 0 < self.chunked_prefill_size < self.page_size or self.chunked_prefill_size == 0:
            raise ValueError(
                f"chunked_prefill_size {self.chunked_prefill_size} must be -1 or at least page_size {self.page_size}"
            )
        self.ratio = self._first = min(self.init_new_token_ratio * self.schedule_conservativeness, 1.0)
        self._least = self._first * self.min_new_token_ratio_factor
        self._decay = (self._first - self._least) / self.new_token_ratio_decay_steps
        self._mixing = self.enable_mixed_chunk and self.chunked_prefill_size > 0
        self._cache: RadixCache | None = None
        self._seats = 0
        self._merging: Members = []  # of the last prefill batch: they join the running in the next plan
        self._earlier: Members = []  # of the step in flight
        self._prompts: Prompts = []
        self._prompts_earlier: Prompts = []
        self._tick = 0  # of the clock, up to which decode steps have lowered the ratio
        self._since_prefill: int | None = None
        self._line = Line(self, None)

    @property
    def async_scheduling(self) -> bool:
        """Whether a step is planned when the one before it starts."""
        return not self.disable_overlap_schedule

    @property
    def enable_prefix_caching(self) -> bool:
        """Whether requests share the KV of equal beginnings."""
        return not self.disable_radix_cache

    def pool(self, tokens: int, contents: Contents) -> BlockPool:
        """The replica's KV memory: pages of `page_size` tokens."""
        if self.disable_radix_cache:
            return BlockPool(tokens // self.page_size, self.page_size)
        return RadixCache(tokens // self.page_size, self.page_size, contents)

    def refuse(self, request: Request, b: Batch) -> str | None:
        """The queue is full, or SGLang would cut the prompt or the answer, or never take it in."""
        if self.max_queued_requests is not None and len(b.queue) >= self.max_queued_requests:
            return f"queue is full: {len(b.queue)} waiting, max_queued_requests {self.max_queued_requests}"
        prompt, slots, page = request.prompt_tokens, b.pool.total * b.block, b.block
        longest = min(b.max_model_len, slots) - 1
        if prompt >= longest - 5:
            return f"prompt of {prompt} tokens is too long: SGLang serves fewer than {longest - 5} here"
        most = min(longest - prompt - 1, slots - -(-prompt // page) * page - page - 1)
        if self.disable_radix_cache and self.ignore_eos:  # its test of a lone request would never pass
            most = min(most, slots - prompt - 2 * page - 1)
        output = request.max_tokens if request.declared else request.wanted_tokens
        if output > most:
            return (
                f"prompt and output of {prompt + output} tokens: SGLang would cut them to {prompt + max(most, 0)} here"
            )
        if not request.declared:
            request.max_tokens = min(request.max_tokens, most)
        return None

    # -- a step ------------------------------------------------------------------------------------------------------

    def plan(self, b: Batch) -> Verdict | Wait:
        """A prefill batch if somebody can enter; else one token for everyone who runs."""
        if b.clock.ticks > self._tick:
            self._catch_up(b)
        if self._prompts and self.disable_overlap_schedule:
            self._publish(b, self._prompts)
        self._earlier, self._prompts_earlier = self.members, self._prompts
        self.members, self._prompts = [], []
        if self.refused or self.dropped:
            self.refused, self.dropped = [], []
        self._gather(b)
        if self.enable_priority_scheduling:
            self._line.see(b.queue.values())
        deferred = self._since_prefill is not None and self._deferred()
        if not deferred and self._prefill(b):
            if self.prefill_decode_interval:
                self._since_prefill = 0
            return self._verdict_of_prompts(b)
        if self.running and (self.running[0].max_tokens or any(request.max_tokens for request in self.running)):
            self._decode(b)
        return self._verdict(b) if b.step.tick else self._pause(b)

    def concluding(self, b: Batch, ended: Members) -> None:
        """A step has ended: its prompts are published; those who end leave in the order of its members."""
        if b.clock.ticks > self._tick:
            self._catch_up(b)
        ahead = not self.disable_overlap_schedule
        prompts = self._prompts_earlier if ahead else self._prompts
        if prompts:
            self._publish(b, prompts)
        if len(ended) > 1:
            members = self._earlier if ahead else [*self.running, *self._merging]
            places = {request.index: place for place, request in enumerate(members)}
            ended.sort(key=lambda request: places[request.index])
        if self.enable_priority_scheduling:
            for request in ended:
                self._line.forget(request)

    def _publish(self, b: Batch, prompts: Prompts) -> None:
        """The prompts of a step that has ended can be hit, but those of requests that were evicted since."""
        if self._cache is not None:
            for request, tokens, evictions in prompts:
                if request.preemptions == evictions and request.index in b.seats:
                    self._cache.insert(request, tokens)
        prompts.clear()

    def _catch_up(self, b: Batch) -> None:
        """What the decode steps that ran since without a plan did: the ratio falls, paged allocation evicts ahead."""
        ticks = b.clock.ticks - self._tick
        self._tick += ticks
        for _ in range(ticks):
            if self.ratio <= self._least:
                break
            self.ratio = max(self.ratio - self._decay, self._least)
        if self._cache is not None and b.block > 1:
            ticked = (
                [r for r in b.seats.values() if r.base is not None] if self.disable_overlap_schedule else self.running
            )
            opened = sum(1 for request in ticked if (request.computed_tokens - 1) % b.block == 0)
            self._cache.evict(len(ticked) - opened)

    def _gather(self, b: Batch) -> None:
        """The chunk's last piece is published, the last prefill batch joins the running, who left is forgotten."""
        if not self._seats:
            self._begin(b)
        seats, running, chunk = b.seats, self.running, self.chunk
        if chunk is not None:
            if chunk.index not in b.prefilling:  # its client gave up
                chunk = self.chunk = None
            elif self._cache is not None:
                self._cache.insert(chunk, chunk.computed_tokens)
        if self._merging:
            left = [request for request in self._merging if request.index in seats and request is not chunk]
            if len(left) < len(self._merging) or (left and not running):
                self.full = False
            running += left
            self._merging = []
        if b.group.size != len(running):
            left = [request for request in running if request.index in seats]
            if len(left) < len(running):
                self.full = False
                self.running = left

    def _begin(self, b: Batch) -> None:
        slots = b.pool.total * b.block
        least, most, share = MOST_RUNNING
        own = max(1, min(max(least, min(most, int(slots / b.max_model_len * share))), slots // 2))
        self._seats = own if self.max_running_requests is None else self.max_running_requests
        self._cache = b.pool if isinstance(b.pool, RadixCache) else None
        self._line = Line(self, self._cache)

    def _deferred(self) -> bool:
        assert self._since_prefill is not None
        self._since_prefill += 1
        if self._since_prefill > self.prefill_decode_interval:
            self._since_prefill = None
        return self._since_prefill is not None

    def _verdict(self, b: Batch) -> Verdict:
        if b.step.preempted or self.chunk is not None or self._since_prefill is not None or len(b.seats) > b.group.size:
            return ONCE
        if self._prompts_earlier and not self._private(self._prompts_earlier):
            return ONCE  # published when they land, which may give copies back
        if not b.queue:
            return FLOW
        return DEAF if self.full and not self.enable_priority_scheduling else ONCE

    def _verdict_of_prompts(self, b: Batch) -> Verdict:
        """With nobody waiting decodes follow; but what others may hit is published before they take room."""
        if b.queue or self.chunk is not None or b.step.preempted or self.prefill_decode_interval:
            return ONCE
        return FLOW if self._private(self._prompts) else ONCE

    def _private(self, prompts: Prompts) -> bool:
        """Whether publishing these prompts changes nothing for anybody."""
        cache = self._cache
        return cache is None or all(cache.private(request) for request, _, _ in prompts)

    def _pause(self, b: Batch) -> Verdict | Wait:
        """Nothing is computed. The real loop turns at once again; here a turn without work lasts a nanosecond."""
        if not (b.flight_ticked or b.flight_singly):
            if not (b.queue or self.running or self.chunk):
                self.ratio = self._first
            if self._since_prefill is not None:
                return Wait(b.now_ns + 1)
        return ONCE

    # -- what the rules ask ------------------------------------------------------------------------------------------

    def clip(self, tokens: int) -> int:
        """Tokens of a limit that count in estimates."""
        most = self.clip_max_new_tokens_estimation
        return tokens if tokens < most else most

    def ends_by_limit(self, request: Request) -> bool:
        """Whether it was sent with ignore_eos."""
        return self.ignore_eos or request.index in self.ignoring

    def _owed(self, request: Request, out: int) -> float:
        share = 1.0 if self.ends_by_limit(request) else self.ratio
        return self.clip(request.max_tokens - out) * share

    def _owed_by_all(self, b: Batch) -> float:
        """Tokens that the running will take, by SGLang's estimate; summed in their order."""
        if b.group.size != len(self.running) or self.ignore_eos or self.ignoring:
            return sum([self._owed(request, b.settled_tokens(request)) for request in self.running])
        ticks, clip, ratio, flying = b.clock.ticks, self.clip_max_new_tokens_estimation, self.ratio, b.flight_singly
        if b.flight_ticked or not flying:
            ticks -= b.flight_ticked
            lefts = [request.max_tokens + request.base - ticks for request in self.running]  # type: ignore[operator]
        else:
            lefts = [r.max_tokens + r.base - ticks + (r.index in flying) for r in self.running]  # type: ignore[operator]
        return sum([(left if left < clip else clip) * ratio for left in lefts])

    def _open_seats(self, b: Batch, chunk_taken: bool) -> int:
        """Requests that a pass may hold in all."""
        return min(self._seats - len(self.running), self._seats - len(b.seats) + chunk_taken)

    # -- prefill -----------------------------------------------------------------------------------------------------

    def _prefill(self, b: Batch) -> bool:
        """A batch of prompts, with whatever rides along; False: nobody enters."""
        urgent = self.enable_priority_scheduling
        if urgent or not self.running:
            self.full = False
        if self.chunk is None:
            if self.full or not b.queue:
                return False
            if not urgent and self._open_seats(b, False) <= 0:
                self.full = True
                return False
        order = self._line.ordered(b)
        riders = len(self.running) if self._mixing else 0
        budget = Pass(self, b.pool, self.running, riders, self._owed_by_all(b), self.ratio, b.settled_tokens)
        chunk_ends = self.chunk is not None and budget.take_chunk(self.chunk)
        for request in order:
            if not self._try(b, request, budget):
                break
        return bool(budget.taken) and self._take(b, budget, chunk_ends)

    def _try(self, b: Batch, request: Request, budget: Pass) -> bool:
        """Whether the pass goes on after this candidate."""
        if budget.spent():
            return False
        if len(budget.taken) >= self._open_seats(b, self.chunk is not None):
            self.full = True
        if self.full and not (self.enable_priority_scheduling and self._make_way(b, request, budget)):
            return False
        if self.enable_priority_scheduling:
            self._line.tried[request.index] = request.known_tokens
        room, count = budget.total(), len(budget.taken)
        verdict = budget.admit(request)
        if verdict == GO_ON:
            return True
        self.refused.append((request, verdict, len(budget.taken) > count, room))
        if verdict == NO_ROOM:
            self.full = bool(budget.taken or self.running)
        return False

    def _take(self, b: Batch, budget: Pass, chunk_ends: bool) -> bool:
        """Seats and KV for all taken at once."""
        page, taken = b.block, budget.taken
        need = sum(-(-end // page) - -(-past // page) for _, past, end in taken)
        if self._cache is not None:
            wanted = sum(end - past for _, past, end in taken)
            self._cache.evict(wanted if page == 1 else -(-wanted // page) + len(taken))
        if need > b.pool.free:
            self._give_up(taken)
            return False
        for request, past, end in taken:
            if not (b.extend(request, end - past) if request is self.chunk else b.admit(request, end - past)):
                raise AssertionError("the taken have room together")
            if end == request.prompt_tokens + request._emitted:
                self._prompts.append((request, end, request.preemptions))
        if chunk_ends:
            self.chunk = None
        if budget.cut is not None:
            self.chunk = budget.cut
        self.members = [request for request, _, _ in taken]
        if self._mixing:
            self._ride_along(b)
        self._merging = self.members
        return True

    def _give_up(self, taken: list[tuple[Request, int, int]]) -> None:
        """The real process dies when a piece of a prompt finds no room; here the piece waits, and decodes go on."""
        self.crashed = True
        if self._cache is not None:
            for request, _, _ in taken:
                if request is not self.chunk:
                    self._cache.unpin(request)

    def _ride_along(self, b: Batch) -> None:
        """Mixed chunk: the running decode beside the prompts, if their tokens fit."""
        self._leave_out(b)
        if self.running and self._fits(b):
            self._tick_all(b)
            self.members = self.members + self.running
            self.running = []

    # -- decode ------------------------------------------------------------------------------------------------------

    def _decode(self, b: Batch) -> None:
        left_out = self._leave_out(b)
        if not self.running:
            return
        if self._fits(b):
            self.ratio = max(self.ratio - self._decay, self._least)
        elif left_out:
            return
        else:
            self._retract(b)
        if self.running:
            self._tick_all(b)
            self.members = self.running

    def _tick_all(self, b: Batch) -> None:
        if self._cache is not None and b.block > 1:
            self._cache.evict(len(self.running))  # a page each, more than it takes
        if not b.decode():
            raise AssertionError("the running fit")
        self._tick = b.clock.ticks + 1

    def _leave_out(self, b: Batch) -> bool:
        """Those whose token in flight is their last by their limit decode no more; whether there were any."""
        if b.group.size == len(self.running):
            return False
        left = [request for request in self.running if not request.ending]
        if len(left) == len(self.running):
            return False
        self.running, self.full = left, False
        return True

    def _fits(self, b: Batch) -> bool:
        """Whether the next token of everyone who decodes has room; evicts for it."""
        need = b.group.blocks_needed()
        if self._cache is not None and need > self._cache.vacant:
            self._cache.evict(need)
        return need <= b.pool.free

    def _retract(self, b: Batch) -> None:
        """Fewest outputs first, then the longest prompt, until the others fit; one stays, if that one fits."""
        ranked = sorted(self.running, key=lambda r: (-b.settled_tokens(r), r.prompt_tokens))
        if self.retraction_policy == "priority":
            ranked.sort(key=urgency)
        self.running = ranked
        first = True
        while len(ranked) > 1 and (first or not self._fits(b)):
            self._release(b, ranked.pop(), len(ranked))
            first = False
        if len(ranked) == 1 and not self._fits(b):
            request = ranked.pop()
            b.preempt(request, to="tail", recall=True)
            b.reject(request, "out of memory even after retracting all others")
            self.dropped = [request]
        self.full = False
        out = sum(b.settled_tokens(request) for request in ranked) + self.retract_decode_steps * len(ranked)
        self.ratio = min(1.0, out / (sum(request.max_tokens for request in ranked) + 1))

    def _release(self, b: Batch, request: Request, left: int) -> None:
        """Back to the end of the queue; slots are evicted ahead for the `left` others."""
        b.preempt(request, to="tail", recall=True)
        if self.enable_priority_scheduling:
            self._line.stamp(request)
        if self._cache is not None:
            self._cache.evict(-(-left * self.retract_decode_steps // b.block))

    # -- priorities --------------------------------------------------------------------------------------------------

    def _make_way(self, b: Batch, request: Request, budget: Pass) -> bool:
        """Releases running requests that are far less urgent; False, and nothing has changed, if too few are."""
        threshold = self.priority_scheduling_preemption_threshold
        need = self._line.tried.get(request.index, 0) - request.keyed + self.clip(request.max_tokens) - budget.total()
        victims: dict[int, float] = {}
        for other in sorted(self.running, key=lambda r: (-urgency(r), -self._line.stamped(r))):
            if urgency(other) - urgency(request) <= threshold or (victims and need <= 0):
                break
            victims[other.index] = self._owed(other, b.settled_tokens(other))
            need -= victims[other.index]
        if not victims or need > 0:
            return False
        left = len(self.running)
        for other in self.running:
            if other.index in victims:
                budget.forget(victims[other.index])
                left -= 1
                self._release(b, other, left)
        self.running = [other for other in self.running if other.index not in victims]
        return True
