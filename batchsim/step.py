"""The step being built: who computes how many tokens in it, and what that adds up to."""

from __future__ import annotations

from typing import NamedTuple

from batchsim.cost.model import Shape
from batchsim.group import DecodeGroup
from batchsim.request import Request

_shape = tuple.__new__  # a third of the time of Shape(...)


class Chunk(NamedTuple):
    """Prompt tokens of one request computed in this step."""

    request: Request
    tokens: int
    past: int  # tokens computed before


class Entry(NamedTuple):
    """One request's part in a step, for the step log."""

    request: Request
    tokens: int
    computed_before: int
    decode: bool


class Step:
    """What the step being built computes."""

    __slots__ = ("chunks", "dirty", "entries", "named", "padded_to", "padded_tokens", "preempted", "tick")

    def __init__(self) -> None:
        self.dirty = False  # something besides the tick stands in it
        self.chunks: dict[int, Chunk] = {}
        self.tick = False  # everybody who decodes takes a token
        self.named: dict[int, Request] = {}  # or these do, while the other decoding ones rest
        self.preempted: list[tuple[Request, int]] = []
        self.padded_to = 0
        self.padded_tokens = 0
        self.entries: dict[int, Entry] | None = None

    @property
    def empty(self) -> bool:
        """Nobody computes anything."""
        return not (self.chunks or self.tick or self.named)

    def shape(self, group: DecodeGroup, *, folds_output: bool) -> Shape:
        """What the step computes, summed, for the cost model. folds_output: a recompute is a prompt to its last token."""
        if not self.dirty:
            size = group.size
            return _shape(Shape, (0, 0, 0, 0, size, group.offsets + size * (group.clock.ticks + 1)))
        decodes = group.size if self.tick else 0
        context = group.context_tokens() if self.tick else 0
        for request in self.named.values():
            decodes += 1
            context += request._computed + 1
        tokens = s2 = pasts = seqs = 0
        for request, chunk, past in self.chunks.values():
            if (
                chunk == 1 and not folds_output and newest(request, past)
            ):  # a resumed request lacks its newest token: a decode
                decodes += 1
                context += past + 1
                continue
            chunk = self.padded_to or chunk
            tokens += chunk
            s2 += chunk * (2 * past + chunk)
            pasts += past
            seqs += 1
        return _shape(Shape, (tokens, s2, pasts, seqs, decodes, context))

    def pad(self) -> None:
        """Every prompt is computed at the length of the longest."""
        chunks = self.chunks.values()
        self.padded_to = max((chunk.tokens for chunk in chunks), default=0)
        self.padded_tokens = sum(self.padded_to - chunk.tokens for chunk in chunks)


def newest(request: Request, past: int) -> bool:
    """Whether the token after `past` is the newest one of a request past its prompt."""
    return past >= request.prompt_tokens and past + 1 == request.prompt_tokens + request._emitted
