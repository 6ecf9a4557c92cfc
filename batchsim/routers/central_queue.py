"""One queue before all replicas: whoever is free takes the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from batchsim.request import Request
from batchsim.router import Load, Outlook


@dataclass
class CentralQueue:
    """One queue, first come first served: the head goes to the first replica that could admit it at its next plan.

    A replica could if it has a seat to spare for it (its scheduler's limit, less those running and those already sent
    there) and blocks for its prompt beside those of the others on the way; where batches are formed of whole requests,
    if it has the seat and no batch is under way. A replica with nobody on it always could. Nobody passes the head.
    """

    central: ClassVar[bool] = True

    def begin(self, outlook: Outlook) -> None:
        """It remembers nothing."""

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """The first of those that could admit it."""
        return replicas[0]
