"""The order of SGLang's waiting list, and what is remembered of those who wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from batchsim.batch import Batch
from batchsim.kv.radix import RadixCache
from batchsim.queue import Fifo
from batchsim.request import Request

if TYPE_CHECKING:
    from batchsim.schedulers.sglang import Sglang

LONG_QUEUE = 128
"""Waiting requests above which lpm leaves the queue as it is, and that a refreshing lookup reaches."""
LOOKUP_EVERY = 32
"""Orderings of the queue between two refreshing lookups."""


class Line:
    """The waiting list, sorted in place. For priorities: when each came or came back; its tokens when last tried."""

    def __init__(self, rules: Sglang, cache: RadixCache | None) -> None:
        self._rules, self._cache = rules, cache
        self._orderings = 0
        self._stamps: dict[int, int] = {}
        self._stamp = 0
        self.tried: dict[int, int] = {}

    def see(self, waiting: Iterable[Request]) -> None:
        """Those who came since the last plan stand behind those whom it put back."""
        for request in waiting:
            self.stamped(request)

    def stamp(self, request: Request) -> None:
        """It came back just now."""
        self._stamp += 1
        self._stamps[request.index] = self._stamp

    def stamped(self, request: Request) -> int:
        """When it came, or came back: a number in order of time."""
        if request.index not in self._stamps:
            self.stamp(request)
        return self._stamps[request.index]

    def forget(self, request: Request) -> None:
        """It has ended."""
        self._stamps.pop(request.index, None)
        self.tried.pop(request.index, None)

    def ordered(self, b: Batch) -> Iterable[Request]:
        """Who waits, in the order in which a pass tries them; the queue is put in this order."""
        rules, cache, waiting = self._rules, self._cache, b.queue.values()
        urgent, policy = rules.enable_priority_scheduling, rules.schedule_policy
        if policy == "lpm" and (cache is None or len(waiting) > LONG_QUEUE):
            policy = "fcfs"
        if cache is not None and policy != "lpm":
            self._orderings += 1
            if self._orderings % LOOKUP_EVERY == 1:
                for request in reversed(list(waiting)[:LONG_QUEUE]):
                    cache.find(request, request.known_tokens)
        if policy == "fcfs" and not urgent:
            return waiting
        before = list(waiting)
        if policy == "lpm":
            order = self._by_prefix(before)
        elif policy == "lof":
            order = sorted(before, key=lambda r: (urgency(r) if urgent else 0, -r.max_tokens))
        else:
            order = sorted(before, key=lambda r: (urgency(r), self.stamped(r)))
        if order != before:
            assert isinstance(b.queue, Fifo)
            b.queue.rearrange([request.index for request in order])
        return order

    def _by_prefix(self, waiting: list[Request]) -> list[Request]:
        """Longest hit first; who would share a prefix with one before it is set back."""
        cache, rules = self._cache, self._rules
        assert cache is not None
        keys: dict[int, float] = {}
        leaders: list[Request] = []
        for request in waiting:
            known = request.known_tokens
            cache.find(request, known)
            keys[request.index] = -min(request.keyed, known - 1)
            if request.keyed <= rules.in_batch_prefix_caching_check_threshold:
                path = cache.path(request)
                shared = (path.common(cache.path(r), 0, min(known, r.known_tokens)) for r in leaders)
                if max(shared, default=0) >= rules.in_batch_prefix_caching_deprioritize_threshold:
                    keys[request.index] = float("inf")
                else:
                    leaders.append(request)
        return sorted(waiting, key=lambda r: keys[r.index])


def urgency(request: Request) -> int:
    """Smaller is more urgent."""
    return request.priority
