"""SGLang's radix cache, exact to the run: a tree of token runs, evicted whole, least recently used leaf first.

Unlike vLLM's (`prefix.py`) equal tokens are merged: who publishes what is there already gives its own copy back. A run
is held by everyone who needs it or a run below it; runs that nobody holds are loose. `free` counts empty and loose
blocks: what an allocation can have after evicting. `vacant` counts the empty ones alone.

A request's `held` is the run in which what it holds ends, `keyed` how many of its tokens stand in the tree (or would be
found there, while it waits), `published` how many it has offered since its admission.

What only one request can have (no shared beginning, nobody follows it) is nobody else's hit: until it is retracted it
stays out of the tree, its `held` a list of where its runs end, behind the time of their last use. Finished, it is an
entry of the heap, given back run by run from its end. That takes a fifth off a run without sharing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise

from batchsim.kv.blocks import BlockPool
from batchsim.kv.content import Contents, Path, Signature
from batchsim.records import NEVER
from batchsim.request import Request

SPARE_ENTRIES = 1024

Entry = tuple[int, int, "Run | list[int]"]
"""(used, serial, a run or the blocks of the runs that only one request had)."""


class Run:
    """Tokens `start` to `end` of `path`, whole blocks. `key`: its first block; `used`: when last, in uses so far."""

    __slots__ = ("children", "end", "holds", "key", "parent", "path", "start", "used")

    def __init__(self, start: int, end: int, path: Path, parent: Run | None, key: Signature, used: int) -> None:
        self.start, self.end, self.path, self.parent, self.key, self.used = start, end, path, parent, key, used
        self.holds = 0
        self.children: dict[Signature, Run] = {}


class RadixCache(BlockPool):
    """A block pool that remembers what was published, in runs; a block is a page of SGLang's."""

    caching = True

    def __init__(self, total: int, size: int, contents: Contents) -> None:
        super().__init__(total, size)
        self.contents = contents
        self.vacant = total
        self._clock = 0
        self._root = Run(0, 0, Path((), -1), None, (), 0)
        self._runs = 0
        self._loose: list[Entry] = []  # heap; stale entries are skipped
        self._serial = 0

    # -- a block pool ------------------------------------------------------------------------------------------------

    def lookup(self, request: Request) -> tuple[int, int]:
        """What the request has pinned (`pin`): its run is held already, none of its blocks counts as free."""
        return request.keyed, 0

    def take(self, blocks: int) -> None:
        """Hold `blocks` more, evicting until so many are vacant."""
        if self.vacant < blocks:
            self.evict(blocks)
        self.vacant -= blocks
        self.free -= blocks

    def publish(self, request: Request, tokens: int) -> None:
        """Nothing: what a step computes can be hit when its result is there (`insert`)."""

    def release(self, request: Request, blocks: int, tokens: int) -> None:
        """Let go: all of a finished request stays cached; of an evicted one, what was published before."""
        if request.finished_ns != NEVER and request.published != tokens:
            self.insert(request, tokens)
        own = blocks - request.keyed // self.size
        self.vacant += own
        self.free += own
        held = request.held
        if held.__class__ is list:
            self._let_go(request, held)
        elif held is not None:
            self._unhold(held)
        request.held = None
        request.keyed = request.published = 0

    # -- looking and holding -----------------------------------------------------------------------------------------

    def find(self, request: Request, tokens: int) -> Run:
        """The run in which the longest match of the request's first `tokens` ends; split there, and used just now."""
        if self.private(request):
            request.keyed = 0
            return self._root
        run = self._walk(self.path(request), tokens // self.size * self.size, stamping=False)
        request.keyed = run.end
        self._clock += 1
        above: Run | None = run
        while above is not None:
            above.used = self._clock
            above = above.parent
        self._offer(run)
        return run

    def pin(self, request: Request, tokens: int) -> int:
        """Hold the longest match of the first `tokens` tokens; returns its length."""
        run = self.find(request, tokens)
        self._hold(run)
        request.held = run
        return run.end

    def unpin(self, request: Request) -> None:
        """The request does not enter: its match is loose again."""
        self._unhold(request.held)
        request.held = None

    def insert(self, request: Request, tokens: int) -> None:
        """Publish the first `tokens` tokens, whole blocks of them: the request holds the run in which they end."""
        if request.held.__class__ is list or self.private(request):
            self._note(request, tokens)
            return
        size, path = self.size, self.path(request)
        keys = tokens // size * size
        run = self._walk(path, keys, stamping=True)
        there = run.end
        if there < keys:
            cut = request.prompt_tokens // size * size
            if there < cut < keys:
                run = self._grow(run, cut, path)
            run = self._grow(run, keys, path)
        self.vacant += (there - request.keyed) // size  # copies of what was there already
        self.free += (keys - request.keyed) // size
        self._hold(run)
        if request.held is not None:
            self._unhold(request.held)
        request.held, request.keyed, request.published = run, keys, tokens

    def private(self, request: Request) -> bool:
        """Whether its tokens are its own, and never stood in the tree."""
        return request.path is None and not self.contents.shares(request.index)

    def path(self, request: Request) -> Path:
        """The request's tokens."""
        path: Path | None = request.path
        if path is None:
            path = request.path = self.contents.path(request.index)
        return path

    def loose_tokens(self) -> int:
        """Tokens that nobody holds."""
        return (self.free - self.vacant) * self.size

    # -- evicting ----------------------------------------------------------------------------------------------------

    def evict(self, blocks: int) -> None:
        """Drop loose leaves, least recently used first, until `blocks` are vacant or there are none left."""
        while self.vacant < blocks and self._loose:
            used, _, run = self._loose[0]
            if isinstance(run, list):
                self.vacant += run.pop()
                if run:
                    continue
                self._runs -= 1
                heappop(self._loose)
                continue
            heappop(self._loose)
            parent = run.parent
            if run.used != used or run.holds or run.children or parent is None:
                continue
            self.vacant += (run.end - run.start) // self.size
            del parent.children[run.key]
            run.parent = None
            self._runs -= 1
            self._offer(parent)

    def _offer(self, run: Run) -> None:
        """A loose leaf can be evicted."""
        if run.holds or run.children or run.parent is None:
            return
        self._serial += 1
        heappush(self._loose, (run.used, self._serial, run))
        if len(self._loose) > 4 * self._runs + SPARE_ENTRIES:
            self._loose = [entry for entry in self._loose if _fresh(entry)]
            heapify(self._loose)

    # -- what only one request can have ------------------------------------------------------------------------------

    def _note(self, request: Request, tokens: int) -> None:
        """Published, with nothing in the tree: the runs end where each publication ended, and at the prompt's end."""
        size = self.size
        keys = tokens // size * size
        ends: list[int] = request.held if request.held.__class__ is list else [0]
        if keys > request.keyed:
            cut = request.prompt_tokens // size * size
            if request.keyed < cut < keys:
                ends.append(cut)
            ends.append(keys)
        self._clock += len(ends)
        ends[0] = self._clock
        request.held, request.keyed, request.published = ends, keys, tokens

    def _let_go(self, request: Request, ends: list[int]) -> None:
        """Its runs are loose; those of an evicted one, which can find them again, stand in the tree from now on."""
        self.free += request.keyed // self.size
        used, ends[0] = ends[0], 0
        if len(ends) == 1:
            return
        if request.finished_ns != NEVER or request.cancelled:
            self._runs += 1
            self._serial += 1
            size = self.size
            heappush(self._loose, (used, self._serial, [(b - a) // size for a, b in pairwise(ends)]))
            return
        run, path, clock = self._root, self.path(request), self._clock
        for place, end in enumerate(ends[1:], start=1):
            self._clock = used - len(ends) + place
            run = self._grow(run, end, path)
        self._clock = clock
        self._offer(run)

    # -- the tree ----------------------------------------------------------------------------------------------------

    def _walk(self, path: Path, limit: int, *, stamping: bool) -> Run:
        """The run that ends where the path leaves the tree, at `limit` at the latest; split there."""
        run, size = self._root, self.size
        while run.end < limit:
            depth = run.end
            child = run.children.get(path.signature(depth, depth + size))
            if child is None:
                break
            stop = child.end if child.end < limit else limit
            agree = path.common(child.path, depth, stop) // size * size
            if stamping:
                self._clock += 1
                child.used = self._clock
            if agree < child.end:
                return self._split(child, agree)
            run = child
        return run

    def _split(self, run: Run, depth: int) -> Run:
        """Cut a run in two at token `depth`; the upper half, which is new. The lower counts as used just now."""
        parent = run.parent
        assert parent is not None
        upper = parent.children[run.key] = Run(run.start, depth, run.path, parent, run.key, self._clock + 1)
        self._clock += 2
        run.key = run.path.signature(depth, depth + self.size)
        upper.children[run.key] = run
        upper.holds = run.holds
        run.start, run.parent, run.used = depth, upper, self._clock
        self._runs += 1
        self._offer(run)
        return upper

    def _grow(self, parent: Run, end: int, path: Path) -> Run:
        self._clock += 1
        key = path.signature(parent.end, parent.end + self.size)
        child = parent.children[key] = Run(parent.end, end, path, parent, key, self._clock)
        self._runs += 1
        return child

    def _hold(self, run: Run) -> None:
        parent = run.parent
        while parent is not None:
            if not run.holds:
                self.free -= (run.end - run.start) // self.size
            run.holds += 1
            run, parent = parent, parent.parent

    def _unhold(self, run: Run) -> None:
        bottom, parent = run, run.parent
        while parent is not None:
            run.holds -= 1
            if not run.holds:
                self.free += (run.end - run.start) // self.size
            run, parent = parent, parent.parent
        self._offer(bottom)


def _fresh(entry: Entry) -> bool:
    used, _, run = entry
    return isinstance(run, list) or (run.used == used and not run.holds and not run.children and run.parent is not None)
