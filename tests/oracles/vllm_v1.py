"""The vLLM V1 scheduler written out plainly, one step and one block at a time, to test the fast one against.

`run(recording)` plays `config` and `requests` of a recording and returns the steps. Nothing here is quick or clever:
lists, loops and real block ids. Each rule of the specification stands in one method or one marked place; where
`rules.py` names a deviation from it, it can be broken on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracles.pool import Pool
from tests.oracles.requests import Request, read_requests
from tests.oracles.rules import Rules

Step = dict[str, Any]

DEFAULTS: dict[str, Any] = {  # the recordings' own, not vLLM's
    "max_num_seqs": 16,
    "max_num_batched_tokens": 64,
    "max_num_scheduled_tokens": None,
    "max_num_active_seqs": None,
    "num_gpu_blocks": 101,
    "block_size": 16,
    "max_model_len": 4096,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "policy": "fcfs",
    "enable_prefix_caching": False,
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
    "async_scheduling": False,
}


@dataclass(eq=False)
class Entry:
    """One request's part of a step."""

    request: Request
    n: int
    before: int  # computed tokens before the step
    emits: bool = False
    kind: str = "P"


Scheduled = tuple[int, list[Entry]]  # a step and its batch


class Oracle:
    """One scheduler and the requests of one recording."""

    def __init__(self, recording: Mapping[str, Any], rules: Rules | None = None) -> None:
        config: dict[str, Any] = DEFAULTS | recording["config"]
        self.rules = rules or Rules()
        self.max_steps: int = recording.get("max_steps", 600)
        self.max_num_batched_tokens: int = config["max_num_batched_tokens"]
        self.token_budget: int = config["max_num_scheduled_tokens"] or self.max_num_batched_tokens
        self.seats: int = config["max_num_active_seqs"] or config["max_num_seqs"]
        self.block_size: int = config["block_size"]
        self.max_model_len: int = config["max_model_len"]
        self.chunked: bool = config["enable_chunked_prefill"]
        self.threshold: int = config["long_prefill_token_threshold"]
        self.adaptive: bool = config["long_prefill_token_threshold_adaptive"]
        self.by_priority: bool = config["policy"] == "priority"
        self.caching: bool = config["enable_prefix_caching"]
        self.reserve_full: bool = config["scheduler_reserve_full_isl"]
        self.is_async: bool = config["async_scheduling"]
        self.watermark_blocks = self.watermark(config["watermark"], config["num_gpu_blocks"])
        self.pool = Pool(config["num_gpu_blocks"], self.rules)
        self.requests = read_requests(recording["requests"])
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.batch: list[Entry] = []
        self.victims: list[tuple[Request, int]] = []  # and the computed tokens that each lost
        self.in_flight: Scheduled | None = None  # async: the batch that the model is at
        self.alloc_log: list[list[Any]] = []
        self.budget = 0
        self.inner_budget = 0
        self.end = ""

    # ------------------------------------------------------------------ the run

    def run(self) -> list[Step]:
        """All steps, until everything has finished, nothing can go on, or `max_steps`."""
        steps: list[Step] = []
        fruitless = 0
        self.end = "max_steps"
        while len(steps) < self.max_steps:
            now = len(steps)
            if all(r.done for r in self.requests):
                self.end = "all finished"
                break
            steps.append(self.tick(now))
            to_come = any(r.arrival_step > now for r in self.requests)
            fruitless = fruitless + 1 if steps[-1]["total"] == 0 and not to_come else 0
            if fruitless == 3 and not all(r.done for r in self.requests):
                self.end = "stuck: no tokens scheduled in 3 successive steps"
                break
        return steps

    def tick(self, now: int) -> Step:
        """One step: arrivals, aborts, schedule, update (async: the update of the step before)."""
        step: Step = {"step": now, "total": 0, "sched": []}
        ready: Scheduled | None  # the batch whose tokens arrive in this step
        note(step, "arrived", self.arrive(now))
        note(step, "aborted", self.abort(now))
        self.batch, self.victims, self.alloc_log = [], [], []
        if not self.running and not self.waiting:
            step["idle"] = True
            ready, self.in_flight = self.in_flight, None
        else:
            self.schedule(step)
            ready = (now, self.batch)
            if self.is_async and not self.rules.update_first:
                ready, self.in_flight = self.in_flight, ready
        step["n_running_sched"], step["n_waiting_sched"] = len(self.running), len(self.waiting)
        step["free_sched"] = len(self.pool.free)
        if self.is_async and ready is not None:
            step["updated_step"] = ready[0]
        note(step, "preempted", [[r.id, lost] for r, lost in self.victims])
        note(step, "finished", self.update(ready[1]) if ready is not None else [])
        step["running"], step["waiting"] = [r.id for r in self.running], [r.id for r in self.waiting]
        step["free"] = len(self.pool.free)
        return step

    def arrive(self, now: int) -> list[str]:
        """Queue the requests of this step in the order in which they are listed."""
        arrived = [r for r in self.requests if r.arrival_step == now]
        for r in arrived:
            self.push_back(r)
        return [r.id for r in arrived]

    def abort(self, now: int) -> list[str]:
        """Take out the requests whose client leaves at this step."""
        leaving = [r for r in self.running + self.waiting if r.abort_step == now]
        leaving.sort(key=lambda r: r.place)
        for r in leaving:
            self.leave(r)
        return [r.id for r in leaving]

    # ------------------------------------------------------------------ the queue (1)

    def queue_key(self, r: Request) -> tuple[Any, ...]:
        """The order of the waiting heap under priority."""
        last = r.place if self.rules.ties_by_arrival_alone else r.id
        return (r.priority, r.arrival, last)

    def push_back(self, r: Request) -> None:
        """An arrival: to the end of the deque, or on the heap."""
        self.waiting.append(r)
        if self.by_priority:
            self.waiting.sort(key=self.queue_key)

    def push_front(self, r: Request) -> None:
        """A preempted request: to the front of the deque, or back on the heap."""
        if self.by_priority or self.rules.preempted_to_back:
            self.push_back(r)
        else:
            self.waiting.insert(0, r)

    def leave(self, r: Request) -> None:
        """A request ends, wherever it stands."""
        r.done = True
        self.pool.release(r.blocks)
        r.blocks = []
        (self.running if r in self.running else self.waiting).remove(r)

    # ------------------------------------------------------------------ schedule() (2)

    def schedule(self, step: Step) -> None:
        """Build this step's batch and commit it."""
        self.budget, self.inner_budget = self.token_budget, self.max_num_batched_tokens
        cap = self.chunk_cap()
        self.serve_running(cap)
        if not self.victims or self.rules.admit_after_preemption:
            self.admit_waiting(cap, step)
        self.commit()
        step["sched"] = [[e.request.id, e.n, e.before, e.kind, int(e.emits)] for e in self.batch]
        step["total"] = sum(e.n for e in self.batch)
        if any(entry[-1] is False for entry in self.alloc_log):
            step["alloc_log"] = self.alloc_log

    def chunk_cap(self) -> int:
        """The longest chunk of this step, 0 for no cap; counted once, at the start of the step."""
        everyone = len(self.running) + len(self.waiting)
        if everyone <= 1 and not self.rules.cap_when_alone:
            return 0
        if self.threshold > 0 and self.adaptive:
            sharers = max(1, len(self.running)) if self.rules.cap_counts_running else everyone
            return max(self.threshold, self.max_num_batched_tokens // sharers)
        return self.threshold

    def serve_running(self, cap: int) -> None:
        """Pass 1: the running requests in list order."""
        if self.rules.decodes_first:
            self.running.sort(key=lambda r: r.computed < r.prompt)
        i = 0
        while i < len(self.running) and self.budget > 0:
            r = self.running[i]
            i += 1
            if self.last_token_in_flight(r):
                continue
            n = self.chunk(r, cap)
            if n <= 0:
                if self.rules.stop_at_nothing_to_do:
                    return
                continue
            while not self.grow(r, n):
                v = self.victim()
                if self.running.index(v) < i and not self.rules.victim_keeps_index:
                    i -= 1
                self.evict(v)
                if v is r:
                    break
                if self.rules.chunk_grows_back:
                    n = self.chunk(r, cap)
            if r in self.running:
                self.put(r, n, r.computed)
            elif not self.rules.self_preemption_goes_on:
                return

    def chunk(self, r: Request, cap: int) -> int:
        """Tokens that a running request gets in this step."""
        n = r.known + r.holders - r.computed
        if 0 < cap < n:
            n = cap
        room = self.max_model_len - r.computed - (0 if self.rules.one_past_max_model_len else 1)
        return min(n, self.budget, self.inner_budget, room)

    def last_token_in_flight(self, r: Request) -> bool:
        """Async: the token that reaches max_tokens has been scheduled, so there is nothing more to do (6)."""
        if self.rules.no_last_token_skip:
            return False
        return r.holders > 0 and r.computed + 2 - r.holders >= r.prompt + r.max_tokens

    def victim(self) -> Request:
        """Who gives way: the last of running; under priority the first of the worst (priority, arrival)."""
        if not self.by_priority or self.rules.victim_is_newest:
            return self.running[-1]
        candidates = list(reversed(self.running)) if self.rules.victim_last_maximum else self.running
        if self.rules.victim_by_priority_alone:
            return max(candidates, key=lambda r: r.priority)
        return max(candidates, key=lambda r: (r.priority, r.arrival))

    def evict(self, v: Request) -> None:
        """Take a victim out of running and out of this step's batch, whose tokens come back, and preempt it."""
        self.running.remove(v)
        for entry in [e for e in self.batch if e.request is v]:
            self.batch.remove(entry)
            if not self.rules.victim_keeps_budget:
                self.budget += entry.n
                self.inner_budget += entry.n
        self.victims.append((v, v.computed))
        self.preempt(v)

    def preempt(self, v: Request) -> None:
        """Recompute later: blocks and computed tokens are lost, the output is kept."""
        self.pool.release(v.blocks)
        v.blocks, v.published, v.computed = [], 0, 0
        v.stale, v.holders = v.inflight, 0
        if self.rules.preempted_keeps_no_output:
            v.out = 0
        self.push_front(v)
        self.alloc_log.append(["preempt", v.id])

    def admit_waiting(self, cap: int, step: Step) -> None:
        """Pass 2: the waiting requests from the head, until one does not fit."""
        aside: list[Request] = []
        seats = self.seats + (1 if self.rules.seats_one_more else 0)
        while self.waiting and self.budget > 0 and len(self.running) < seats:
            r = self.waiting[0]
            if r.stale > 0:
                aside.append(self.waiting.pop(0))
                continue
            hit = self.hit(r)
            cached = len(hit) * self.block_size
            n = r.known - cached
            if 0 < cap < n:
                n = cap
            left = min(self.budget, self.inner_budget)
            if not self.chunked and n > left and not self.rules.split_without_chunking:
                break
            n = min(n, left)
            if not self.admit(r, hit, n):
                if not self.rules.skip_blocked_head:
                    break
                aside.append(self.waiting.pop(0))
                continue
            self.waiting.pop(0)
            self.running.append(r)
            r.computed = cached
            self.put(r, n, cached)
            if self.rules.cached_tokens_charged:
                self.budget -= cached
            step.setdefault("resumed" if r.admitted else "new", []).append(r.id)
            r.admitted = True
        self.waiting[:0] = aside

    def put(self, r: Request, n: int, before: int) -> None:
        """A request gets n tokens of this step; both budgets are charged."""
        self.batch.append(Entry(r, n, before))
        self.budget -= n
        self.inner_budget -= n

    def commit(self) -> None:
        """The tokens of the batch count as computed; who has no known token left to compute emits one."""
        for e in self.batch:
            r = e.request
            r.computed = e.before + e.n
            e.emits = r.computed >= r.known + r.holders
            e.kind = "D" if e.emits and e.n == 1 and e.before >= r.prompt else "P"
            if e.emits and self.is_async:
                r.holders += 1
                r.inflight += 1

    # ------------------------------------------------------------------ update()

    def update(self, batch: list[Entry]) -> list[str]:
        """Deliver the tokens of a batch, in its order; the ids of those that finish.

        A token for a request that has ended meanwhile (EOS, abort) is thrown away.
        """
        finished: list[str] = []
        for e in batch:
            r = e.request
            if r.done:
                continue
            if self.rules.published_after_model and r in self.running:
                self.publish(r, r.computed - r.holders, late=True)
            if e.emits and self.deliver(r):
                finished.append(r.id)
        return finished

    def deliver(self, r: Request) -> bool:
        """One token arrives; True if it is the request's last."""
        if self.is_async:
            r.inflight -= 1
            if r.stale > 0:
                r.stale -= 1
                if self.rules.stale_token_lost:
                    return False
            else:
                r.holders -= 1
        r.out += 1
        if self.is_async and r in self.running and not self.rules.no_catch_up:
            self.publish(r, r.computed - r.holders)
        if not self.finished(r):
            return False
        self.leave(r)
        return True

    def finished(self, r: Request) -> bool:
        """It has its tokens, by limit or by itself, or reached max_model_len."""
        limit = self.max_model_len + (1 if self.rules.one_past_max_model_len else 0)
        return r.out >= r.output or r.known >= limit

    # ------------------------------------------------------------------ blocks (3)

    def watermark(self, fraction: float, num_blocks: int) -> int:
        """W: blocks that an admission leaves free while others run; the null block counts."""
        blocks = num_blocks - 1 if self.rules.watermark_of_usable else num_blocks
        exact = fraction * blocks
        return int(exact) + (1 if self.rules.watermark_rounded_up and exact > int(exact) else 0)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold so many tokens, none past max_model_len."""
        if self.rules.block_one_token_early:
            tokens += 1
        return -(-min(tokens, self.max_model_len) // self.block_size)

    def grow(self, r: Request, n: int) -> bool:
        """Blocks for n more tokens of a running request; False, and nothing changes, if too few are free."""
        need = max(0, self.blocks_for(r.computed + n) - len(r.blocks))
        spare = self.watermark_blocks if self.rules.watermark_in_grow and need else 0
        fits = need + spare <= len(self.pool.free)
        self.alloc_log.append(["alloc", r.id, n, 0, fits])
        if fits:
            r.blocks += self.pool.take(need)
            self.publish(r, r.computed + n)
        return fits

    def admit(self, r: Request, hit: list[int], n: int) -> bool:
        """Blocks for the first n tokens after the hit; False, and nothing changes, if too few are free."""
        idle = len(self.pool.idle(hit))
        spare = self.watermark_blocks if self.running or self.rules.watermark_when_alone else 0
        cached = len(hit) * self.block_size
        whole = self.blocks_for(r.prompt if self.rules.reserve_prompt_only else r.known) - len(hit)
        chunk = self.blocks_for(cached + n) - len(hit)
        fits = chunk + idle + spare <= len(self.pool.free)
        if self.reserve_full:
            counted = 0 if self.rules.reserve_forgets_idle else idle
            fits = fits and whole + counted + spare <= len(self.pool.free)
        self.alloc_log.append(["alloc", r.id, n, cached, fits])
        if not fits:
            if self.rules.failed_attempt_refreshes:
                self.pool.refresh(hit)
            return False
        self.pool.reference(hit)
        takes_all = self.rules.reserve_takes_blocks and self.reserve_full
        r.blocks = hit + self.pool.take(whole if takes_all else chunk)
        r.published = len(hit)
        self.publish(r, cached + n)
        return True

    # ------------------------------------------------------------------ prefix cache (5)

    def publish(self, r: Request, upto: int, late: bool = False) -> None:
        """Key the full blocks of the first `upto` tokens; tokens not yet known fill no block."""
        if not self.caching or (self.rules.published_after_model and not late):
            return
        if not self.rules.placeholders_published:
            upto = min(upto, r.known)
        if self.rules.output_unpublished:
            upto = min(upto, r.prompt)
        upto = min(upto, len(r.tokens))
        for i in range(r.published, upto // self.block_size):
            self.pool.publish(r.blocks[i], r.key(i, self.block_size))
            r.published = i + 1

    def hit(self, r: Request) -> list[int]:
        """The cached blocks of the request's leading tokens; its last token is always computed."""
        if not self.caching:
            return []
        hit: list[int] = []
        for i in range((r.known - (0 if self.rules.last_token_hit else 1)) // self.block_size):
            block = self.pool.lookup(r.key(i, self.block_size))
            if block is None:
                break
            hit.append(block)
        return hit


def note(step: Step, name: str, ids: list[Any]) -> None:
    """Put a list into a step unless it is empty."""
    if ids:
        step[name] = ids


def run(recording: Mapping[str, Any], rules: Rules | None = None) -> list[Step]:
    """The steps of a recording's `config` and `requests` in at most `max_steps` steps, under `rules`."""
    return Oracle(recording, rules).run()
