"""The batch of a replica: who waits and who holds a seat, the step being built, and the rules every scheduler obeys.

A scheduler builds a step by calls that act at once and are checked here; a call that finds too few free blocks answers
False and has changed nothing. The decoding requests move together on a clock (`Clock`): a step costs the same for 8 of
them as for 256. `group.py` keeps their aggregates; this file the seats, the queue and the step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from batchsim.cost.model import Shape
from batchsim.errors import RuleBroken
from batchsim.group import DecodeGroup
from batchsim.kv.blocks import BlockPool
from batchsim.kv.prefix import PrefixCache
from batchsim.queue import Key, Queue, queue
from batchsim.records import NEVER
from batchsim.request import Request
from batchsim.step import Chunk, Entry, Step, newest


class Batch:
    """What a scheduler sees of its replica, and the calls it builds a step with.

    waiting: by index, in queue order.  running: by index, in order of admission, all that hold a seat.
    prefilling: the running whose prompt (or recompute) is unfinished.  decoding: how many decode.
    free: blocks free now.  block: tokens a block.  now_ns: the clock.  draining: no arrival is on its way.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        scheduler: str,
        order: Key | None = None,
        hold: bool = False,
        oracle: bool = False,
        log: bool = False,
        max_model_len: int = 1 << 60,
    ) -> None:
        self.pool = pool
        self.block = pool.size
        self.group = DecodeGroup(pool.size)
        self.clock = self.group.clock
        self.queue: Queue = queue(order)
        self.seats: dict[int, Request] = {}
        self.prefilling: dict[int, Request] = {}
        self.resting: dict[int, Request] = {}  # past the prompt, but not moving with the group
        self.now_ns = 0
        self.draining = False
        self.max_model_len = max_model_len
        self.step = Step()
        self.hold_until_tick = -1
        self.headroom = 0  # blocks that a run of equal steps leaves free
        self.folds_output = False  # an evicted request's recompute is a prompt to its last token
        self.rejected: list[tuple[Request, str]] = []
        self.evicted = 0  # preemptions so far
        self.evictions = array("q")  # index, evicted_ns, resumed_ns, …
        self._scheduler, self._hold, self._oracle, self._log = scheduler, hold, oracle, log
        self._admissions = 0
        self.planning = False
        self.flight_ticked = False  # asynchronous scheduling: the step in flight is a tick,
        self.flight_singly: set[int] = set()  # and these take a token outside the group's clock
        self.flight_before: dict[int, int] = {}  # when those had their last token; the group at flight_before_ns
        self.flight_before_ns = 0
        self.recalled: list[
            tuple[Request, bool]
        ] = []  # evicted: their token in flight, or its gap in the tick, is void
        if isinstance(pool, PrefixCache):
            pool.scheduled = self._scheduled
        self.open_step()

    # -- what a scheduler reads ------------------------------------------------------------------------------------

    @property
    def waiting(self) -> Mapping[int, Request]:
        """Requests without a seat, in queue order."""
        return self.queue

    @property
    def running(self) -> Mapping[int, Request]:
        """Requests that hold a seat, in order of admission."""
        return self.seats

    @property
    def now_s(self) -> float:
        """The time, in seconds."""
        return self.now_ns / 1e9

    @property
    def free(self) -> int:
        """Blocks free now; cached ones that nobody holds count as free."""
        return self.pool.free

    @property
    def decoding(self) -> int:
        """How many requests are past their prompt: one token each a step."""
        return self.group.size + len(self.resting)

    def head(self) -> Request | None:
        """The first in the queue."""
        return self.queue.head()

    def newest(self) -> Request:
        """The running request that was admitted last."""
        return next(reversed(self.seats.values()))

    def cached(self, request: Request) -> int:
        """Tokens of a waiting request that an admission now would find in cache."""
        return self.pool.lookup(request)[0]

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens."""
        return -(-tokens // self.block)

    def blocks_of(self, request: Request) -> int:
        """Blocks that a running request holds."""
        if request.base is None:
            return request.blocks
        ahead = 1 if self.step.tick or request.index in self.step.named else 0
        return max(request.hold_blocks, -(-(request.computed_tokens + ahead) // self.block))

    def blocks_due(self, request: Request | None = None) -> int:
        """Blocks that the next token of this decoding request opens; without one, those that `decode()` would take."""
        if request is None:
            return self.group.blocks_needed() + sum(map(self._block_due, self.resting.values()))
        return self.group.block_due(request) if request.base is not None else self._block_due(request)

    def settled_tokens(self, request: Request) -> int:
        """Tokens emitted by steps that have ended: without the one in flight."""
        return request.emitted_tokens - self._in_flight(request, request.base is not None)

    def output_tokens(self, request: Request) -> int:
        """What the request will really generate: for schedulers that declare themselves an oracle.

        Raises RuleBroken for any other.
        """
        if not self._oracle:
            self._broken("only a declared oracle reads output lengths", f"asked for {request.id}'s")
        return request.limit

    def declared_tokens(self, request: Request) -> int:
        """Tokens to reserve for the output: the declared limit, else what the request will really generate.

        A reservation needs some bound; without a declared one the contract grants the true length.
        """
        return request.max_tokens if request.declared else request.limit

    # -- what a scheduler does ---------------------------------------------------------------------------------------

    def decode(self, only: Iterable[Request] | None = None) -> bool:
        """One token for every decoding request, or for `only` these while the others rest. False: blocks do not fit."""
        if only is not None:
            return self._decode_named(list(only))
        step = self.step
        if step.tick or step.named:
            self._broken("each request decodes once a step", "decode() after a decode")
        need = self.group.blocks_needed()
        if self.resting:
            need += sum(self._block_due(request) for request in self.resting.values())
        elif not self.group.size:
            return True
        if need:
            if need > self.pool.free:
                return False
            self.pool.take(need)
        step.tick = True
        if step.entries is not None:
            self._log_decodes(step.entries)
        if self.resting:
            step.dirty = True
            for request in self.resting.values():
                self._decode_alone(request)
        return True

    def decode_or_evict(self) -> None:
        """As `decode`, and where blocks run short the newest running request is preempted until the others have theirs.

        Walking the running requests in order of admission, as vLLM does, comes to the same: those before the one that finds
        no block have taken every free one by then. With a prefix cache that matters, for it says what is evicted.
        """
        pool, taken = self.pool, 0
        while True:
            need = self.group.blocks_needed() - taken
            if self.resting:
                need += sum(self._block_due(request) for request in self.resting.values())
            if need <= pool.free:
                break
            taken += pool.free
            pool.take(pool.free)
            self.preempt(self.newest())
        pool.give_back(taken)
        if not self.decode():
            raise AssertionError("the blocks were counted")

    def extend(self, request: Request, tokens: int) -> bool:
        """The next `tokens` tokens of a running request: a chunk of its prompt, or its next token. False: do not fit."""
        if request.index not in self.prefilling:
            if tokens != 1:
                self._broken("a request past its prompt decodes one token", f"extend({request.id}, {tokens})")
            return self._decode_named([request])
        if request.index in self.step.chunks:
            self._broken("each request computes one chunk a step", f"extend({request.id}) twice")
        if not 0 < tokens <= request.remaining_tokens:
            self._broken(
                "a chunk is part of what remains", f"extend({request.id}, {tokens}) of {request.remaining_tokens}"
            )
        computed = request._computed
        need = -(-min(computed + tokens, self.max_model_len) // self.block) - request.blocks
        if need > 0:
            if need > self.pool.free:
                return False
            self.pool.take(need)
            request.blocks += need
        self._add_chunk(request, tokens, computed)
        return True

    def admit(
        self, request: Request, tokens: int, *, hold_tokens: int = 0, room_tokens: int = 0, spare: int = 0
    ) -> bool:
        """A seat for a waiting request, which computes `tokens` tokens beyond its cache hit in this step.

        hold_tokens: blocks for that many tokens are held from now on. room_tokens: blocks for that many must be free,
        but are not held. spare: blocks that must stay free besides. False: blocks do not fit.
        """
        index = request.index
        if index not in self.queue:
            self._broken("only a waiting request is admitted", f"admit({request.id})")
        pool, block = self.pool, self.block
        hit, idle = pool.lookup(request) if pool.caching else (0, 0)
        remaining = request.prompt_tokens + request._emitted - hit
        if not 0 < tokens <= remaining:
            self._broken("a chunk is part of what remains", f"admit({request.id}, {tokens}) of {remaining}")
        filled = hit + tokens
        if filled > self.max_model_len:
            filled = self.max_model_len
        if hold_tokens > filled:
            filled = hold_tokens
        hit_blocks = hit // block
        need = -(-filled // block) - hit_blocks
        room = need
        if room_tokens > filled:
            room = -(-room_tokens // block) - hit_blocks
        if room + idle + spare > pool.free:
            return False
        self.queue.leave(request)
        if hit:
            pool.claim(request, hit, idle)
        pool.take(need)
        self._seat(request, hit, hit_blocks + need)
        request.hold_blocks = -(-hold_tokens // block) if hold_tokens else 0
        self._add_chunk(request, tokens, hit)
        return True

    def preempt(self, request: Request, to: str = "head", *, recall: bool = False) -> int:
        """Take the seat and the blocks from a running request; it goes back to the queue's `head` or `tail`, or where `order` says.

        What it computed is lost, what it emitted is kept; `recall`: but for a token in flight, which is thrown away.
        Returns the tokens it had been given in this step.
        """
        if request.index not in self.seats:
            self._broken("only a running request is preempted", f"preempt({request.id})")
        given = self.withdraw(request)
        recall = recall and self._in_flight(request, request.base is not None) > 0
        lost = self._unseat(request, given)
        if recall:
            self._recall(request)
        request.preemptions += 1
        request.lost_tokens = lost
        request.recomputed_tokens += lost
        self.step.preempted.append((request, lost))
        self.step.dirty = True
        self.evicted += 1
        request.queued_ns = request.evicted_ns = self.now_ns
        if to == "head":
            self.queue.push_front(request)
        else:
            self.queue.push(request)
        return given

    def reorder(self, request: Request) -> None:
        """The scheduler's `order` says something new of a waiting request: it is sorted in again."""
        if request.index not in self.queue:
            self._broken("only a waiting request is sorted in again", f"reorder({request.id})")
        self.queue.leave(request)
        self.queue.push(request)

    def reject(self, request: Request, reason: str) -> None:
        """Turn a waiting request away for good, with a reason."""
        if request.index not in self.queue:
            self._broken("only a waiting request is rejected", f"reject({request.id})")
        self.drop(request)
        self.rejected.append((request, reason))

    def pad_prompts(self) -> None:
        """Every prompt of this step is computed at the length of the longest (a static batch's rectangle)."""
        self.step.pad()

    def hold_until(self, tokens: int) -> None:
        """The batch now formed keeps its seats until each row has computed `tokens` output tokens (needs `hold`)."""
        self.hold_until_tick = self.clock.ticks + tokens - 1

    # -- the step's life, for the replica ----------------------------------------------------------------------------

    def open_step(self) -> None:
        """Begin an empty step."""
        self.planning = True
        step = self.step
        if step.dirty or self._log:
            self.step = step = Step()
            if self._log:
                step.entries = {}
        step.tick = False

    def shape(self) -> Shape:
        """What the step computes, summed, for the cost model."""
        return self.step.shape(self.group, folds_output=self.folds_output)

    def close_step(self) -> None:
        """After a step in which only some decoded: the others leave the group, so that its clock passes them by.

        What is left in `step.named` are decodes of requests outside the group; they join it when the step ends.
        """
        step = self.step
        if step.tick or not step.named:
            return
        named = step.named
        for request in list(self.seats.values()):
            if request.base is None:
                continue
            if request.index in named:
                del named[request.index]
                step.tick = True
            else:
                self.group.leave(request)
                self.resting[request.index] = request

    def push(self, request: Request) -> None:
        """A new arrival."""
        request.clock = self.clock
        self.queue.push(request)

    def retire(self, request: Request) -> None:
        """A running request has its last token and leaves."""
        if request.base is not None:
            self.group.leave(request)
        self.pool.release(request, request.blocks, max(request.published, request._computed))
        del self.seats[request.index]
        if self.resting:
            self.resting.pop(request.index, None)  # a step planned ahead had let it rest
        request.ran_ns += self.now_ns - request.seated_ns

    def drop(self, request: Request) -> None:
        """A request leaves for good: its seat or its place in the queue, and its blocks."""
        if request.index in self.seats:
            self._unseat(request)
        else:
            self.queue.leave(request)
            request.waited_ns += self.now_ns - request.queued_ns

    # -- details -----------------------------------------------------------------------------------------------------

    def _broken(self, rule: str, detail: str) -> None:
        raise RuleBroken(self._scheduler, rule, detail)

    def _block_due(self, request: Request) -> int:
        """1 if the next token of a request outside the group opens a new block."""
        return 1 if -(-(request._computed + 1) // self.block) > request.blocks else 0

    def _decode_alone(self, request: Request) -> None:
        """A token for a request outside the group, which has found its block."""
        request.blocks += self._block_due(request)
        if self.pool.caching:
            self.pool.publish(request, request._computed + 1)
        self.step.named[request.index] = request

    def _decode_named(self, requests: list[Request]) -> bool:
        step = self.step
        need = 0
        for request in requests:
            if request.index in step.named or step.tick:
                self._broken("each request decodes once a step", f"{request.id} twice")
            if request.index not in self.seats or request.index in self.prefilling:
                self._broken("only a request past its prompt decodes", f"decode of {request.id}")
            need += self.group.block_due(request) if request.base is not None else self._block_due(request)
        if need > self.pool.free:
            return False
        self.pool.take(need)
        for request in requests:
            if step.entries is not None:
                step.entries[request.index] = Entry(request, 1, request.computed_tokens, True)
            if request.base is None:
                self._decode_alone(request)
            else:
                step.named[request.index] = request
        step.dirty = True
        return True

    def _add_chunk(self, request: Request, tokens: int, past: int) -> None:
        step = self.step
        step.chunks[request.index] = Chunk(request, tokens, past)
        step.dirty = True
        if self.pool.caching:
            self.pool.publish(request, past + tokens)
        if step.entries is not None:
            decode = tokens == 1 and not self.folds_output and newest(request, past)
            step.entries[request.index] = Entry(request, tokens, past, decode)

    def _log_decodes(self, entries: dict[int, Entry]) -> None:
        for request in self.seats.values():
            if request.base is not None or request.index in self.resting:
                entries[request.index] = Entry(request, 1, request.computed_tokens, True)

    def _resume(self, request: Request, hit: int) -> None:
        """An evicted request has a seat again; what it finds in cache need not be computed again."""
        request.resume_hit_tokens += hit
        request.recomputed_tokens -= min(hit, request.lost_tokens)
        self.evictions.extend((request.index, request.evicted_ns, self.now_ns))

    def _seat(self, request: Request, hit: int, blocks: int) -> None:
        self._admissions += 1
        request.seat = self._admissions
        request._computed = request.hit_tokens = hit
        request.blocks = blocks
        now_ns = self.now_ns
        request.waited_ns += now_ns - request.queued_ns
        request.seated_ns = now_ns
        self.seats[request.index] = request
        self.prefilling[request.index] = request
        if request.admitted_ns == NEVER:
            request.admitted_ns = now_ns
            request.prefix_hit_tokens = hit
        else:
            self._resume(request, hit)

    def withdraw(self, request: Request) -> int:
        """Undo what this step gave the request, except its blocks; returns the tokens given back."""
        step, index = self.step, request.index
        if step.entries is not None:
            step.entries.pop(index, None)
        chunk = step.chunks.pop(index, None)
        if chunk is not None:
            return chunk.tokens
        named = step.named.pop(index, None)
        if request.base is not None and step.tick:
            request.hold_blocks = max(request.hold_blocks, -(-(request.computed_tokens + 1) // self.block))
            return 1
        if named is not None and request.base is not None:
            request.hold_blocks = max(request.hold_blocks, -(-(request.computed_tokens + 1) // self.block))
        return 1 if named is not None else 0

    def _unseat(self, request: Request, scheduled: int = 0) -> int:
        """Free the seat and the blocks; returns the computed tokens that are lost.

        scheduled: tokens that this step would have computed; their full blocks are published all the same.
        """
        grouped = request.base is not None
        if grouped:
            self.group.leave(request)
        lost = request._computed
        scheduled -= self._in_flight(request, grouped)
        self.pool.release(request, request.blocks, max(request.published, lost + scheduled))
        request._computed = request.blocks = request.hold_blocks = 0
        del self.seats[request.index]
        self.prefilling.pop(request.index, None)
        self.resting.pop(request.index, None)
        request.ran_ns += self.now_ns - request.seated_ns
        return lost

    def _recall(self, request: Request) -> None:
        """The token that the step in flight gives an evicted request is thrown away, to be computed again."""
        before_ns = self.flight_before.get(request.index)
        request._emitted -= 1
        request.ending = False
        steady = False
        if before_ns == NEVER:
            request.first_token_ns = request.last_token_ns = NEVER
        else:
            steady = self.group.take_back(request, before_ns)
            if before_ns is not None or steady:
                request.last_token_ns = self.flight_before_ns if before_ns is None else before_ns
        self.recalled.append((request, steady))

    def _scheduled(self, request: Request) -> int:
        """Tokens of a running request that are computed or planned in this step: what it has published."""
        step = self.step
        ahead = 0
        if self.planning and (request.index in step.named or (step.tick and request.base is not None)):
            ahead = 1
        ahead -= self._in_flight(request, request.base is not None)
        return max(request.published, request.computed_tokens + ahead)

    def _in_flight(self, request: Request, grouped: bool) -> int:
        """1 if a token of the request is computed by a step that has not ended: its block is not yet published."""
        return 1 if (grouped and self.flight_ticked) or request.index in self.flight_singly else 0
