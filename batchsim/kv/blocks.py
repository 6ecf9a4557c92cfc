"""A replica's KV memory as a count of equal blocks, without prefix caching."""

from __future__ import annotations

from batchsim.request import Request


class BlockPool:
    """`total` usable blocks of `size` tokens. A block is free or held; nothing remembers which.

    The prefix cache offers the same calls; `caching` says which of the two this is.
    """

    caching = False

    def __init__(self, total: int, size: int) -> None:
        self.total = total
        self.size = size
        self.free = total

    def blocks_for(self, tokens: int) -> int:
        """Blocks that `tokens` tokens fill, the last perhaps in part."""
        return -(-tokens // self.size)

    def lookup(self, request: Request) -> tuple[int, int]:
        """Tokens of the request found in cache, and how many of their blocks nobody holds (they count as free)."""
        return 0, 0

    def claim(self, request: Request, hit_tokens: int, idle_blocks: int) -> None:
        """Hold the blocks that `lookup` found."""

    def take(self, blocks: int) -> None:
        """Hold `blocks` more; the caller has looked at `free`."""
        self.free -= blocks

    def give_back(self, blocks: int) -> None:
        """Undo `take` of so many, of the ones without contents."""
        self.free += blocks

    def publish(self, request: Request, tokens: int) -> None:
        """The request's first `tokens` tokens can be hit from now on."""

    def release(self, request: Request, blocks: int, tokens: int) -> None:
        """Let go of the request's `blocks` blocks, in which `tokens` tokens stand."""
        self.free += blocks

    def retire(self, blocks: int, tokens: int) -> None:
        """As `release`, for a request that nobody else shares anything with and that will not come back."""
        self.free += blocks
