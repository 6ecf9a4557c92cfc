"""What a scheduler is: one method that builds the next step of its replica's batch, and says how long that step holds."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from batchsim.batch import Batch
from batchsim.request import Request


class Verdict(Enum):
    """How long the step just planned stays right.

    ONCE: plan again after it.  STEADY: the same step again until a request arrives or finishes or blocks run short.
    DEAF: as STEADY, and arrivals change nothing either.
    FLOW: after it everybody decodes, step after step, until a request arrives or blocks run short; those who finish
    change nothing. It may follow prompts, if the step completes them all.
    """

    ONCE = 0
    STEADY = 1
    DEAF = 2
    FLOW = 3


ONCE, STEADY, DEAF, FLOW = Verdict.ONCE, Verdict.STEADY, Verdict.DEAF, Verdict.FLOW


class Wait(NamedTuple):
    """Nothing now: plan again at `until_ns` (None: when something happens); an arrival ends the wait sooner."""

    until_ns: int | None = None


class Until(NamedTuple):
    """As `verdict` (STEADY or DEAF), but plan again when `ticks` steps have passed or `ns` has come, at the latest."""

    verdict: Verdict
    ticks: int | None = None  # from 1: the step just planned
    ns: int | None = None


class Express(NamedTuple):
    """Terms on which a replica need not ask its scheduler, as long as nobody is evicted, rejected or finds a prefix in cache.

    In every step everybody past the prompt decodes; then, within `tokens` in all, the prompt under way goes on and the queue is
    admitted from its head (by the scheduler's `order`, else by arrival), each with as much of its prompt as is left of the
    budget, until seats, budget or blocks run out. Nobody passes a head that does not fit. Where more than `tokens`
    decode, the scheduler is asked.
    """

    seats: int
    tokens: int
    chunked: bool = True
    """Prompts are cut to what is left of the budget; else one that is longer waits."""
    holds_prompt: bool = False
    """An admission takes the blocks of the whole prompt; else those of its chunk,"""
    asks_prompt: bool = True
    """but only if those of the whole prompt are free."""
    spare: int = 0
    """Blocks that an admission leaves free"""
    spare_alone: bool = False
    """also where nobody runs."""
    headroom: int = 0
    """Blocks that decodes leave free; short of them the scheduler is asked."""


class Scheduler(Protocol):
    """A plain dataclass whose fields are its scenario keys, one instance a replica; fields with init=False are its state.

    Optional attributes, read with these defaults:
    hold (False): requests that ended keep their seat and KV, and compute on, until the last of the batch has ended.
    order (None): a function of a request; the engine keeps `waiting` sorted by it. None: by arrival, evicted in front.
    caching (False): the replica's KV blocks remember their contents (`Batch.cached`).
    evicts_served (True): it may preempt a request in a step that has already given it tokens.
    headroom (0): blocks that a STEADY or DEAF run leaves free; short of them the scheduler is asked again.
    folds_output (False): what an evicted request emitted becomes part of its prompt, to be computed in chunks to the end.
    flows_ahead (False): where steps are planned ahead, FLOW spares it the plan of the next step too.
    oracle (False): it reads output lengths; every result says so.
    express(blocks) -> Express | None: the terms on which it need not be asked, with so many KV blocks.
    refuse(request, batch) -> str | None: a reason to reject an arrival that it could never or will not serve.
    pool(tokens, contents) -> BlockPool: its own kind of KV memory, of so many tokens, instead of the engine's blocks.
    concluding(batch, ended): a step is over; called before those who ended leave, whose order it may change.
    """

    def plan(self, b: Batch) -> Verdict | Until | Wait:
        """Build the next step with the calls of `b`."""
        ...


def attribute(scheduler: Scheduler, name: str, default: Any) -> Any:
    """An optional attribute of a scheduler."""
    return getattr(scheduler, name, default)


Refuse = Callable[[Request, Batch], str | None]
