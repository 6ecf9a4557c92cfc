"""TensorRT-LLM's in-flight batching: one stage picks who fits in memory, the next who computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import DEAF, ONCE, STEADY, Verdict
from batchsim.schedulers._reserving import limit_tokens, over_pool


@dataclass
class TensorrtLlm:
    """TensorRT-LLM: memory reserved to the end, or for the next step and the newest paused; then a token budget."""

    capacity_scheduler_policy: Annotated[
        Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"],
        Field(
            description="reserve prompt + max_tokens; or blocks for the next step, pausing the newest when they run "
            "out; or reserve, and take new ones only when nothing runs"
        ),
    ] = "GUARANTEED_NO_EVICT"
    max_batch_size: Annotated[int, Field(ge=1, description="requests of a step, and seats")] = 2048
    max_num_tokens: Annotated[int, Field(ge=1, description="token budget of a step")] = 8192
    enable_chunked_prefill: Annotated[bool, Field(description="cut prompts to the token budget, in whole blocks")] = (
        False
    )
    context_chunking_policy: Annotated[
        Literal["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"],
        Field(description="who gets a budget that is too small: the first as much as fits, or all a block in turn"),
    ] = "FIRST_COME_FIRST_SERVED"

    folds_output: ClassVar[bool] = True

    @property
    def order(self) -> Callable[[Request], Any] | None:
        """The queue by arrival, where a paused request may not be the oldest waiting."""
        return _same if self._evicts and self.enable_chunked_prefill else None

    @property
    def _evicts(self) -> bool:
        return self.capacity_scheduler_policy == "MAX_UTILIZATION"

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reservation over the pool, or a prompt that the token budget never lets in."""
        reason = self._over_budget(request.prompt_tokens, b)
        if reason is not None or self._evicts:
            return reason
        tokens = limit_tokens(request, b)
        return over_pool(tokens, b.blocks_for(tokens), b.pool.total)

    def plan(self, b: Batch) -> Verdict:
        """Everyone who generates, then contexts within the budget."""
        by_arrival = self.enable_chunked_prefill and not _in_order(b)
        if self._evicts and b.seats:
            self._pause(b, by_arrival)
        self._generate(b, by_arrival)
        left = self.max_num_tokens - b.decoding
        if left > 0 and (b.prefilling or b.queue):
            hopeless: list[tuple[Request, str]] = []
            contexts = self._fitting(b, by_arrival, hopeless)
            for request, tokens in list(self._chunks(b, contexts, left)):
                self._compute(b, request, tokens)
            for request, reason in hopeless:
                b.reject(request, reason)
        return self._verdict(b)

    # -- stage 1: capacity -------------------------------------------------------------------------------------------

    def _pause(self, b: Batch, by_arrival: bool) -> None:
        """MAX_UTILIZATION: the last started request is paused until the next step's blocks are there."""
        if by_arrival:
            _pause_by_arrival(b)
            return
        while b.blocks_due() > b.free:
            b.preempt(b.newest())

    def _fitting(self, b: Batch, by_arrival: bool, hopeless: list[tuple[Request, str]]) -> Iterable[Request]:
        """Contexts in order, started and new, as far as seats and memory reach; into `hopeless` who never can start."""
        started = list(b.prefilling.values())
        fresh: Iterable[Request] = ()
        if not (self.capacity_scheduler_policy == "STATIC_BATCH" and b.seats):
            fresh = self._fresh(b, hopeless)
        return sorted([*started, *fresh], key=_rank) if by_arrival else chain(started, fresh)

    def _fresh(self, b: Batch, hopeless: list[tuple[Request, str]]) -> Iterator[Request]:
        free, seats = b.free, self.max_batch_size - len(b.seats)
        paused = min((request.rank for request, _ in b.step.preempted), default=None)
        for request in b.queue.values():
            if not seats or (paused is not None and request.rank >= paused):
                return
            reason = self._over_budget(request.known_tokens, b)
            if reason is not None:
                hopeless.append((request, reason))
                continue
            free -= b.blocks_for(self._held(request, b))
            if free < 0:
                return
            seats -= 1
            yield request

    def _held(self, request: Request, b: Batch) -> int:
        """Tokens whose blocks a request takes when it starts."""
        return request.known_tokens if self._evicts else limit_tokens(request, b)

    # -- stage 2: the micro batch ------------------------------------------------------------------------------------

    def _generate(self, b: Batch, by_arrival: bool) -> None:
        if b.decoding <= self.max_num_tokens:
            fits = b.decode()
        else:
            generating = [request for request in b.seats.values() if request.index not in b.prefilling]
            if by_arrival:
                generating.sort(key=_rank)
            fits = b.decode(only=generating[: self.max_num_tokens])
        if not fits:
            raise AssertionError("capacity has been looked at")

    def _chunks(self, b: Batch, contexts: Iterable[Request], left: int) -> Iterator[tuple[Request, int]]:
        if not self.enable_chunked_prefill:
            return _whole(contexts, left)
        if self.context_chunking_policy == "EQUAL_PROGRESS":
            return _equal_progress(list(contexts), left, b.block)
        return _first_come(contexts, left, b.block)

    def _compute(self, b: Batch, request: Request, tokens: int) -> None:
        if request.index in b.prefilling:
            done = b.extend(request, tokens)
        else:
            done = b.admit(request, tokens, hold_tokens=self._held(request, b))
        if not done:
            raise AssertionError("capacity has been looked at")

    def _over_budget(self, known: int, b: Batch) -> str | None:
        if known <= self.max_num_tokens or (self.enable_chunked_prefill and self.max_num_tokens >= b.block):
            return None
        how = "in whole blocks" if self.enable_chunked_prefill else "with chunked prefill off"
        return f"prompt of {known} tokens exceeds max_num_tokens {self.max_num_tokens} {how}"

    def _verdict(self, b: Batch) -> Verdict:
        if not b.step.tick or b.step.chunks or b.step.preempted or b.prefilling:
            return ONCE
        if len(b.seats) >= self.max_batch_size or (b.seats and self.capacity_scheduler_policy == "STATIC_BATCH"):
            return DEAF
        if b.queue:  # the head waits for a departure; behind it, chunks find room that whole prompts do not
            return STEADY if self.enable_chunked_prefill else DEAF
        return STEADY


