"""Requests go to a replica drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchsim.request import Request
from batchsim.router import Load, Outlook, Retry


@dataclass
class Random:
    """Requests go to a replica drawn at random, each as likely as the others."""

    retry: Retry = 0

    def begin(self, outlook: Outlook) -> None:
        """Take the stream."""
        self._rng = outlook.rng

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """One draw."""
        return replicas[int(self._rng.integers(len(replicas)))]
