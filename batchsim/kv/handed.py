"""KV pools of a disaggregated server: blocks that stay held after their request has left, or come from elsewhere."""

from __future__ import annotations

from batchsim.kv.blocks import BlockPool
from batchsim.kv.content import Contents
from batchsim.kv.prefix import PrefixCache
from batchsim.records import NEVER
from batchsim.request import Request


class Kept:
    """What a prefill replica holds for requests that are done there and not yet pulled."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Request, int, int]] = {}

    def keep(self, request: Request, blocks: int, tokens: int) -> bool:
        """Whether the blocks stay held: those of a request that has finished."""
        if request.finished_ns == NEVER or request.cancelled:
            return False
        self._kept[request.index] = (request, blocks, tokens)
        return True

    def pop(self, index: int) -> tuple[Request, int, int] | None:
        """What to release now; None where the blocks were lost before the end (an eviction in flight)."""
        return self._kept.pop(index, None)


class KeepingPool(BlockPool):
    """A block pool that keeps the blocks of the finished until `let_go`."""

    def __init__(self, total: int, size: int) -> None:
        super().__init__(total, size)
        self.kept = Kept()

    def release(self, request: Request, blocks: int, tokens: int) -> None:
        if not self.kept.keep(request, blocks, tokens):
            super().release(request, blocks, tokens)

    def let_go(self, index: int) -> None:
        """The blocks of a finished request were pulled."""
        kept = self.kept.pop(index)
        if kept is not None:
            super().release(*kept)


class KeepingCache(PrefixCache):
    """The same, with prefix caching."""

    def __init__(self, total: int, size: int, contents: Contents) -> None:
        super().__init__(total, size, contents)
        self.kept = Kept()

    def release(self, request: Request, blocks: int, tokens: int) -> None:
        if not self.kept.keep(request, blocks, tokens):
            super().release(request, blocks, tokens)

    def let_go(self, index: int) -> None:
        """The blocks of a finished request were pulled."""
        kept = self.kept.pop(index)
        if kept is not None:
            super().release(*kept)


class LandingPool(BlockPool):
    """A block pool in which requests may find the KV that was pulled for them, as if it were a prefix hit.

    landed: tokens pulled, by request. Beside their full blocks each holds the one that its next token goes into.
    """

    caching = True

    def __init__(self, total: int, size: int) -> None:
        super().__init__(total, size)
        self.landed: dict[int, int] = {}

    def lookup(self, request: Request) -> tuple[int, int]:
        tokens = self.landed.get(request.index)
        return (0, 0) if tokens is None else (tokens, -1)

    def claim(self, request: Request, hit_tokens: int, idle_blocks: int) -> None:
        del self.landed[request.index]
        self.give_back(-idle_blocks)


class LandingCache(PrefixCache):
    """The same, with prefix caching: what is pulled is published when its request is admitted."""

    def __init__(self, total: int, size: int, contents: Contents) -> None:
        super().__init__(total, size, contents)
        self.landed: dict[int, int] = {}

    def lookup(self, request: Request) -> tuple[int, int]:
        tokens = self.landed.get(request.index)
        if tokens is None:
            return super().lookup(request)
        if request.path is None and self.contents.shares(request.index):
            request.path = self.contents.path(request.index)
        return tokens, -1

    def claim(self, request: Request, hit_tokens: int, idle_blocks: int) -> None:
        if self.landed.pop(request.index, None) is None:
            super().claim(request, hit_tokens, idle_blocks)
        else:
            self.give_back(-idle_blocks)


Keeping = KeepingPool | KeepingCache
Landing = LandingPool | LandingCache
