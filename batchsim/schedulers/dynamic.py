"""Dynamic batching as Triton's batcher: a batch leaves when it is full, or when its oldest member has waited long
enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import Verdict, Wait
from batchsim.schedulers import _forming
from batchsim.schedulers._door import Door, MaxQueue, QueueTimeoutMs


@dataclass
class Dynamic:
    """A batch waits briefly for company; nobody joins while it runs."""

    max_batch_size: Annotated[int, Field(ge=1, description="most members of a batch")] = 32
    max_queue_delay_ms: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="longest that the oldest waits for more members")
    ] = 0.0
    preferred_batch_size: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(description="sizes that leave at once, while the oldest has not waited too long; none: max_batch_size"),
    ] = field(default_factory=list)
    run_to: Annotated[
        Literal["longest", "limit", "leave"],
        Field(
            description="seats are held until the longest member ends, until the largest max_tokens, or members leave"
        ),
    ] = "longest"
    pad_prompts: Annotated[bool, Field(description="compute each prompt at the length of the longest")] = True
    reserve: Annotated[
        Literal["declared", "max_model_len"],
        Field(
            description="KV held for each member: prompt + max_tokens (without one its real output), or max_model_len"
        ),
    ] = "declared"
    priority_levels: Annotated[
        int, Field(ge=0, description="levels of priority, 1 the most urgent; requests say theirs; 0: one queue for all")
    ] = 0
    default_priority_level: Annotated[
        int | None, Field(ge=1, description="level of requests of priority 0; absent: the least urgent")
    ] = None
    max_queue_size: Annotated[
        int, Field(ge=0, description="most requests that wait on each level, then rejected; 0: no limit")
    ] = 0
    max_queue: MaxQueue = None
    queue_timeout_ms: QueueTimeoutMs = None
    timeout_action: Annotated[
        Literal["REJECT", "DELAY"],
        Field(description="what a timeout does: reject, or put behind the others of its level"),
    ] = "REJECT"

    def __post_init__(self) -> None:
        if self.preferred_batch_size and max(self.preferred_batch_size) > self.max_batch_size:
            raise ValueError(
                f"preferred_batch_size {max(self.preferred_batch_size)} must be at most "
                f"max_batch_size {self.max_batch_size}"
            )
        if self.default_priority_level is not None and self.default_priority_level > self.priority_levels:
            raise ValueError(
                f"default_priority_level {self.default_priority_level} must be at most "
                f"priority_levels {self.priority_levels}"
            )
        self._door = Door(self.max_queue, self.queue_timeout_ms)
        self._late: set[int] = set()  # timed out, and put behind the others

    @property
    def hold(self) -> bool:
        """Whether ended members keep their seats."""
        return self.run_to != "leave"

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reservation larger than the pool, a priority that is no level, a full queue."""
        if self.priority_levels and not 0 <= request.priority <= self.priority_levels:
            return f"priority {request.priority} is not a level: 1 to {self.priority_levels}, or 0 for the default"
        reason = _forming.refusal(request, b, self.reserve)
        if reason is None and self.max_queue_size:
            level = self._level(request)
            ahead = sum(1 for other in b.waiting.values() if self._level(other) == level)
            if ahead >= self.max_queue_size:
                reason = f"queue is full: {ahead} waiting, max_queue_size {self.max_queue_size}"
        return reason or self._door.refuse(request, b)

    @property
    def order(self) -> Callable[[Request], tuple[int, bool]] | None:
        """By level, and on each the delayed last; None where all wait in one queue."""
        return self._rank if self.priority_levels or self.timeout_action == "DELAY" else None

    def _rank(self, request: Request) -> tuple[int, bool]:
        return self._level(request), request.index in self._late

    def _level(self, request: Request) -> int:
        if not self.priority_levels:
            return 0
        return request.priority or self.default_priority_level or self.priority_levels

    def _time_out(self, b: Batch) -> None:
        if self.timeout_action == "REJECT":
            self._door.expire(b)
            return
        for request in self._door.overdue(b):
            self._late.add(request.index)
            b.reorder(request)

    def plan(self, b: Batch) -> Verdict | Wait:
        """Run the batch under way; else send a preferred size, a batch that cannot grow, or one that waited long
        enough.
        """
        if b.seats:
            return _forming.run_on(b)
        if self.queue_timeout_ms is not None:
            self._time_out(b)
        if not b.queue:
            return Wait()
        members, no_more = _forming.gather(b, self.max_batch_size, self.reserve)
        oldest_ns = min((member.queued_ns for member in members), default=b.now_ns)
        due_ns = oldest_ns + round(self.max_queue_delay_ms * 1e6)
        preferred = self.preferred_batch_size or [self.max_batch_size]
        met = max((size for size in preferred if size <= len(members)), default=0)
        if met and not (self.max_queue_delay_ms and b.now_ns >= due_ns):
            members = members[:met]
        elif not (no_more or len(members) == self.max_batch_size or b.now_ns >= due_ns):
            return Wait(due_ns if (timeout_ns := self._door.next_ns(b)) is None else min(due_ns, timeout_ns))
        return _forming.send(b, members, run_to=self.run_to, pad_prompts=self.pad_prompts, reserve=self.reserve)
