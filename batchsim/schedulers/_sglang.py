"""One prefill pass of SGLang: its budgets in tokens, and whether a candidate may join."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from batchsim.kv.blocks import BlockPool
from batchsim.kv.radix import RadixCache
from batchsim.request import Request

if TYPE_CHECKING:
    from batchsim.schedulers.sglang import Sglang

GO_ON, NO_ROOM, STOP = "", "NO_TOKEN", "OTHER"
"""After a candidate: try the next; stop, and nobody enters until room is seen again; stop."""


class Pass:
    """Who is taken, in order, each with the token up to which it computes.

    Room is read live, because pinning a cached prefix takes it out of what could be evicted. `chunk_left` (None:
    prompts are not cut) and `prompt_left` are SGLang's chunked_prefill_size and max_prefill_tokens, as far as unused.
    """

    def __init__(
        self,
        rules: Sglang,
        pool: BlockPool,
        running: list[Request],
        riders: int,
        owed: float,
        ratio: float,
        out: Callable[[Request], int],
    ) -> None:
        self._rules, self._pool, self._running, self._ratio, self._out = rules, pool, running, ratio, out
        self._cache = pool if isinstance(pool, RadixCache) else None
        self._page = pool.size
        self._promised: float = riders + owed  # and with it the prompts taken
        self._prompts = riders
        size = rules.chunked_prefill_size
        self.chunk_left: int | None = size - riders if size > 0 else None
        self.prompt_left = rules.max_prefill_tokens - riders
        self.taken: list[tuple[Request, int, int]] = []  # request, tokens it has or hits, end
        self.cut: Request | None = None
        self._played: list[tuple[float, int]] | None = None

    def total(self) -> float:
        """Room for prompts and for the outputs promised."""
        return self._pool.free * self._page - self._promised

    def now(self) -> int:
        """Room for prompts."""
        return self._pool.free * self._page - self._prompts

    def spent(self) -> bool:
        """There is room, but the pass is long enough."""
        over = self.prompt_left <= 0 or (self.chunk_left is not None and self.chunk_left <= 0)
        return over and self.total() > 0 and self.now() > 0

    def forget(self, owed: float) -> None:
        """Somebody who owed so many tokens runs no more."""
        self._promised -= owed

    # -- taking ------------------------------------------------------------------------------------------------------

    def take_chunk(self, request: Request) -> bool:
        """The next piece of a prompt begun before, which always gets one; whether it is the last."""
        assert self.chunk_left is not None
        most = min(self.chunk_left, int(self.total()))
        if most <= 0:
            most = self.chunk_left
        past, known = request.computed_tokens, request.prompt_tokens + request._emitted
        tokens = min(known - past, most)
        whole = past + tokens == known
        self._charge(tokens, self._rules.clip(request.max_tokens) if whole else 0)
        self.taken.append((request, past, past + tokens))
        return whole

    def admit(self, request: Request) -> str:
        """Take a waiting request, whole or cut, if it may join, its hit pinned; then whether the pass goes on."""
        rules, known = self._rules, request.prompt_tokens + request._emitted
        past = 0 if self._cache is None else self._cache.pin(request, known - 1)
        most = rules.prefill_max_requests
        if most is not None and len(self.taken) >= most:
            verdict = STOP
        elif rules.disable_radix_cache and rules.ends_by_limit(request):
            verdict = self._play_out(request, known) or self._fill(request, past, known, known - past, self.chunk_left)
        else:
            verdict = self._judge(request, past, known)
        if self._cache is not None and not (self.taken and self.taken[-1][0] is request):
            self._cache.unpin(request)
        return verdict

    def _judge(self, request: Request, past: int, known: int) -> str:
        tokens, page, left = known - past, self._page, self.chunk_left
        promised = self._rules.clip(max(request.max_tokens - request._emitted, 0))
        if not tokens + promised + page < self.total():
            return NO_ROOM
        if left is None:
            if self.taken and -(-tokens // page) * page >= self.prompt_left:
                return STOP  # the first of a pass may exceed the budget
            return self._fill(request, past, known, tokens, None)
        piece = (past + left // page * page) // page * page - past
        return self._fill(request, past, known, -(-tokens // page) * page, piece)

    def _fill(self, request: Request, past: int, known: int, size: int, piece: int | None) -> str:
        """Take it whole if its `size` is within the chunk, else its first `piece` tokens."""
        if self.chunk_left is None or size <= self.chunk_left:
            end, promised = known, self._rules.clip(request.max_tokens)  # all of it, whatever it has emitted
        elif piece is None or piece <= 0 or self.cut is not None:
            return STOP
        else:
            end, promised, self.cut = past + piece, 0, request
        self.taken.append((request, past, end))
        self._charge(end - past, promised)
        if self.total() <= 0 or self.now() <= 0:
            return NO_ROOM
        over = self.prompt_left <= 0 or (self.chunk_left is not None and self.chunk_left <= 0)
        return STOP if over else GO_ON

    def _charge(self, tokens: int, promised: int) -> None:
        page = self._page
        tokens = -(-tokens // page) * page
        self._promised += tokens + page + promised
        self._prompts += tokens + page
        self.prompt_left -= tokens
        if self.chunk_left is not None:
            self.chunk_left -= tokens

    # -- ignore_eos without the radix cache --------------------------------------------------------------------------

    def _play_out(self, request: Request, known: int) -> str:
        """Whether all could run on, each to its limit, one ending after another."""
        own = -(-known // self._page) * self._page + self._page
        if own > min(self.now(), self.total()):
            return NO_ROOM
        played = self._enter(request)
        room = self.now() - own
        for place, (left, held) in enumerate(played):
            still = len(played) - place
            if room - left * still <= still:
                return NO_ROOM
            room += held
        return GO_ON

    def _enter(self, request: Request) -> list[tuple[float, int]]:
        """(tokens left, tokens held), who ends first first; a later one enters before the last at the latest."""
        entry = self._entry(request)
        if self._played is None:
            others = [*self._running, *(taken for taken, _, _ in self.taken)]
            entries = [entry, *(self._entry(other) for other in others)]
            self._played = sorted((e for e in entries if e[0] > 0), key=lambda e: e[0])
        elif entry[0] > 0:
            last = max(0, len(self._played) - 1)
            place = next((i for i, other in enumerate(self._played) if entry[0] <= other[0]), last)
            self._played.insert(place, entry)
        return self._played

    def _entry(self, request: Request) -> tuple[float, int]:
        out = self._out(request)
        share = 1.0 if self._rules.ends_by_limit(request) else self._ratio
        return request.max_tokens * share - out, request.prompt_tokens + out
