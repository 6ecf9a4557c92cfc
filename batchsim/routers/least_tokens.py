"""Requests go where the fewest tokens are to be computed and held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchsim.request import Request
from batchsim.router import Load, Outlook, Retry


@dataclass
class LeastTokens:
    """Requests go where the fewest tokens are: still to prefill, plus context held; ties to the lowest number."""

    retry: Retry = 0

    def begin(self, outlook: Outlook) -> None:
        """It remembers nothing."""

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """The least of `tokens`."""
        return min(replicas, key=_by_tokens)


def _by_tokens(load: Load) -> tuple[int, int]:
    return (load.tokens, load.number)
