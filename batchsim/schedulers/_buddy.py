"""A buddy allocator: memory in contiguous, aligned pieces whose sizes are powers of two."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import Any


class Buddy:
    """`total` blocks, cut greedily into power-of-two arenas of at most `arena` blocks; lowest address first."""

    def __init__(self, total: int, arena: int) -> None:
        self.largest = 0
        self._free: list[list[int]] = [
            [] for _ in range(arena.bit_length())
        ]  # by order: starts of free pieces, ascending
        self._held: dict[int, tuple[int, int]] = {}  # by owner: start, order
        start = 0
        while start < total:
            order = min(arena.bit_length(), (total - start).bit_length()) - 1
            self._free[order].append(start)
            self.largest = max(self.largest, 1 << order)
            start += 1 << order

    def could_hold(self, blocks: int) -> bool:
        """Whether a piece for `blocks` fits in an empty memory."""
        return blocks <= self.largest

    def take(self, owner: int, blocks: int) -> int:
        """A piece of at least `blocks` blocks for an owner; returns its size, or 0 where no free one will do."""
        order = (blocks - 1).bit_length()
        found = next((larger for larger in range(order, len(self._free)) if self._free[larger]), None)
        if found is None:
            return 0
        start = self._free[found].pop(0)
        while found > order:
            found -= 1
            insort(self._free[found], start + (1 << found))
        self._held[owner] = (start, order)
        return 1 << order

    def keep(self, owners: Mapping[int, Any]) -> None:
        """Free the pieces of all owners but these, all of whom hold one."""
        if len(owners) == len(self._held):
            return
        for owner in [owner for owner in self._held if owner not in owners]:
            self._release(*self._held.pop(owner))

    def _release(self, start: int, order: int) -> None:
        while order + 1 < len(self._free):
            buddy = start ^ (1 << order)
            if buddy not in self._free[order]:
                break
            self._free[order].remove(buddy)
            start = min(start, buddy)
            order += 1
        insort(self._free[order], start)
