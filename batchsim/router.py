"""What a router is: one method that says which replica an arrival goes to, with what is known at that instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from numpy.random import Generator
from pydantic import Field

from batchsim.kv.content import Contents
from batchsim.request import Request
from batchsim.workload.columns import Workload

Retry = Annotated[
    int, Field(ge=0, description="further replicas that are tried when one rejects an arrival (its queue is full)")
]


class Load(Protocol):
    """A replica as a router sees it. Every figure is that of the instant at which it is read.

    number: its place in the fleet.  block: tokens of a KV block.  requests: sent there and not yet answered.
    """

    number: int
    block: int

    @property
    def requests(self) -> int: ...

    @property
    def tokens(self) -> int:
        """Tokens still to prefill plus context held, over its requests: prompts, and what was generated so far."""
        ...


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a router may know before the first arrival.

    rng: its own stream.  contents: what the prompts are, as far as sharing goes.  replicas: how many it routes to.
    """

    rng: Generator
    contents: Contents
    workload: Workload
    replicas: int


class Router(Protocol):
    """A plain dataclass whose fields are its scenario keys, one a run; what it remembers, it sets up in `begin`.

    Optional attributes: `retry` (0), the further replicas that are tried when one rejects; `central` (False), requests
    wait in one queue until a replica could admit them; `spread(count)`, if it looks at nothing: where the next so many
    requests go, when no replica rejects any.
    """

    def begin(self, outlook: Outlook) -> None:
        """A run starts."""
        ...

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """One of the replicas, in order of number: those that can serve the request and have not rejected it."""
        ...


def by_requests(load: Load) -> tuple[int, int]:
    """Orders replicas by unanswered requests, then by number."""
    return (load.requests, load.number)


def attribute(router: Router, name: str, default: Any) -> Any:
    """An optional attribute of a router."""
    return getattr(router, name, default)
