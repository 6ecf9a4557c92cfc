"""Requests go where the fewest wait and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchsim.request import Request
from batchsim.router import Load, Outlook, Retry, by_requests


@dataclass
class LeastRequests:
    """Requests go where the fewest wait and run; ties to the replica of the lowest number."""

    retry: Retry = 0

    def begin(self, outlook: Outlook) -> None:
        """It remembers nothing."""

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """The least of `requests`."""
        return min(replicas, key=by_requests)
