"""Requests go to the replicas in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchsim.compact import Int64
from batchsim.request import Request
from batchsim.router import Load, Outlook, Retry


@dataclass
class RoundRobin:
    """Requests go to the replicas in turn."""

    retry: Retry = 0

    def begin(self, outlook: Outlook) -> None:
        """Replica 0 is next."""
        self._next, self._replicas = 0, outlook.replicas

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """The first from the turn on; the one behind it is next."""
        chosen = next((load for load in replicas if load.number >= self._next), replicas[0])
        self._next = chosen.number + 1
        return chosen

    def spread(self, count: int) -> Int64:
        """Whatever the replicas do, it is the next one's turn."""
        turns = np.arange(self._next, self._next + count) % self._replicas
        self._next = (self._next + count) % self._replicas
        return turns
