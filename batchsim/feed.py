"""The requests that are sent by the clock, in the order they are due: one by one as objects, or read ahead as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchsim.request import Request
from batchsim.workload.columns import ABSENT, Int64, Workload

PAGE = 8192
"""Requests turned from columns into lists or objects at a time,"""
FIRST = 16
"""objects so many at first: after the next few they may be read as columns."""

Plain = Callable[[Int64, Int64], NDArray[np.bool_]]
"""(prompt, output or its declared limit) of requests -> which of them are nothing out of the ordinary."""
Bounded = Callable[[Int64, Int64, Int64], tuple[Int64, Int64]]
"""(prompt, output, declared limit or ABSENT) of requests -> (tokens they will emit, tokens that they may emit)."""


class Page(NamedTuple):
    """A page of requests as lists. first: place of its first; places: where each stands in the workload."""

    first: int
    places: list[int]
    due_ns: list[int]
    prompt_tokens: list[int]
    limits: list[int]
    stops: list[bool]
    """Whether each ends before its limit, by itself."""
    odd: list[int]
    """Which of them are not `plain`, counted from the first."""


class Feed:
    """The workload's requests in file order where clients send them, else by arrival (file order at equal times).

    at: how many have been taken.
    """

    def __init__(self, workload: Workload, bounded: Bounded, places: Int64 | None = None) -> None:
        """places: only these of the workload, in this order."""
        self._workload = workload
        self._bounded = bounded
        self._order = in_order(workload) if places is None else places
        self.count = len(workload) if self._order is None else len(self._order)
        self.at = 0
        self._made: Iterator[Request] = iter(())  # those from `at` on, so many are left of them
        self._left = 0
        self._ahead = FIRST
        self._page: Page | None = None

    def due_ns(self) -> int | None:
        """When the next one is due; None when all have been taken."""
        if self.at >= self.count:
            return None
        place = self.at if self._order is None else self._order[self.at]
        return int(self._workload.arrival_ns[place])

    def take(self) -> Request:
        """The next one, of which there must be one."""
        if not self._left:
            self._left = min(self._ahead, self.count - self.at)
            self._ahead = min(2 * self._ahead, PAGE)
            self._made = self.make(self._pick(self.at, self.at + self._left))
        self._left -= 1
        self.at += 1
        return next(self._made)

    def skip_to(self, at: int) -> None:
        """Those before place `at` of the line have been read from its pages."""
        if at != self.at:
            self.at = at
            self._left, self._ahead = 0, FIRST

    def make(self, pick: slice | Int64) -> Iterator[Request]:
        """The requests at some places of the workload."""
        workload = self._workload
        indices = range(pick.start, pick.stop) if isinstance(pick, slice) else pick.tolist()
        prompt, output, declared = workload.prompt_tokens[pick], workload.output_tokens[pick], workload.max_tokens[pick]
        limit, maximum = self._bounded(prompt, output, declared)
        rows = zip(
            indices, workload.arrival_ns[pick].tolist(), prompt.tolist(), limit.tolist(), maximum.tolist(),
            output.tolist(), (declared != ABSENT).tolist(), workload.priority[pick].tolist(),
            workload.tenant[pick].tolist(), workload.traffic_class[pick].tolist(), workload.session[pick].tolist(),
            strict=True,
        )  # fmt: skip
        name = workload.id_of
        for index, *columns in rows:
            yield Request(index, name(index), *columns)

    def page(self, at: int, plain: Plain) -> Page:
        """The page on which place `at` of the line stands. plain: always the same."""
        first = at - at % PAGE
        if self._page is None or self._page.first != first:
            self._page = self._read(first, plain)
        return self._page

    def _read(self, first: int, plain: Plain) -> Page:
        workload, pick = self._workload, self._pick(first, min(first + PAGE, self.count))
        prompt, output, declared = workload.prompt_tokens[pick], workload.output_tokens[pick], workload.max_tokens[pick]
        limit, maximum = self._bounded(prompt, output, declared)
        odd = np.flatnonzero(~plain(prompt, np.where(declared == ABSENT, output, declared)))
        places = list(range(pick.start, pick.stop)) if isinstance(pick, slice) else pick.tolist()
        return Page(
            first, places, workload.arrival_ns[pick].tolist(), prompt.tolist(), limit.tolist(),
            (limit < maximum).tolist(), odd.tolist(),
        )  # fmt: skip

    def _pick(self, start: int, stop: int) -> slice | Int64:
        return slice(start, stop) if self._order is None else self._order[start:stop]


def in_order(workload: Workload) -> Int64 | None:
    """The places in the workload of those sent by the clock, in the order they are due; None: as they stand."""
    arrivals = workload.arrival_ns
    if workload.after is not None:
        order: Any = np.flatnonzero(workload.after == ABSENT)
        return np.asarray(order[arrivals[order].argsort(kind="stable")])
    if workload.clients is None and len(arrivals) > 1 and bool((arrivals[1:] < arrivals[:-1]).any()):
        return np.asarray(arrivals.argsort(kind="stable"))
    return None
