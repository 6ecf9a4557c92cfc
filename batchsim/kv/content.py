"""What the tokens of a prompt are, as far as sharing goes: runs of named segments, then tokens of the request's own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from batchsim.workload.columns import Prefixes

Signature = tuple[object, ...]
ENDLESS = 1 << 62


class Path:
    """The token stream of a request: runs (source, offset, length), the last of them endless.

    Equal (source, offset) are equal tokens. Sources from 0 up are named segments; -(i + 1) are the tokens that request i has
    to itself, its output included, counted by their place in its stream.

    shared_tokens: length of the part before its own.  follows: the requests whose own tokens stand in it.
    """

    __slots__ = ("_offsets", "_sources", "_starts", "follows", "shared_tokens")

    def __init__(self, runs: Sequence[tuple[int, int, int]], own: int) -> None:
        starts: list[int] = []
        sources: list[int] = []
        offsets: list[int] = []
        place = 0
        for source, offset, length in runs:
            if sources and source == sources[-1] and offset == offsets[-1] + place - starts[-1]:
                place += length  # one run goes on
                continue
            starts.append(place)
            sources.append(source)
            offsets.append(offset)
            place += length
        self.shared_tokens = place
        self.follows = tuple(sorted({-source - 1 for source in sources if source < 0}))
        starts.append(place)
        sources.append(-own - 1)
        offsets.append(place)
        self._starts, self._sources, self._offsets = starts, sources, offsets

    @classmethod
    def of_segments(cls, segments: list[int], tokens: list[int], own: int) -> Path:
        """Of named segments alone, each from its beginning."""
        path = cls.__new__(cls)
        path._starts = starts = [0, *accumulate(tokens)]
        path.shared_tokens = shared = starts[-1]
        path._sources = [*segments, -own - 1]
        path._offsets = [0] * len(segments)
        path._offsets.append(shared)
        path.follows = ()
        return path

    def runs(self, tokens: int) -> list[tuple[int, int, int]]:
        """The first `tokens` tokens."""
        found = []
        ends = [*self._starts[1:], ENDLESS]
        for start, source, offset, end in zip(self._starts, self._sources, self._offsets, ends, strict=True):
            if start >= tokens:
                break
            found.append((source, offset, min(end, tokens) - start))
        return found

    def signature(self, start: int, stop: int) -> Signature:
        """What tells apart the tokens from `start` to `stop`: equal signatures are equal tokens."""
        starts = self._starts
        if len(starts) == 1:
            return (self._sources[0], self._offsets[0] + start)
        run = bisect_right(starts, start) - 1
        first = (self._sources[run], self._offsets[run] + start - starts[run])
        if run == len(starts) - 1 or starts[run + 1] >= stop:
            return first
        pieces: list[object] = [*first]
        while run + 1 < len(starts) and starts[run + 1] < stop:
            run += 1
            pieces += (starts[run] - start, self._sources[run], self._offsets[run])
        return tuple(pieces)

    def common(self, other: Path, start: int, stop: int) -> int:
        """The first place from `start` at which this path and the other differ, at most `stop`."""
        if other is self:
            return stop
        mine, its = bisect_right(self._starts, start) - 1, bisect_right(other._starts, start) - 1
        while start < stop:
            if self._sources[mine] != other._sources[its]:
                return start
            if self._offsets[mine] - self._starts[mine] != other._offsets[its] - other._starts[its]:
                return start
            my_end = self._starts[mine + 1] if mine + 1 < len(self._starts) else ENDLESS
            its_end = other._starts[its + 1] if its + 1 < len(other._starts) else ENDLESS
            start = min(my_end, its_end)
            mine += my_end == start
            its += its_end == start
        return stop


class Contents:
    """The paths of a workload's requests. Those that others follow are kept; the rest are made when asked for."""

    def __init__(self, prefixes: Prefixes | None) -> None:
        self._prefixes = prefixes
        self._kept: dict[int, Path] = {}
        self.followed: frozenset[int] = frozenset()
        if prefixes is not None:
            named = prefixes.segment[prefixes.segment < 0]
            self.followed = frozenset((-named - 1).tolist())

    @property
    def shared(self) -> bool:
        """Whether any two prompts share anything."""
        return self._prefixes is not None

    def shares(self, index: int) -> bool:
        """Whether the request begins with tokens that another may have, or others with its tokens."""
        prefixes = self._prefixes
        if prefixes is None:
            return False
        return index in self.followed or bool(prefixes.offset[index + 1] > prefixes.offset[index])

    def path(self, index: int) -> Path:
        """The token stream of request `index`."""
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        path = self._make(index)
        if index in self.followed:
            self._kept[index] = path
        return path

    def _make(self, index: int) -> Path:
        prefixes = self._prefixes
        if prefixes is None:
            return Path((), index)
        row = slice(int(prefixes.offset[index]), int(prefixes.offset[index + 1]))
        segments = prefixes.segment[row].tolist()
        if not segments or min(segments) >= 0:
            return Path.of_segments(segments, prefixes.tokens[row].tolist(), index)
        for chain in self._unmade(index):
            if chain != index:
                self._kept[chain] = self._join(chain)
        return self._join(index)

    def _join(self, index: int) -> Path:
        runs: list[tuple[int, int, int]] = []
        for segment, tokens in self._row(index):
            runs += self._kept[-segment - 1].runs(tokens) if segment < 0 else [(segment, 0, tokens)]
        return Path(runs, index)

    def _unmade(self, index: int) -> list[int]:
        """Requests whose paths this one's needs and that are not made yet, each after those it needs itself."""
        order: list[int] = []
        stack = [index]
        while stack:
            top = stack[-1]
            needs = [-segment - 1 for segment, _ in self._row(top) if segment < 0]
            missing = [need for need in needs if need not in self._kept and need not in order]
            if missing:
                stack += missing
            else:
                stack.pop()
                if top not in order:
                    order.append(top)
        return order

    def _row(self, index: int) -> list[tuple[int, int]]:
        prefixes = self._prefixes
        assert prefixes is not None
        row = slice(int(prefixes.offset[index]), int(prefixes.offset[index + 1]))
        return list(zip(prefixes.segment[row].tolist(), prefixes.tokens[row].tolist(), strict=True))
