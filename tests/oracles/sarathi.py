"""Sarathi-Serve's four policies written out plainly, one step at a time: `sarathi`, `vllm` (the original prefill-first
vLLM), `orca` and `faster_transformer` (static batches).

`run(recording)` plays `config` and `requests` of a recording and returns the steps. Prompts and outputs are those of
the requests: a preempted request keeps its output and still stops after `output_len` tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracles.engine_rules import SarathiRules
from tests.oracles.vllm_v1 import Step, note

WATERMARK = 0.01  # of all blocks; there is no null block


@dataclass(eq=False)
class Request:
    """A request and where it stands. Lengths and counts in tokens."""

    id: str
    place: int
    arrival_step: int
    prompt: int
    output: int
    out: int = 0
    to_prefill: int = 0  # tokens to compute before decoding: the prompt, after a preemption with the output so far
    computed: int = 0
    blocks: int = 0
    done: bool = False

    @property
    def known(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return self.prompt + self.out

    @property
    def prefilled(self) -> bool:
        """No prefill is left: from here on it decodes."""
        return self.computed >= self.to_prefill


class Oracle:
    """One scheduler and the requests of one recording."""

    def __init__(self, recording: Mapping[str, Any], rules: SarathiRules | None = None) -> None:
        self.rules = rules or SarathiRules()
        config: Mapping[str, Any] = recording["config"]
        self.free: int = config["num_gpu_blocks"]
        self.policy: str = config["policy"]
        self.max_steps: int = recording.get("max_steps", 600)
        self.seats: int = config["max_num_seqs"]
        self.chunk_size: int = config["chunk_size"]
        self.max_model_len: int = config["max_model_len"]
        self.max_batched_tokens: int = config["max_batched_tokens"] or self.max_model_len
        self.block_size: int = config["block_size"]
        self.num_blocks: int = config["num_gpu_blocks"]
        self.requests = [
            Request(row["id"], place, row["arrival_step"], row["prompt_len"], row["output_len"])
            for place, row in enumerate(recording["requests"])
        ]
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.prefills: list[tuple[Request, int]] = []
        self.decodes: list[Request] = []
        self.preempted: list[Request] = []
        self.ignored: list[Request] = []
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
        """One step: arrivals, schedule, update."""
        step: Step = {"step": now}
        arrived = [r for r in self.requests if r.arrival_step == now]
        self.waiting += arrived
        note(step, "arrived", [r.id for r in arrived])
        self.prefills, self.decodes, self.preempted, self.ignored = [], [], [], []
        if self.running or self.waiting:
            self.schedule()
        else:
            step["idle"] = True
        step["sched"] = [[r.id, n, "P"] for r, n in self.prefills] + [[r.id, 1, "D"] for r in self.decodes]
        step["total"] = self.tokens()
        note(step, "preempted", [r.id for r in self.preempted])
        note(step, "ignored", [r.id for r in self.ignored])
        step["free_sched"] = self.free
        note(step, "finished", self.update())
        step["running"], step["waiting"] = [r.id for r in self.running], [r.id for r in self.waiting]
        step["free"] = self.free
        return step

    def tokens(self) -> int:
        """Tokens of the step so far."""
        return sum(n for _, n in self.prefills) + len(self.decodes)

    def charged(self) -> int:
        """Tokens of the step that a chunk's budget counts: decodes too."""
        return self.tokens() - (len(self.decodes) if self.rules.decodes_are_free else 0)

    def update(self) -> list[str]:
        """A token for everyone who decodes and for every prefill that came to its end; the ids of the finished."""
        for r, n in self.prefills:
            r.computed += n
        for r in self.decodes:
            r.computed += 1
        finished = []
        scheduled = [r for r, _ in self.prefills if r.prefilled] + self.decodes
        for r in sorted(scheduled, key=self.running.index):
            r.out += 1
            if r.out >= r.output:
                r.done = True
                self.running.remove(r)
                self.release(r)
                finished.append(r.id)
        return finished

    # ------------------------------------------------------------------ the policies

    def schedule(self) -> None:
        """One step of the policy."""
        if self.policy == "sarathi":
            self.schedule_sarathi()
        elif self.policy == "vllm":
            self.schedule_vllm()
        elif self.policy == "orca":
            self.schedule_orca()
        elif self.policy == "faster_transformer":
            self.schedule_static()
        else:
            raise ValueError(f"policy {self.policy!r}")

    def schedule_sarathi(self) -> None:
        """Decodes, then running prefills, then new ones, in chunks that share a budget with the decodes.

        Who was preempted in this step is not admitted again in it, and being at the head, keeps out all behind it.
        """
        prefilling = self.decode_running()
        for r in prefilling:
            n = min(r.to_prefill - r.computed, self.chunk_size - self.charged())
            self.running.append(r)
            if n > 0:
                self.prefills.append((r, n))
        while self.waiting:
            r = self.waiting[0]
            if self.ignore(r):
                continue
            if r in self.preempted and not self.rules.back_in_the_same_step:
                return
            n = min(r.known, self.chunk_size - self.charged())
            if not self.fits(r) or len(self.running) >= self.seats or n <= 0:
                return
            self.start(r, n)

    def schedule_vllm(self) -> None:
        """Whole prompts by themselves if any can start, else one token for each of running.

        A step that drops a request as too long decodes nothing either.
        """
        while self.waiting:
            r = self.waiting[0]
            if self.ignore(r):
                continue
            over = self.tokens() + r.known > self.max_batched_tokens
            if not self.fits(r) or len(self.running) >= self.seats or over:
                break
            self.start(r, r.known)
        alone = not self.prefills and (not self.ignored or self.rules.ignoring_costs_no_step)
        if alone or self.rules.decodes_ride_along:
            started = self.decode_running()
            self.running += started
            self.prefills = [(r, n) for r, n in self.prefills if r in started]

    def schedule_orca(self) -> None:
        """Everyone running, and whole prompts of new ones beside them as long as seats and reservations last."""
        self.decodes = list(self.running)
        while self.waiting:
            r = self.waiting[0]
            if self.ignore(r):
                continue
            if not self.fits(r) or len(self.running) >= self.seats:
                return
            self.start(r, r.known)

    def schedule_static(self) -> None:
        """A new batch only when the last one has ended."""
        if self.running and not self.rules.static_lets_in:
            self.decodes = list(self.running)
        else:
            self.schedule_orca()

    # ------------------------------------------------------------------ parts of them

    def decode_running(self) -> list[Request]:
        """One token for each of running, oldest first; the unfinished prefills among them are returned, and are left
        out of running.

        Whenever no block at all is free, the last one not yet visited is preempted, at worst the request itself; that
        its last block may still have room is not looked at.
        """
        prefilling: list[Request] = []
        unvisited = sorted(self.running, key=lambda r: (r.arrival_step, r.place))
        self.running = []
        while unvisited:
            r = unvisited.pop(0)
            if not r.prefilled:
                prefilling.append(r)
                continue
            need = self.blocks_for(r.known) - r.blocks
            short = min(need, 1) if self.rules.evicts_at_need_only else 1
            while self.free < short and unvisited:
                self.preempt(unvisited.pop(0 if self.rules.next_gives_way else -1))
            if self.free < short:
                self.preempt(r)
                break
            r.blocks += need
            self.free -= need
            self.running.append(r)
            self.decodes.append(r)
        return prefilling

    def preempt(self, r: Request) -> None:
        """Recompute later, from the front of the queue; the output so far is then part of the prompt."""
        self.release(r)
        r.computed = 0
        self.waiting.insert(len(self.waiting) if self.rules.evicted_to_back else 0, r)
        self.preempted.append(r)

    def ignore(self, r: Request) -> bool:
        """Drop a request that is over max_model_len, or for `vllm` over the token limit, once it heads the queue."""
        limit = min(self.max_model_len, self.max_batched_tokens) if self.policy == "vllm" else self.max_model_len
        if r.known <= limit:
            return False
        self.waiting.remove(r)
        self.ignored.append(r)
        r.done = True
        return True

    def fits(self, r: Request) -> bool:
        """Its first blocks are free, and the watermark after them."""
        return self.free - self.first_blocks(r) >= self.watermark_blocks

    def start(self, r: Request, n: int) -> None:
        """Admit the head of the queue with n tokens of its prefill."""
        self.waiting.remove(r)
        self.running.append(r)
        r.to_prefill = r.prompt if self.rules.output_not_computed_again else r.known
        r.blocks = self.first_blocks(r)
        self.free -= r.blocks
        self.prefills.append((r, n))

    @property
    def reserves(self) -> bool:
        """Each request holds the blocks of max_model_len tokens from the start."""
        return self.policy in ("orca", "faster_transformer") and not self.rules.nothing_reserved

    @property
    def watermark_blocks(self) -> int:
        """Blocks that an admission leaves free."""
        share = WATERMARK * self.num_blocks
        rounded = -int(-share // 1) if self.rules.watermark_rounded_up else int(share)
        return 0 if self.reserves or self.rules.no_watermark else rounded

    def first_blocks(self, r: Request) -> int:
        """Blocks that a request takes when it is admitted: for its whole prompt, or for all that it may become."""
        return self.blocks_for(self.max_model_len if self.reserves else r.known)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block_size)

    def release(self, r: Request) -> None:
        """Give all of a request's blocks back."""
        self.free += r.blocks
        r.blocks = 0


def run(recording: Mapping[str, Any], rules: SarathiRules | None = None) -> list[Step]:
    """The steps of a recording's `config` and `requests` in at most `max_steps` steps."""
    return Oracle(recording, rules).run()
