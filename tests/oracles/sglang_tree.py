"""The radix cache of the SGLang oracle: a tree of token runs kept in plain lists, evicted least recently used first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

Token = Hashable


@dataclass(eq=False)
class Run:
    """A run of tokens whose KV the cache keeps; `holds` counts the requests that need it or a run below it."""

    tokens: list[Token]
    parent: Run | None
    last_use: int
    holds: int = 0
    children: list[Run] = field(default_factory=list)


def common(a: Sequence[Token], b: Sequence[Token], page: int) -> int:
    """Length of the common prefix of `a` and `b`, whole pages only, in tokens."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n // page * page


class Tree:
    """Everything published and not yet evicted; the root is an empty run that nobody evicts."""

    def __init__(self, page: int, split: bool = True) -> None:
        self.page, self.split = page, split
        self.clock = 0
        self.root = Run([], None, 0)

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def lookup(self, tokens: Sequence[Token], refresh: bool = True) -> tuple[int, Run]:
        """Tokens of the longest match and the run that it ends in; splits there and stamps the whole path."""
        at, end = 0, self.root
        while True:
            step = self._step(end, tokens[at:])
            if step is None:
                break
            end, n = step
            at += n
            end = self._split(end, n)
        if refresh:
            self._stamp_path(end)
        return at, end

    def insert(self, tokens: Sequence[Token], split_at: int | None) -> tuple[int, Run]:
        """Tokens that were there already and the run that `tokens` end in; only whole pages are kept."""
        tokens = tokens[: len(tokens) // self.page * self.page]
        at, end = 0, self.root
        while True:
            step = self._step(end, tokens[at:])
            if step is None:
                break
            end, n = step
            end.last_use = self.tick()
            at += n
            end = self._split(end, n)
        there = at
        for stop in self._ends(at, len(tokens), split_at):
            end = self._grow(end, list(tokens[at:stop]))
            at = stop
        return there, end

    def _ends(self, start: int, stop: int, split_at: int | None) -> list[int]:
        """Where the new runs end: at `stop`, and at `split_at` if it lies inside."""
        cut = None if split_at is None else split_at // self.page * self.page
        ends = [cut] if self.split and cut is not None and start < cut < stop else []
        return [*ends, stop] if stop > start else []

    def _step(self, run: Run, rest: Sequence[Token]) -> tuple[Run, int] | None:
        """The child that starts like `rest`, and how far both agree."""
        for child in run.children:
            n = common(child.tokens, rest, self.page)
            if n:
                return child, n
        return None

    def _split(self, run: Run, n: int) -> Run:
        """The run of the first `n` tokens; what was behind them becomes its child."""
        if n == len(run.tokens):
            return run
        assert run.parent is not None
        upper = Run(run.tokens[:n], run.parent, self.tick(), run.holds, [run])
        run.parent.children[run.parent.children.index(run)] = upper
        run.tokens, run.parent, run.last_use = run.tokens[n:], upper, self.tick()
        return upper

    def _grow(self, parent: Run, tokens: list[Token]) -> Run:
        child = Run(tokens, parent, self.tick())
        parent.children.append(child)
        return child

    def _stamp_path(self, run: Run | None) -> None:
        """One value for the whole path (the real one is a hair older at each ancestor: no choice depends on it)."""
        stamp = self.tick()
        while run is not None:
            run.last_use = stamp
            run = run.parent

    def hold(self, run: Run, by: int) -> None:
        """Add `by` (1 or -1) holders to `run` and to all that it hangs from."""
        above: Run | None = run
        while above is not None:
            above.holds += by
            assert above.holds >= 0
            above = above.parent

    def runs(self) -> list[Run]:
        """Every run but the root."""
        found, todo = [], list(self.root.children)
        while todo:
            run = todo.pop()
            found.append(run)
            todo += run.children
        return found

    def loose(self) -> int:
        """Tokens in runs without holders."""
        return sum(len(run.tokens) for run in self.runs() if run.holds == 0)

    def size(self) -> int:
        """Tokens in all runs."""
        return sum(len(run.tokens) for run in self.runs())

    def evict_one(self, newest: bool = False) -> int:
        """Drop the least recently used leaf without holders; the slots that it gives back, 0 if there is none."""
        leaves = [run for run in self.runs() if run.holds == 0 and not run.children]
        if not leaves:
            return 0
        leaves.sort(key=lambda run: run.last_use, reverse=newest)
        victim = leaves[0]
        assert victim.parent is not None
        victim.parent.children.remove(victim)
        return len(victim.tokens)
