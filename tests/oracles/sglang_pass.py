"""One prefill pass of the SGLang oracle: the budgets, and whether a candidate may join (sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracles.sglang_pool import Pool, Request
from tests.oracles.sglang_rules import Rules

GO_ON, NO_ROOM, STOP = "", "NO_TOKEN", "OTHER"


class Pass:
    """Budgets in tokens; `total` and `now` are live, because holding a hit takes it out of the room."""

    def __init__(
        self, config: Mapping[str, Any], rules: Rules, pool: Pool, running: list[Request], ratio: float, mixing: bool
    ) -> None:
        self.config, self.rules, self.pool, self.ratio = config, rules, pool, ratio
        self.page: int = config["page_size"]
        self.running = list(running)
        riders = len(running) if mixing and not rules.riders_not_reserved else 0
        size = config["chunked_prefill_size"]
        self.chunk_left: int | None = size - riders if size > 0 else None  # A
        self.prompt_left: int = config["max_prefill_tokens"] - riders  # B
        self.used_total: float = riders + sum(self.owed(r) for r in running)
        self.used_now = riders
        self.taken: list[Request] = []
        self.cut: Request | None = None
        self.played: list[tuple[float, int]] | None = None  # section 4: (left, held), who ends first first

    def total(self) -> float:
        """Room for prompts and all that was promised."""
        return self.pool.room() - self.used_total

    def now(self) -> int:
        """Room for prompts."""
        return self.pool.room() - self.used_now

    def clip(self, n: int) -> int:
        return n if self.rules.estimate_unclipped else min(n, int(self.config["clip_max_new_tokens"]))

    def weight(self, r: Request) -> float:
        return 1.0 if r.ignore_eos and not self.rules.ignore_eos_ratio else self.ratio

    def owed(self, r: Request) -> float:
        """What a running request is expected to take yet."""
        return self.clip(r.limit - r.out) * (1.0 if self.rules.running_promise_in_full else self.weight(r))

    def forget(self, r: Request) -> None:
        """`r` no longer runs."""
        self.used_total -= self.owed(r)

    def spent(self) -> bool:
        """There is room, but the pass is long enough."""
        over = self.prompt_left <= 0 or (self.chunk_left is not None and self.chunk_left <= 0)
        return self.total() > 0 and self.now() > 0 and over

    def charge(self, n: int, promise: float) -> None:
        up = self.pool.up(n)
        self.used_total += up + self.page + promise
        self.used_now += up + self.page
        self.prompt_left -= up
        if self.chunk_left is not None:
            self.chunk_left -= up

    def promise(self, r: Request) -> float:
        """What a newcomer may take for its output: all of its limit, whatever it has emitted."""
        limit = r.limit - r.out if self.rules.newcomer_promises_rest else r.limit
        return self.clip(limit) * (self.weight(r) if self.rules.newcomer_promises_ratio else 1)

    def take_chunk(self, r: Request) -> bool:
        """The next piece of the chunk, which always gets one; True if it is the last."""
        assert self.chunk_left is not None
        most = min(self.chunk_left, int(self.total()))
        if most <= 0:
            most = self.chunk_left
        n = min(r.full - r.pre, most)
        r.end = r.pre + n
        whole = r.end == r.full
        self.charge(n, self.promise(r) if whole else 0)
        self.taken.append(r)
        return whole

    def admit(self, r: Request) -> str:
        """Takes `r`, whole or cut, if it may join; then whether the pass goes on."""
        most = self.config["prefill_max_requests"]
        if most is not None and len(self.taken) >= most and not self.rules.request_limit_ignored:
            return STOP
        if r.ignore_eos and self.pool.tree is None and not self.rules.ignore_eos_not_played_out:
            return self.play_out(r) or self.fill(r, r.full - r.pre, self.chunk_left)
        if not self.rules.own_hit_counts_as_room:
            self.pool.hold(r, 1)
        verdict = self.verdict(r)
        if self.rules.own_hit_counts_as_room:
            self.pool.hold(r, 1)
        if r not in self.taken:
            self.pool.hold(r, -1)
        return verdict

    def verdict(self, r: Request) -> str:
        n = r.full - r.pre
        margin = 0 if self.rules.no_page_of_margin else self.page
        share = self.weight(r) if self.rules.newcomer_promises_ratio else 1
        asked = n + self.clip(max(r.limit - r.out, 0)) * share + margin
        if not (asked <= self.total() if self.rules.room_to_the_last else asked < self.total()):
            return NO_ROOM
        first = not self.taken and not self.rules.first_within_budget
        if (self.chunk_left is None or self.rules.budget_cuts) and not first and self.pool.up(n) >= self.prompt_left:
            return STOP
        if self.chunk_left is None:
            return self.fill(r, n, None)
        piece = self.pool.down(r.pre + self.pool.down(self.chunk_left)) - r.pre
        if self.rules.cut_anywhere:
            piece = min(n - 1, self.chunk_left)
        return self.fill(r, self.pool.up(n), piece)

    def fill(self, r: Request, size: int, piece: int | None) -> str:
        """Takes `r` whole if its `size` is within A, else its first `piece` tokens."""
        if self.chunk_left is None or size <= self.chunk_left:
            self.take(r, r.full - r.pre)
            self.charge(r.full - r.pre, self.promise(r))
            return self.state()
        assert piece is not None
        if piece <= 0 or self.cut is not None:  # a second cut: see surprise 13, which nobody should copy
            return STOP
        self.cut = r
        self.take(r, piece)
        self.charge(piece, 0)
        return self.state()

    def take(self, r: Request, n: int) -> None:
        r.end = r.pre + n
        r.kv = r.own_from = r.pre
        self.taken.append(r)

    def state(self) -> str:
        if self.total() <= 0 or self.now() <= 0:
            return NO_ROOM
        over = self.prompt_left <= 0 or (self.chunk_left is not None and self.chunk_left <= 0)
        return STOP if over else GO_ON

    def play_out(self, r: Request) -> str:
        """ignore_eos without the radix cache: whether all could run on, each to its limit, one ending after another."""
        own = self.pool.up(r.full - r.pre) + self.page
        if own > min(self.now(), self.total()):
            return NO_ROOM
        self.enter(r)
        assert self.played is not None
        x: float = self.now() - own
        for i, (left, held) in enumerate(self.played):
            still = len(self.played) - i
            if x - left * still <= still:
                return NO_ROOM
            x += held
        return GO_ON

    def enter(self, r: Request) -> None:
        if self.played is None:
            everyone = [self.entry(o) for o in [r, *self.running, *self.taken]]
            self.played = sorted((e for e in everyone if e[0] > 0), key=lambda e: e[0])
        elif self.entry(r)[0] > 0:
            left = self.entry(r)[0]
            last = len(self.played) if self.rules.inserted_sorted else max(0, len(self.played) - 1)
            at = next((i for i, e in enumerate(self.played) if left <= e[0]), last)
            self.played.insert(at, self.entry(r))

    def entry(self, r: Request) -> tuple[float, int]:
        return r.limit * self.weight(r) - r.out, r.full
