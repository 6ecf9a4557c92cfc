"""vLLM's prefix cache where no two prompts share anything: only an evicted request can hit, and only its own blocks.

What finished requests leave behind is never hit, but it stands in the line for eviction before what was let go later. So the
line is kept as counts: of nobody's blocks, or of one evicted request's.
"""

from __future__ import annotations

from collections import deque

from batchsim.kv.blocks import BlockPool
from batchsim.request import Request


class OwnBlocks(BlockPool):
    """A block pool that remembers what each evicted request had computed.

    For schedulers that never evict a request in the very step that serves it (its last block would then have two copies;
    `PrefixCache` keeps those apart).
    """

    caching = True

    def __init__(self, total: int, size: int) -> None:
        super().__init__(total, size)
        self._unkeyed = total
        self._line: deque[list[int]] = deque()  # idle cached blocks, longest idle first, in one-element lists
        self._open: list[int] | None = None  # the last of the line, if it is nobody's

    def lookup(self, request: Request) -> tuple[int, int]:
        left = request.held
        if left is None:
            return 0, 0
        blocks = min(left[0], (request.prompt_tokens + request._emitted - 1) // self.size)
        return blocks * self.size, blocks

    def claim(self, request: Request, hit_tokens: int, idle_blocks: int) -> None:
        request.held[0] -= idle_blocks
        self.free -= idle_blocks

    def take(self, blocks: int) -> None:
        self.free -= blocks
        short = blocks - self._unkeyed
        if short <= 0:
            self._unkeyed = -short
            return
        self._unkeyed = 0
        line = self._line
        while short:
            first = line[0]
            if first[0] > short:
                first[0] -= short
                return
            short -= first[0]
            first[0] = 0
            line.popleft()
            if first is self._open:
                self._open = None

    def give_back(self, blocks: int) -> None:
        self.free += blocks
        self._unkeyed += blocks

    def publish(self, request: Request, tokens: int) -> None:
        request.published = tokens

    def release(self, request: Request, blocks: int, tokens: int) -> None:
        request.published = 0
        if request.finished_ns >= 0 or request.cancelled:  # nobody will ask for them again
            self.retire(blocks, tokens)
            return
        self.free += blocks
        keyed = tokens // self.size
        self._unkeyed += blocks - keyed
        request.held = [keyed]
        self._line.append(request.held)
        self._open = None

    def retire(self, blocks: int, tokens: int) -> None:
        self.free += blocks
        keyed = tokens // self.size
        self._unkeyed += blocks - keyed
        if self._open is None:
            self._open = [keyed]
            self._line.append(self._open)
        else:
            self._open[0] += keyed
