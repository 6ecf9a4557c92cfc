"""A workload as columns: every request of a run, drawn or read before the clock starts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

ABSENT = -1
"""Stands for "not given" in an integer column (max_tokens, cancel_ns, session)."""


@dataclass(frozen=True, slots=True)
class Clients:
    """Closed loop: `concurrency` clients, each sending its next request `think_ns` after its last answer."""

    concurrency: int
    think_ns: int


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Leading prompt segments, one ragged row a request: row i is `offset[i]:offset[i + 1]`.

    `segment` >= 0 names a shared run of tokens (equal numbers are equal tokens); -(j + 1) is the prompt and
    output of request j of the same workload. `tokens` is how many tokens of that segment the prompt takes.
    """

    offset: Int64
    segment: Int64
    tokens: Int64


_COLUMNS = (
    "arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "priority", "tenant", "traffic_class", "session",
    "cancel_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in file order, one entry a request in every column (all int64).

    arrival_ns: scheduled arrival, nanoseconds from the start, non-decreasing unless the workload is a list.
    prompt_tokens, output_tokens: at least 1; output_tokens is what the request really generates.
    max_tokens: the limit that it declares, or ABSENT.  priority: lower is more urgent.
    tenant, traffic_class: indices into `tenants`, `classes`.  session: index into `sessions`, or ABSENT.
    cancel_ns: the client gives up that long after its arrival, or ABSENT.
    """

    arrival_ns: Int64
    prompt_tokens: Int64
    output_tokens: Int64
    max_tokens: Int64
    priority: Int64
    tenant: Int64
    traffic_class: Int64
    session: Int64
    cancel_ns: Int64
    tenants: tuple[str, ...] = ("default",)
    classes: tuple[str, ...] = ("default",)
    sessions: tuple[str, ...] = ()
    after: Int64 | None = (
        None  # sent think_ns after request `after` was answered; ABSENT: at its arrival time. None: all so
    )
    think_ns: Int64 | None = None
    ids: tuple[str, ...] | None = None  # None: r0, r1, …
    prefixes: Prefixes | None = None
    clients: Clients | None = None
    max_concurrency: int | None = None
    open_loop: bool = True  # False: arrivals carry no rate of their own (burst, closed)
    notes: tuple[str, ...] = field(default=())  # what reading changed, e.g. rows skipped or sorted, one sentence each

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def id_of(self, index: int) -> str:
        """The name of request `index`."""
        return self.ids[index] if self.ids is not None else f"r{index}"


def settled(workload: Workload) -> Workload:
    """The same requests; a column of one value throughout becomes a view of that value, which takes no memory."""
    columns = {name: getattr(workload, name) for name in _COLUMNS}
    same: dict[str, Any] = {
        name: np.broadcast_to(column[0], column.shape)
        for name, column in columns.items()
        if len(column) and bool((column == column[0]).all())
    }
    return replace(workload, **same)
