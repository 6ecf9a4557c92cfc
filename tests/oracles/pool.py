"""The block pool of the vLLM V1 oracle: real block ids, one free list, one reference count a block."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracles.rules import Rules

Key = tuple[int, ...]  # all the tokens up to and with the block's last


class Pool:
    """Blocks 1..num_blocks-1; block 0 is the null block and never in the list."""

    def __init__(self, num_blocks: int, rules: Rules) -> None:
        self.rules = rules
        self.free: list[int] = list(range(0 if rules.null_block_usable else 1, num_blocks))
        self.references: dict[int, int] = dict.fromkeys(self.free, 0)
        self.key_of: dict[int, Key] = {}
        self.copies: dict[Key, list[int]] = {}  # blocks of a key, in the order in which they got it

    def take(self, count: int) -> list[int]:
        """`count` blocks from the head of the free list; each loses its key, if it had one."""
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            self.forget(block)
            self.references[block] = 1
        return taken

    def forget(self, block: int) -> None:
        """Take the key off a block."""
        key = self.key_of.pop(block, None)
        if key is None:
            return
        self.copies[key].remove(block)
        if not self.copies[key]:
            del self.copies[key]

    def reference(self, blocks: Sequence[int]) -> None:
        """One more holder for each of these cached blocks; idle ones leave the free list."""
        for block in blocks:
            if self.references[block] == 0:
                self.free.remove(block)
            self.references[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One holder fewer for a request's blocks, last block first.

        What is held no more goes to the free list: keyed blocks to its tail, the others to its head.
        """
        keyed: list[int] = []
        unkeyed: list[int] = []
        for block in blocks if self.rules.freed_head_first else reversed(blocks):
            self.references[block] -= 1
            if self.references[block] > 0:
                continue
            if self.rules.key_lost_when_freed:
                self.forget(block)
            (keyed if block in self.key_of else unkeyed).append(block)
        self.free = keyed + self.free if self.rules.keyed_to_head else self.free + keyed
        self.free = self.free + unkeyed if self.rules.unkeyed_to_tail else unkeyed + self.free

    def publish(self, block: int, key: Key) -> None:
        """Give a full block its key. Equal blocks are kept side by side."""
        self.key_of[block] = key
        self.copies.setdefault(key, []).append(block)

    def lookup(self, key: Key) -> int | None:
        """The block that was published first among those of this key, or None."""
        copies = self.copies.get(key)
        if copies is None:
            return None
        return copies[-1] if self.rules.newest_copy_hit else copies[0]

    def idle(self, blocks: Sequence[int]) -> list[int]:
        """Those of these blocks that nobody holds: they stand in the free list."""
        return [block for block in blocks if self.references[block] == 0]

    def refresh(self, blocks: Sequence[int]) -> None:
        """Move idle blocks to the tail of the free list (only a mutant does that)."""
        for block in self.idle(blocks):
            self.free.remove(block)
            self.free.append(block)
