"""Two replicas are drawn at random; the lighter gets the request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from batchsim.request import Request
from batchsim.router import Load, Outlook, Retry


@dataclass
class PowerOfTwo:
    """Two replicas are drawn at random; the lighter gets the request, the first drawn where they are equal."""

    load: Annotated[
        Literal["requests", "tokens"],
        Field(description="what is light: few unanswered requests, or few of their tokens"),
    ] = "requests"
    retry: Retry = 0

    def begin(self, outlook: Outlook) -> None:
        """Take the stream."""
        self._rng = outlook.rng

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """Two draws without replacement."""
        if len(replicas) == 1:
            return replicas[0]
        first = int(self._rng.integers(len(replicas)))
        second = int(self._rng.integers(len(replicas) - 1))
        one, other = replicas[first], replicas[second + (second >= first)]
        if self.load == "tokens":
            return one if one.tokens <= other.tokens else other
        return one if one.requests <= other.requests else other
