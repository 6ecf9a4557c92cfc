"""The SGLang scheduler written out plainly, one step and one request at a time, to test the fast one against.

`run(recording)` plays `config` and `requests` of a recording and returns the steps. Nothing here is quick or clever:
lists and loops, every sum taken anew. Each rule of the specification stands in one method or one marked place; where
`sglang_rules.py` names a deviation from it, it can be broken on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracles.sglang_pass import GO_ON, NO_ROOM, Pass
from tests.oracles.sglang_pool import OutOfSlotsError, Pool, Request, requests_of
from tests.oracles.sglang_rules import Rules
from tests.oracles.sglang_tree import common

Step = dict[str, Any]

DEFAULTS: dict[str, Any] = {  # the recordings' own, not SGLang's
    "max_total_tokens": 400,
    "max_running_requests": 16,
    "max_prefill_tokens": 256,
    "chunked_prefill_size": 64,
    "context_length": 4096,
    "page_size": 1,
    "enable_mixed_chunk": False,
    "schedule_policy": "fcfs",
    "schedule_conservativeness": 1.0,
    "disable_radix_cache": True,
    "overlap": False,
    "prefill_max_requests": None,
    "prefill_decode_interval": 0,
    "retraction_policy": "length",
    "enable_priority_scheduling": False,
    "schedule_low_priority_values_first": False,
    "priority_scheduling_preemption_threshold": 10,
    "max_queued_requests": None,
    "decay_steps": 600,
    "init_new_token_ratio": 0.7,
    "min_new_token_ratio_factor": 0.14,
    "retract_decode_steps": 20,
    "clip_max_new_tokens": 4096,
    "in_batch_check": 32,
    "in_batch_deprioritize": 32,
}

LONG_QUEUE = 128  # above it lpm leaves the queue as it is
LOOKUP_EVERY = 32  # orderings between two refreshing lookups of the queue


def run(recording: Mapping[str, Any], rules: Rules | None = None) -> list[Step]:
    """The steps of `recording`, from its `config`, `requests` and `max_steps`."""
    oracle = Oracle(recording, rules or Rules())
    oracle.run()
    return oracle.steps


@dataclass(eq=False)
class Member:
    """One request of a batch: `n` tokens are computed after `before`, and `emits` says whether a token comes out."""

    r: Request
    n: int
    before: int
    prompt: bool
    emits: bool
    retractions: int  # of r when it was launched: if they are more at settling, the result is stale

    def row(self) -> list[Any]:
        return [self.r.id, self.n, self.before, "P" if self.prompt else "D", int(self.emits)]


@dataclass(eq=False)
class Batch:
    """What one step computes."""

    step: int
    mode: str
    members: list[Member]

    @property
    def prefill(self) -> bool:
        return self.mode != "decode"


class Oracle:
    """One run of a recording: `steps` as in the golden files, `end` as there."""

    def __init__(self, recording: Mapping[str, Any], rules: Rules) -> None:
        self.config = {**DEFAULTS, **recording.get("config", {})}
        self.rules = rules
        self.max_steps = int(recording.get("max_steps", 600))
        self.requests = requests_of(recording)
        if self.config["max_queued_requests"] is not None:
            raise ValueError("max_queued_requests: no recording shows it, so the oracle does not play it")
        self.pool = Pool(
            self.config["max_total_tokens"], self.config["page_size"], not self.config["disable_radix_cache"], rules
        )
        self.init = min(self.config["init_new_token_ratio"] * self.config["schedule_conservativeness"], 1.0)
        self.least = self.init * self.config["min_new_token_ratio_factor"]
        self.decay = (self.init - self.least) / self.config["decay_steps"]
        self.ratio = self.init
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.shut = False
        self.chunk: Request | None = None
        self.last: Batch | None = None  # the batch of the previous step
        self.flying: Batch | None = None  # overlap: launched and not settled
        self.since_prefill: int | None = None  # plans since the last prefill batch; None: no deferral is due
        self.orderings = 0
        self.stamp = 0
        self.steps: list[Step] = []
        self.now: Step = {}  # the step being recorded
        self.end = "max_steps"

    # the loop (2, 10)

    def run(self) -> None:
        barren = 0
        for step in range(self.max_steps):
            self.now = {"step": step}
            try:
                self.turn(step)
            except OutOfSlotsError:
                self.end = f"crash in step {step}: out of memory"
                return
            self.steps.append(self.now)
            self.check()
            if all(r.done for r in self.requests) and self.flying is None:
                self.end = "all finished"
                return
            due = any(r.arrival_step > step for r in self.requests)
            barren = 0 if due or self.now["total"] else barren + 1
            if barren == 3 + self.config["prefill_decode_interval"]:  # its pauses are no stand-still
                self.end = f"stuck: {barren} steps without a token"
                return

    def turn(self, step: int) -> None:
        """One turn of the event loop."""
        self.arrive(step)
        late = self.flying
        if late is not None and self.rules.settle_first:
            self.settle(late)
        batch = self.plan(step)
        self.now["mode"] = batch.mode if batch else None
        self.now["sched"] = [m.row() for m in batch.members] if batch else []
        self.now["total"] = sum(m.n for m in batch.members) if batch else 0
        if batch is not None:
            self.now["free_sched"] = self.pool.free
        if self.config["overlap"]:
            if late is not None and not self.rules.settle_first:
                self.settle(late)
            if late is not None:
                self.now["processed"] = late.step
            self.flying = batch
        elif batch is not None:
            self.settle(batch)
        if batch is None and (late is None or self.rules.ratio_resets_at_first_idle) and self.empty():
            self.idle()
        self.record(batch)

    def empty(self) -> bool:
        return not (self.waiting or self.running or self.chunk)

    def idle(self) -> None:
        if not self.rules.ratio_kept_when_idle:
            self.ratio = self.init
        self.now["ratio_reset"] = True

    def record(self, batch: Batch | None) -> None:
        running = [r for r in self.running if not r.done]
        if batch is not None and batch.prefill:
            fresh = [m.r for m in batch.members if not m.r.done and m.r is not self.chunk]
            running += [r for r in fresh if r not in running]
        self.now["running"] = [r.id for r in running]
        self.now["chunked"] = self.chunk.id if self.chunk else None
        self.now["waiting"] = [r.id for r in self.waiting]
        self.now["full"] = int(self.shut)
        self.now["free"] = self.pool.free
        self.now["evictable"] = self.pool.loose()
        self.now["ratio"] = self.ratio

    def check(self) -> None:
        """Slots are conserved, and nobody stands in two places."""
        self.pool.check([r for r in self.requests if not r.done])
        places = [*self.waiting, *(r for r in self.running if not r.done), *([self.chunk] if self.chunk else [])]
        assert len({id(r) for r in places}) == len(places)
        assert not any(r.row or r.done for r in self.waiting)

    def note(self, key: str, value: Any) -> None:
        self.now.setdefault(key, []).append(value)

    # arrival (9)

    def arrive(self, step: int) -> None:
        for r in self.requests:
            if r.arrival_step == step:
                self.note("arrived", r.id)
                self.cut_limit(r)
                if not r.done:
                    self.queue(r)

    def cut_limit(self, r: Request) -> None:
        """Cuts M to what context and pool can hold; a prompt that is too long becomes a stub of one token."""
        slots, page = self.config["max_total_tokens"], self.config["page_size"]
        most = min(self.config["context_length"], slots) - 1
        limit = max(0, min(r.limit, most - r.prompt - 1, slots - self.pool.up(r.prompt) - page - 1))
        too_long = r.prompt >= most - 5
        if limit < r.limit and not too_long and not self.rules.limit_uncut:
            self.note("clipped", [r.id, limit])
        if not self.rules.limit_uncut:
            r.limit = limit
        if too_long:
            self.note("too_long", r.id)
            r.tokens, r.prompt, r.ends_at = ["stub", *r.tokens[r.prompt :]], 1, 1
            r.done = self.rules.too_long_dropped

    def queue(self, r: Request) -> None:
        """To the end of the waiting list, stamped anew."""
        self.waiting.append(r)
        if r.queued_at and self.rules.requeued_in_place:
            return
        self.stamp += 1
        r.queued_at = self.stamp

    # plan (2)

    def plan(self, step: int) -> Batch | None:
        self.stash_chunk()
        self.merge_last()
        self.drop_finished()
        batch = None
        if not self.deferred() and not (self.rules.decode_before_prefill and self.running):
            batch = self.prefill(step)
        if batch is None and any(r.limit > 0 for r in self.running):
            batch = self.decode(step)
        if batch is not None and batch.prefill:
            self.since_prefill = 0
            if self.rules.ratio_decays_on_prefill:
                self.ratio = max(self.ratio - self.decay, self.least)
        self.last = batch
        return batch

    def stash_chunk(self) -> None:
        """What the chunk has computed is published; its next piece starts there."""
        if self.chunk is not None:
            if not self.rules.chunks_unpublished:
                self.pool.publish(self.chunk, self.chunk.end)
            self.chunk.pre = self.chunk.end

    def merge_last(self) -> None:
        """A prefill batch joins the running one, less those that finished and the chunk."""
        if self.last is None or not self.last.prefill:
            return
        members = [m.r for m in self.last.members if m.retractions == m.r.retractions]
        left = [r for r in members if not r.done and r is not self.chunk]
        kept = [r for r in members if not r.done] if self.rules.chunk_keeps_shut else left
        if len(kept) < len(members):
            self.reopen()
        if left and not self.running and not self.rules.shut_kept_with_new_object:
            self.shut = False
        self.running += left

    def drop_finished(self) -> None:
        left = [r for r in self.running if not r.done]
        if len(left) < len(self.running):
            self.reopen()
        self.running = left

    def reopen(self) -> None:
        if not self.rules.shut_stays_after_finish:
            self.shut = False

    def deferred(self) -> bool:
        """prefill_decode_interval: the k plans after a prefill batch skip the pass (8)."""
        if self.since_prefill is None or self.rules.interval_ignored:
            return False
        self.since_prefill += 1
        if self.since_prefill > self.config["prefill_decode_interval"]:
            self.since_prefill = None
        return self.since_prefill is not None

    # the prefill pass (3)

    def prefill(self, step: int) -> Batch | None:
        taken = self.prefill_pass()
        if not taken:
            return None
        self.waiting = [r for r in self.waiting if r not in taken]
        for r in taken:
            if not r.row:
                self.note("resumed" if r.seen else "new", r.id)
            r.seen = r.row = True
        members = [self.prompt_member(r) for r in taken]
        self.pool.take_prompts(taken)
        for r in taken:
            if self.rules.published_at_launch and r.end == r.full:
                self.pool.publish(r, r.end)
        riders = self.riders(step) if self.mixing() else []
        order = [*riders, *members] if self.rules.riders_in_front else [*members, *riders]
        return Batch(step, "mixed" if riders else "extend", order)

    def prompt_member(self, r: Request) -> Member:
        return Member(r, r.end - r.pre, r.pre, True, r.end == r.full, r.retractions)

    def mixing(self) -> bool:
        return bool(self.config["enable_mixed_chunk"]) and self.config["chunked_prefill_size"] > 0

    def prefill_pass(self) -> list[Request]:
        """The requests of the next prefill batch, their `end` set; the chunk is kept up to date."""
        urgent = bool(self.config["enable_priority_scheduling"])
        if urgent or not self.running:
            self.shut = False
        if (self.shut or not self.waiting) and self.chunk is None:
            return []
        if self.seats([]) <= 0 and self.chunk is None and not urgent:
            self.shut = True
            return []
        queue = self.order()
        budget = Pass(self.config, self.rules, self.pool, self.running, self.ratio, self.mixing())
        if self.chunk is not None and not self.rules.chunk_last:
            self.go_on_with_chunk(budget)
        preempted: list[Request] = []
        if not self.rules.order_forgotten:
            self.waiting = list(queue)
        for r in queue:
            if not self.try_one(r, budget, preempted, urgent):
                break
        if self.chunk is not None and self.rules.chunk_last and self.chunk not in budget.taken:
            self.go_on_with_chunk(budget)
        for r in preempted:
            self.queue(r)
        if budget.cut is not None:
            self.chunk = budget.cut
        return budget.taken

    def seats(self, taken: list[Request]) -> int:
        """Requests that the pass may hold in all."""
        most = int(self.config["max_running_requests"])
        rows = sum(1 for r in self.requests if r.row)
        return min(most - len(self.running), most - rows + sum(1 for r in taken if r.row))

    def go_on_with_chunk(self, budget: Pass) -> None:
        assert self.chunk is not None
        if budget.take_chunk(self.chunk):
            self.chunk = None

    def try_one(self, r: Request, budget: Pass, preempted: list[Request], urgent: bool) -> bool:
        """Admits `r` if it can be; False: the pass stops."""
        if budget.spent():
            return False
        counted = [t for t in budget.taken if not (self.rules.chunk_not_counted and t.row)]
        if len(counted) >= self.seats(budget.taken):
            self.shut = True
        if self.shut and not (urgent and self.preempt(r, budget, preempted)):
            return False
        self.pool.hit(r)
        room = round(float(budget.total()), 6)
        verdict = budget.admit(r)
        if verdict == GO_ON:
            return True
        self.note("refused", [r.id, verdict, int(r in budget.taken), room])
        if verdict == NO_ROOM and not self.rules.refusal_leaves_open:
            self.shut = bool(budget.taken or self.running)
        return self.rules.refused_skipped and r not in budget.taken

    # the order of the waiting list (6)

    def order(self) -> list[Request]:
        """The waiting requests in the order in which the pass tries them."""
        policy = self.config["schedule_policy"]
        if policy == "lpm" and (
            self.pool.tree is None or (len(self.waiting) > LONG_QUEUE and not self.rules.long_queue_sorted)
        ):
            policy = "fcfs"
        if self.pool.tree is not None and policy != "lpm":
            self.lookup_now_and_then()
        if policy == "lpm":
            return self.by_prefix()
        urgent = self.config["enable_priority_scheduling"]
        if policy == "lof":
            return sorted(self.waiting, key=lambda r: (self.urgency(r) if urgent else 0, -r.limit))
        if urgent:
            return sorted(self.waiting, key=lambda r: (self.urgency(r), r.queued_at))
        return list(self.waiting)

    def urgency(self, r: Request) -> int:
        """Smaller is more urgent."""
        return r.priority if self.config["schedule_low_priority_values_first"] else -r.priority

    def lookup_now_and_then(self) -> None:
        """Every 32nd ordering, the 1st included, refreshes what the first 128 waiting would hit."""
        self.orderings += 1
        if self.orderings % LOOKUP_EVERY == 1 and not self.rules.no_periodic_lookup:
            for r in reversed(self.waiting[:LONG_QUEUE]):
                r.pre, _ = self.pool.lookup(r, r.full)

    def by_prefix(self) -> list[Request]:
        """Longest hit first; who would share a prefix with one before it is set back."""
        keys: dict[str, float] = {}
        first: list[Request] = []
        for r in self.waiting:
            r.pre, _ = self.pool.lookup(r, r.full)
            keys[r.id] = -min(r.pre, r.full - 1)
            if r.pre <= self.config["in_batch_check"]:
                shared = max((common(r.known(r.full), f.known(f.full), 1) for f in first), default=0)
                if shared >= self.config["in_batch_deprioritize"] and not self.rules.nobody_set_back:
                    keys[r.id] = float("inf")
                else:
                    first.append(r)
        return sorted(self.waiting, key=lambda r: keys[r.id])

    # priority preemption (8)

    def preempt(self, r: Request, budget: Pass, preempted: list[Request]) -> bool:
        """Releases running requests that are far less urgent than `r`; False, and nothing changed, if too few are."""
        threshold = self.config["priority_scheduling_preemption_threshold"] - int(self.rules.threshold_reached)
        known = r.full if self.rules.prompt_counted else r.tried_full
        need = known - r.pre + budget.clip(r.limit) - budget.total()
        victims: list[Request] = []
        for other in sorted(self.running, key=lambda o: (-self.urgency(o), -o.queued_at)):
            if self.urgency(other) - self.urgency(r) <= threshold or (victims and need <= 0):
                break
            victims.append(other)
            need -= budget.owed(other)
        if not victims or need > 0:
            return False
        left = len(self.running)
        for victim in [o for o in self.running if o in victims]:
            budget.forget(victim)
            left -= 1
            self.release(victim, left)
            preempted.append(victim)
        self.running = [o for o in self.running if o not in victims]
        return True

    # decode (5)

    def decode(self, step: int) -> Batch | None:
        left_out = self.leave_out()
        if not self.running:
            return None
        if self.fits(self.running):
            self.ratio = max(self.ratio - self.decay, self.least)
        elif left_out and not self.rules.retract_beside_left_out:
            return None
        else:
            self.retract()
        return Batch(step, "decode", self.decode_members()) if self.running else None

    def decode_members(self) -> list[Member]:
        members = [Member(r, 1, r.kv, False, True, r.retractions) for r in self.running]
        self.pool.take_decodes(self.running)
        return members

    def riders(self, step: int) -> list[Member]:
        """Mixed chunk: the running requests decode beside the taken prompts, if their slots fit (5)."""
        self.leave_out()
        if not self.running or not self.fits(self.running):
            return []
        members = self.decode_members()
        self.running = []
        return members

    def leave_out(self) -> bool:
        """Overlap: members whose result in flight is their last by length leave at once (10)."""
        if self.flying is None or self.rules.last_not_left_out:
            return False
        flying = [m.r for m in self.flying.members if m.emits and m.retractions == m.r.retractions]
        left = [r for r in self.running if not (r in flying and r.out + 1 >= r.limit)]
        shrank = len(left) < len(self.running)
        if shrank:
            self.shut = False
        self.running = left
        return shrank

    def fits(self, members: list[Request]) -> bool:
        return self.pool.evict(self.pool.need(members))

    def retract(self) -> None:
        """Members go back to the queue until the next token of the others fits; the last one is dropped."""
        ranked = self.ranked()
        victims: list[Request] = []
        while len(ranked) > 1 and not (victims and self.fits(ranked) and not self.rules.victims_all_but_one):
            victims.append(ranked.pop())
            self.release(victims[-1], len(ranked))
        if len(ranked) == 1 and not self.fits(ranked):
            self.drop(ranked.pop())
        self.running = [r for r in self.running if r in ranked] if self.rules.survivors_keep_order else ranked
        self.shut = False
        if not self.rules.ratio_kept_on_retract:
            self.ratio = self.ratio_after([*ranked, *victims] if self.rules.ratio_over_retracted else ranked)
        for r in victims:
            self.queue(r)
        if self.rules.retracted_to_head:
            self.waiting = [*victims, *(r for r in self.waiting if r not in victims)]

    def ranked(self) -> list[Request]:
        """The running requests, those that stay first."""
        ranked = list(self.running)
        if self.rules.victim_newest:
            return ranked
        outputs = -1 if self.rules.victim_most_outputs else 1
        prompt = -1 if self.rules.victim_shortest_prompt else 1
        ranked.sort(key=lambda r: (-outputs * r.out, prompt * r.prompt))
        if self.config["retraction_policy"] == "priority":
            ranked.sort(key=self.urgency)
        return ranked

    def ratio_after(self, survivors: list[Request]) -> float:
        ahead: int = self.config["retract_decode_steps"] * len(survivors)
        ratio = (sum(r.out for r in survivors) + ahead) / (sum(r.limit for r in survivors) + 1)
        return min(1.0, ratio)

    def release(self, r: Request, left: int) -> None:
        """Takes the KV of `r`, and evicts 20 slots ahead for each of the `left` others."""
        self.note("retracted", [r.id, r.kv, r.out])
        if self.rules.retracted_published and r.out:
            self.pool.publish(r, min(r.kv, r.full))
        self.pool.release(r)
        r.retractions += 1
        if self.rules.retracted_lose_outputs:
            r.out = 0
        if not self.rules.no_slots_ahead:
            left += int(self.rules.slots_ahead_for_victim)
            self.pool.evict(left * self.config["retract_decode_steps"])

    def drop(self, r: Request) -> None:
        """The last running request does not fit alone: it ends with an error."""
        self.note("dropped", r.id)
        self.pool.release(r)
        r.retractions += 1
        r.done = True

    # settle (2)

    def settle(self, batch: Batch) -> None:
        """The results of `batch` count; whoever is finished gives up its slots."""
        for m in batch.members:
            r = m.r
            stale = m.retractions != r.retractions and not self.rules.stale_token_kept
            if r.done or stale or not m.emits:
                continue
            r.out += 1
            if r.out >= r.limit or (r.ends_at is not None and r.out >= r.ends_at):
                r.done = True
                self.note("finished", r.id)
                self.pool.finish(r)
            elif m.prompt:
                self.pool.publish(r, r.end)
