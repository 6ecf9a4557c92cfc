"""Consistent hashing: a session stays with its replica, and few move when the fleet changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

from pydantic import Field

from batchsim.request import Request
from batchsim.router import Load, Outlook, Retry
from batchsim.workload.columns import ABSENT


@dataclass
class Session:
    """Requests of a session go to one replica, by consistent hashing: one more replica moves few of them.

    Without a session the tenant decides, and where there is but one tenant the request's own name.
    """

    points: Annotated[int, Field(ge=1, le=10_000, description="places of each replica on the ring")] = 160
    retry: Retry = 0

    def begin(self, outlook: Outlook) -> None:
        """Lay out the ring."""
        self._workload = outlook.workload
        places = [(_hash(f"{n}:{i}"), n) for n in range(outlook.replicas) for i in range(self.points)]
        places.sort()
        self._hashes = [place for place, _ in places]
        self._owners = [owner for _, owner in places]

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """The first of the replicas from the key's place on the ring on."""
        there = {load.number: load for load in replicas}
        start = bisect_right(self._hashes, _hash(self._key(request)))
        for step in range(len(self._owners)):
            load = there.get(self._owners[(start + step) % len(self._owners)])
            if load is not None:
                return load
        raise AssertionError("every replica stands on the ring")

    def _key(self, request: Request) -> str:
        workload = self._workload
        if request.session != ABSENT:
            return f"session:{workload.sessions[request.session]}"
        return f"tenant:{workload.tenants[request.tenant]}" if len(workload.tenants) > 1 else f"request:{request.id}"


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