def _whole(contexts: Iterable[Request], left: int) -> Iterator[tuple[Request, int]]:
    """Contexts as they are, until one does not fit."""
    for request in contexts:
        rest = _rest(request)
        left -= rest
        if left < 0:
            return
        yield request, rest


def _first_come(contexts: Iterable[Request], left: int, unit: int) -> Iterator[tuple[Request, int]]:
    """As much as fits for each in turn, in whole units unless it is all that remains."""
    for request in contexts:
        rest = _rest(request)
        chunk = rest if rest <= left else left // unit * unit
        left -= chunk
        if chunk:
            yield request, chunk
        if not left:
            return


def _equal_progress(contexts: list[Request], left: int, unit: int) -> Iterator[tuple[Request, int]]:
    """A unit for each in turn, round after round, while it fits."""
    rests = [_rest(request) for request in contexts]
    chunks = [0] * len(rests)
    progress = True
    while progress and left:
        progress = False
        for place, rest in enumerate(rests):
            more = min(unit, rest - chunks[place])
            if 0 < more <= left:
                chunks[place] += more
                left -= more
                progress = True
    return ((request, chunk) for request, chunk in zip(contexts, chunks, strict=True) if chunk)


def _rest(request: Request) -> int:
    return request.known_tokens - request.computed_tokens


def _pause_by_arrival(b: Batch) -> None:
    """Started requests in order of arrival, with waiting ones among them, each claim the next step's blocks."""
    line = sorted([*b.seats.values(), *b.queue.values()], key=_rank)
    free, place = b.free, 0
    while place < len(line):
        request = line[place]
        started = request.index in b.seats
        if not started:
            need = b.blocks_for(request.known_tokens)
        else:
            need = 0 if request.index in b.prefilling else b.blocks_due(request)
        if need <= free:
            free, place = free - need, place + 1
            continue
        last = next((later for later in range(len(line) - 1, place - 1, -1) if line[later].index in b.seats), None)
        if last is None:
            return
        victim = line[last]
        free += b.blocks_of(victim)
        b.preempt(victim)
        del line[last:]


def _in_order(b: Batch) -> bool:
    """Whether running requests are in order of arrival, and all before the waiting ones."""
    last: Any = None
    for request in b.seats.values():
        rank = request.rank
        if last is not None and rank < last:
            return False
        last = rank
    head = b.head()
    return last is None or head is None or last < head.rank


def _same(request: Request) -> int:
    return 0


def _rank(request: Request) -> Any:
    return request.rank
