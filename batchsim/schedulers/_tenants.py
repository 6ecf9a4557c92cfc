"""The queue tenant by tenant: what round robin and token-fair sharing have in common."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from batchsim.batch import Batch
from batchsim.queue import Fifo
from batchsim.request import Request
from batchsim.schedulers._continuous import Stepper


class Lines:
    """Who waits, a line a tenant: by arrival, with the evicted in front. It follows a queue that is kept by arrival."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[Request]] = {}
        self._known: set[int] = set()

    def look(self, b: Batch, joins: Callable[[Request], None] | None = None) -> None:
        """Take in those who came since the last look, by arrival; `joins` hears of each before it stands in line."""
        fresh: list[Request] = []
        assert isinstance(b.queue, Fifo), "tenants' lines follow a queue by arrival"
        for index in reversed(b.queue):  # the newest stand last
            if index in self._known:
                break
            fresh.append(b.queue[index])
        for tenant in self.tenants():
            self._trim(tenant, b)
        for request in reversed(fresh):
            if joins is not None:
                joins(request)
            self._lines.setdefault(request.tenant, deque()).append(request)
            self._known.add(request.index)

    def put_back(self, b: Batch) -> None:
        """Those evicted in this step stand in front of their lines."""
        for request, _ in b.step.preempted:
            self._lines.setdefault(request.tenant, deque()).appendleft(request)
            self._known.add(request.index)

    def tenants(self) -> list[int]:
        """Who has somebody in line, as of the last look."""
        return list(self._lines)

    def at(self, tenant: int, place: int, b: Batch) -> Request | None:
        """Who stands at a place of a tenant's line, from 0; None behind its end."""
        line = self._lines.get(tenant)
        while line is not None and place < len(line):
            if line[place].index in b.queue:
                return line[place]
            self._known.discard(line[place].index)
            del line[place]
        return None

    def take(self, tenant: int, place: int) -> None:
        """The request at a place of a line leaves it."""
        line = self._lines[tenant]
        self._known.discard(line[place].index)
        del line[place]
        if not line:
            del self._lines[tenant]

    def _trim(self, tenant: int, b: Batch) -> None:
        """Those at the front of a line who were rejected or cancelled are gone; so is a line without anyone."""
        line = self._lines[tenant]
        while line and line[0].index not in b.queue:
            self._known.discard(line.popleft().index)
        if not line:
            del self._lines[tenant]


def fill(
    stepper: Stepper,
    lines: Lines,
    b: Batch,
    budget: int,
    pick: Callable[[list[int]], int],
    took: Callable[[Request], None],
) -> Request | None:
    """Admit the first in the line of the tenant that `pick` names, again and again; returns who was blocked first."""
    tenants = lines.tenants()
    places = dict.fromkeys(tenants, 0)  # how many of each line are blocked
    blocked = None
    while tenants and budget > 0 and len(b.seats) < stepper.seats:
        tenant = pick(tenants)
        request = lines.at(tenant, places[tenant], b)
        if request is None:
            tenants.remove(tenant)
            continue
        taken = stepper.admit(b, request, budget)
        if taken:
            budget -= taken
            lines.take(tenant, places[tenant])
            took(request)
            if not stepper.passing.admitted(request):
                break
        else:
            blocked = blocked or request
            if not stepper.passing.block(request):
                break
            places[tenant] += 1
    stepper.passing.end()
    return blocked
