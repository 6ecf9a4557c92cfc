"""The requests that decode together: their aggregates on a clock, so that a step costs the same for any number of them.

The group keeps, instead of one counter a request, the clock and each request's offset from it; a heap of the ticks at
which somebody ends; how many contexts have each residue modulo the block size, which says how many blocks a tick opens;
and the sum of the offsets, which gives the context tokens. Where tokens fell is kept as spans of ticks and a list of the
gaps that no tick shows (`records.Spans`).
"""

from __future__ import annotations

from heapq import heappop, heappush
from struct import Struct

import numpy as np

from batchsim.compact import Int64
from batchsim.records import NEVER
from batchsim.repeats import blocks_opened
from batchsim.request import Clock, Request

NOBODY = 1 << 62
_span = Struct("3q")
_pack_span = _span.pack


class DecodeGroup:
    """size: rows that decode, ended ones that are held included.  ghosts: those that have ended.

    offsets: sum over rows of (computed tokens - ticks).  next_end: the tick at whose end somebody has the last token, or NOBODY.
    """

    __slots__ = (
        "_block",
        "_counted",
        "_ends",
        "_growers",
        "_residues",
        "_stamp",
        "clock",
        "fresh",
        "ghosts",
        "last_tick_ns",
        "next_end",
        "odd_gaps",
        "offsets",
        "size",
        "spans",
    )

    def __init__(self, block: int) -> None:
        self.clock = Clock()
        self.size = 0
        self.ghosts = 0
        self.fresh: list[Request] = []  # joined at a step without a tick: their next gap is their own
        self.last_tick_ns = 0
        self.spans = bytearray()  # rows of three: index, from_tick, to_tick, …
        self.odd_gaps = bytearray()  # rows of three: gap_ns, index, end_ns, …
        self._block = block
        self.offsets = 0
        self._residues = [0] * block
        self._counted = 0
        self._ends: list[tuple[int, int, Request]] = []
        self.next_end = NOBODY
        self._stamp = 0
        self._growers: list[tuple[int, int, Request]] = []  # rows whose reservation will be used up at a tick

    # -- coming and going ------------------------------------------------------------------------------------------

    def join(self, request: Request, now_ns: int, *, ticked: bool) -> None:
        """A request whose last token came just now decodes from the next tick on; `ticked`: the step was a tick."""
        ticks = self.clock.ticks
        emitted = request._emitted
        base = request.base = ticks - emitted
        end = base + request.limit
        if end < self.next_end:
            self.next_end = end
        offset = request.prompt_tokens - 1 - base
        self.size += 1
        self.offsets += offset
        stamp = request.stamp = self._stamp = self._stamp + 1
        if request.hold_blocks:
            self._join_reserved(request, offset + ticks)
        else:
            residue = request.residue = offset % self._block
            self._residues[residue] += 1
            self._counted += 1
        if ticked:
            request.span_from = ticks
        else:
            request.span_from = ticks + 1
            request.fresh_ns = now_ns
            self.fresh.append(request)
        heappush(self._ends, (end, stamp, request))

    def _join_reserved(self, request: Request, computed: int) -> None:
        """Blocks are held beyond what is computed: they may last to the end, or be used up at a tick to come."""
        request.residue = -1
        held = request.hold_blocks * self._block
        if held <= computed:
            self._count(request, computed)
        elif held < request.prompt_tokens + request.limit - 1:
            heappush(self._growers, (self.clock.ticks + held - computed, request.stamp, request))

    def leave(self, request: Request) -> None:
        """A request stops moving with the clock: its counters and blocks become its own again."""
        base = request.base
        assert base is not None
        self.size -= 1
        self.offsets -= request.prompt_tokens - 1 - base
        if request.ended:
            self.ghosts -= 1
        else:
            self._write_down(request, base)
        request.base = None

    def hand_over(self) -> tuple[int, int, int]:
        """size, ticks, offsets: all members leave at once, and nothing is written down."""
        handed = self.size, self.clock.ticks, self.offsets
        self.size = self.offsets = self._counted = 0
        self._residues = [0] * self._block
        self._ends.clear()
        self._growers.clear()
        self.fresh.clear()
        self.next_end = NOBODY
        return handed

    def end(self, request: Request) -> None:
        """A row has its last token but stays: it computes on for nobody."""
        assert request.base is not None
        self._write_down(request, request.base)
        self.ghosts += 1
        request.ended = True

    def _write_down(self, request: Request, base: int) -> None:
        """What the clock said of a request; its span of ticks ends here."""
        ticks = self.clock.ticks
        residue = request.residue
        if residue >= 0:
            self._residues[residue] -= 1
            self._counted -= 1
        emitted = request._emitted = ticks - base
        computed = request._computed = request.prompt_tokens + emitted - 1
        blocks = -(-computed // self._block)
        held = request.hold_blocks
        request.blocks = blocks if blocks > held else held
        span_from = request.span_from
        if ticks > span_from:
            self.spans += _pack_span(request.index, span_from, ticks)
        if request.fresh_ns == NEVER:
            request.last_token_ns = self.last_tick_ns
        else:
            request.last_token_ns = request.fresh_ns
            request.fresh_ns = NEVER
            self.fresh.remove(request)

    # -- moving ----------------------------------------------------------------------------------------------------

    def advance(self, ticks: int, first_end_ns: int, last_end_ns: int) -> None:
        """The clock moves `ticks` ticks; the first ended at first_end_ns, the last at last_end_ns."""
        self.clock.ticks += ticks
        self.last_tick_ns = last_end_ns
        if self.fresh:
            for request in self.fresh:
                gap = first_end_ns - request.fresh_ns
                self.odd_gaps += _pack_span(gap, request.index, first_end_ns)
                if gap > request.odd_gap_ns:
                    request.odd_gap_ns = gap
                request.fresh_ns = NEVER
            self.fresh.clear()

    def take_back(self, request: Request, before_ns: int | None) -> bool:
        """The newest token of a request that has just left is none after all; whether the last tick told of its gap.

        before_ns: when it had the token before, where it knows that.
        """
        ticks = self.clock.ticks
        if before_ns is None and ticks > request.span_from:
            start = _last_row(self.spans, 0, request.index)
            del self.spans[start : start + _span.size]
            if ticks - 1 > request.span_from:
                self.spans += _pack_span(request.index, request.span_from, ticks - 1)
            return True
        start = _last_row(self.odd_gaps, 1, request.index)
        if before_ns is None:
            request.last_token_ns = self.last_tick_ns - _span.unpack_from(self.odd_gaps, start)[0]
        del self.odd_gaps[start : start + _span.size]
        return False

    def note_spans(self, index: Int64, from_tick: Int64, to_tick: Int64) -> None:
        """Requests took a token at each tick of a span; empty spans tell nothing."""
        rows = np.stack((index, from_tick, to_tick), axis=1)
        self.spans += rows[to_tick > from_tick].tobytes()

    def note_gap(self, gap_ns: int, index: int, end_ns: int) -> None:
        """A gap between two tokens of a request that no tick shows."""
        self.odd_gaps += _pack_span(gap_ns, index, end_ns)

    def pop_ended(self, ended: list[Request]) -> None:
        """Append those that have their last token now."""
        ends, ticks = self._ends, self.clock.ticks
        while ends:
            tick, stamp, request = ends[0]
            if request.stamp == stamp and request.base is not None and not request.ended:
                if tick > ticks:
                    self.next_end = tick
                    return
                ended.append(request)
            heappop(ends)
        self.next_end = NOBODY

    # -- sums --------------------------------------------------------------------------------------------------------

    def context_tokens(self) -> int:
        """Sum of the contexts in the next tick, the tokens being computed included."""
        return self.offsets + self.size * (self.clock.ticks + 1)

    def blocks_needed(self) -> int:
        """Blocks that the next tick opens."""
        ticks = self.clock.ticks
        if not self._growers:
            return self._residues[-ticks % self._block]
        while self._growers and self._growers[0][0] <= ticks:
            tick, stamp, request = heappop(self._growers)
            if request.stamp == stamp and request.base is not None and tick == ticks:
                self._count(request, request.computed_tokens)
        return self._residues[-ticks % self._block]

    def block_due(self, request: Request) -> int:
        """1 if a member's next token opens a new block."""
        computed = request.computed_tokens
        held = max(request.hold_blocks, -(-computed // self._block))
        return 1 if -(-(computed + 1) // self._block) > held else 0

    def blocks_after(self, ticks: int) -> int:
        """Blocks that `ticks` further ticks open, after the one being planned."""
        return blocks_opened(self._residues, self._counted, self.clock.ticks + 1, ticks)

    def ticks_that_fit(self, free: int, ticks: int) -> int:
        """Of `ticks` further ticks after the one being planned, how many find their blocks in `free`."""
        if self._growers:
            ticks = min(ticks, self._growers[0][0] - self.clock.ticks - 1)
        if ticks <= 0:
            return 0
        if (ticks // self._block + 1) * self._counted <= free or self.blocks_after(ticks) <= free:
            return ticks
        low, high = 0, ticks  # blocks_after is monotone
        while high - low > 1:
            middle = (low + high) // 2
            if self.blocks_after(middle) <= free:
                low = middle
            else:
                high = middle
        return low

    def _count(self, request: Request, computed: int) -> None:
        request.residue = (computed - self.clock.ticks) % self._block
        self._residues[request.residue] += 1
        self._counted += 1


def _last_row(rows: bytearray, place: int, index: int) -> int:
    """Where the last row of request `index` begins."""
    start = len(rows) - _span.size
    while _span.unpack_from(rows, start)[place] != index:
        start -= _span.size
    return start
