"""Requests go to a replica drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchsim.compact import Int64
from batchsim.request import Request
from batchsim.router import Load, Outlook, Retry


@dataclass
class Random:
    """Requests go to a replica drawn at random, each as likely as the others."""

    retry: Retry = 0

    def begin(self, outlook: Outlook) -> None:
        """Take the stream."""
        self._rng, self._replicas = outlook.rng, outlook.replicas

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """One draw."""
        return replicas[int(self._rng.integers(len(replicas)))]

    def spread(self, count: int) -> Int64:
        """As many draws, of all replicas."""
        return self._rng.integers(self._replicas, size=count)
