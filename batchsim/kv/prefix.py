"""vLLM's prefix cache, exact to the block, kept as runs of blocks instead of single ones.

A tree of `Node`s holds what is cached: a node is a run of whole blocks with equal contents and equal fate, its children are
the ways it goes on. Equal blocks are not merged: each copy of a node's contents is a `Copy`, in order of publication; the
first is the one that is hit. A copy is referenced, or idle; idle ones are evicted in the order in which requests let them go,
and of one request its last block first, which the key (stamp, -end) says. Blocks without a key (never used, or only partly
filled) are taken before any cached one is evicted.

A child is always let go before some copy of its parent, so eviction never leaves a node without its parent.

The tokens that only one request can have stand in the tree as one node, made when it lets them go: without sharing, a request
costs one node. Where others follow it, its node is brought up to date when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from batchsim.kv.blocks import BlockPool
from batchsim.kv.content import Contents, Path, Signature
from batchsim.request import Request

GONE = -1


class Node:
    """Blocks `start` to `end` (counted from the beginning of the prompt) of the contents of `path`."""

    __slots__ = ("children", "copies", "end", "parent", "path", "start")

    def __init__(self, start: int, end: int, path: Path, parent: Node | None) -> None:
        self.start, self.end, self.path, self.parent = start, end, path, parent
        self.children: dict[Signature, Node] = {}
        self.copies: list[Copy] = []


class Copy:
    """One set of blocks with a node's contents, held by `refs` requests, or idle since `stamp`.

    tail: the piece split off below it, while somebody held both.  entry: its place in the line for eviction.
    """

    __slots__ = ("entry", "node", "refs", "stamp", "tail")

    def __init__(self, node: Node, refs: int, stamp: int) -> None:
        self.node, self.refs, self.stamp, self.entry = node, refs, stamp, GONE
        self.tail: Copy | None = None


class PrefixCache(BlockPool):
    """A block pool that remembers; `scheduled`, set by its batch, says up to which token a running request is scheduled."""

    caching = True

    def __init__(self, total: int, size: int, contents: Contents) -> None:
        super().__init__(total, size)
        self.contents = contents
        self.scheduled: Callable[[Request], int] = _published
        self._root = Node(0, 0, Path((), -1), None)
        self._unkeyed = total
        self._idle: list[
            tuple[int, int, int, Copy]
        ] = []  # heap of (stamp, -end, serial, copy); stale entries are skipped
        self._stamp = self._serial = 0
        self._live: dict[int, Request] = {}  # running requests that others follow
        self._version = 0
        self._seen: tuple[Request | None, int, int, tuple[int, int]] = (None, 0, 0, (0, 0))

    # -- looking -----------------------------------------------------------------------------------------------------

    def lookup(self, request: Request) -> tuple[int, int]:
        path = request.path
        if path is None:
            if not self.contents.shares(request.index):
                return 0, 0
            path = request.path = self.contents.path(request.index)
        known = request.prompt_tokens + request._emitted
        if path.follows:
            self._catch_up(path)
        who, version, tokens, found = self._seen
        if who is request and version == self._version and tokens == known:
            return found
        found = self._look(path, (known - 1) // self.size)
        self._seen = (request, self._version, known, found)
        return found

    def _look(self, path: Path, limit: int) -> tuple[int, int]:
        hit = idle = 0
        for node, blocks in self._walk(path, limit):
            hit += blocks
            if not node.copies[0].refs:
                idle += blocks
        return hit * self.size, idle

    def _walk(self, path: Path, limit: int) -> list[tuple[Node, int]]:
        """Nodes that the path goes through, each with its leading blocks that agree, down to block `limit`."""
        found: list[tuple[Node, int]] = []
        node, depth, size = self._root, 0, self.size
        while depth < limit:
            child = node.children.get(path.signature(depth * size, (depth + 1) * size))
            if child is None:
                break
            stop = child.end if child.end < limit else limit
            blocks = path.common(child.path, depth * size, stop * size) // size - depth
            found.append((child, blocks))
            depth += blocks
            if depth < child.end:
                break
            node = child
        return found

    def _catch_up(self, path: Path) -> None:
        for index in path.follows:
            request = self._live.get(index)
            if request is not None:
                self._attach(request, self.scheduled(request) // self.size)

    # -- holding -----------------------------------------------------------------------------------------------------

    def claim(self, request: Request, hit_tokens: int, idle_blocks: int) -> None:
        """Hold the blocks that `lookup` found."""
        path = request.path
        assert path is not None
        request.held = held = []
        for node, blocks in self._walk(path, hit_tokens // self.size):
            if node.start + blocks < node.end:
                self._split(node, node.start + blocks)
            copy = node.copies[0]
            copy.refs += 1
            held.append((copy, node.end))
        request.keyed = hit_tokens // self.size
        self.free -= idle_blocks
        self._version += 1

    def take(self, blocks: int) -> None:
        """Hold `blocks` more: those without a key first, then the idle ones, longest idle first."""
        self.free -= blocks
        if blocks <= self._unkeyed:
            self._unkeyed -= blocks
            return
        short = blocks - self._unkeyed
        self._unkeyed = 0
        line = self._idle
        while short:
            _, _, entry, copy = line[0]
            node = copy.node
            if entry == copy.entry and not copy.refs and node.end - node.start > short and len(node.copies) == 1:
                node.end -= short  # its end comes before all that is behind it in line, as before
                break
            short -= self._evict(short)
        self._version += 1

    def give_back(self, blocks: int) -> None:
        """Undo `take` of so many, of the ones without contents."""
        self.free += blocks
        self._unkeyed += blocks

    def publish(self, request: Request, tokens: int) -> None:
        """The request's first `tokens` tokens are scheduled: whoever shares them can hit them from now on."""
        request.published = tokens
        path = request.path
        if path is None:
            return
        if request.index in self.contents.followed:
            self._live[request.index] = request
        else:
            tokens = min(tokens, path.shared_tokens)
        self._attach(request, tokens // self.size)

    def release(self, request: Request, blocks: int, tokens: int) -> None:
        """Let go: the blocks of the first `tokens` tokens, which are published, stay cached."""
        keyed = max(tokens // self.size, request.keyed)
        if request.path is None:
            request.path = self.contents.path(request.index)
        self._attach(request, keyed)
        self._live.pop(request.index, None)
        self._stamp += 1
        for copy, end in reversed(request.held or ()):
            self._let_go(copy, end)
        request.held = None
        request.keyed = request.published = 0
        self._unkeyed += blocks - keyed
        self.free += blocks - keyed
        self._version += 1

    def _let_go(self, copy: Copy, end: int) -> None:
        """Drop one hold on a copy and on the pieces split off below it, down to block `end`, the lowest first."""
        pieces = [copy]
        while copy.node.end < end:
            assert copy.tail is not None
            copy = copy.tail
            pieces.append(copy)
        for piece in reversed(pieces):
            piece.refs -= 1
            if not piece.refs:
                piece.stamp = self._stamp
                self.free += piece.node.end - piece.node.start
                self._queue(piece)

    # -- the tree --------------------------------------------------------------------------------------------------

    def _attach(self, request: Request, target: int) -> None:
        """Bring what the request has published into the tree, down to block `target`, held by it."""
        depth = request.keyed
        if target <= depth:
            return
        path, held, size = request.path, request.held, self.size
        assert path is not None
        if path.follows:
            self._catch_up(path)  # what they published before comes first; it may split the nodes held here
        node = self._root
        if held is None:
            held = request.held = []
        else:
            copy, end = held[-1]
            while copy.node.end < end:
                assert copy.tail is not None
                copy = copy.tail
            node = copy.node
            if node.path is path and copy.refs == 1 and len(node.copies) == 1 and not node.children:
                node.end = target  # its own last run goes on
                held[-1] = (held[-1][0], target)
                request.keyed = target
                self._version += 1
                return
        while depth < target:
            signature = path.signature(depth * size, (depth + 1) * size)
            child = node.children.get(signature)
            if child is None:
                child = node.children[signature] = Node(depth, target, path, node)
            else:
                stop = child.end if child.end < target else target
                agree = path.common(child.path, depth * size, stop * size) // size
                if agree < child.end:
                    self._split(child, agree)
            copy = Copy(child, 1, GONE)
            child.copies.append(copy)
            held.append((copy, child.end))
            depth = child.end
            node = child
        request.keyed = target
        self._version += 1

    def _split(self, node: Node, depth: int) -> None:
        """Cut a node in two at block `depth`; both halves have all its copies."""
        lower = Node(depth, node.end, node.path, node)
        lower.children = node.children
        for child in lower.children.values():
            child.parent = lower
        size = self.size
        node.children = {node.path.signature(depth * size, (depth + 1) * size): lower}
        node.end = depth
        for copy in node.copies:
            piece = Copy(lower, copy.refs, copy.stamp)
            piece.tail, copy.tail = copy.tail, piece
            lower.copies.append(piece)
            if not copy.refs:
                self._queue(piece)
                self._queue(copy)

    def _queue(self, copy: Copy) -> None:
        self._serial += 1
        copy.entry = self._serial
        heappush(self._idle, (copy.stamp, -copy.node.end, self._serial, copy))

    def _evict(self, blocks: int) -> int:
        """Evict up to `blocks` blocks of the copy that is next; returns how many (0 for a stale entry)."""
        _, _, entry, copy = self._idle[0]
        node = copy.node
        if copy.refs or copy.entry != entry:
            heappop(self._idle)
            return 0
        length = node.end - node.start
        if blocks >= length:
            heappop(self._idle)
            self._forget(copy)
            return length
        self._split(node, node.end - blocks)
        assert copy.tail is not None
        self._forget(copy.tail)
        return blocks

    def _forget(self, copy: Copy) -> None:
        copy.stamp = copy.entry = GONE
        node = copy.node
        node.copies.remove(copy)
        if not node.copies:
            assert node.parent is not None
            assert not node.children
            del node.parent.children[node.path.signature(node.start * self.size, (node.start + 1) * self.size)]


def _published(request: Request) -> int:
    return request.published
