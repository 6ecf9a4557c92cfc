"""Static batching: wait for a full batch, run it until its slowest member ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import Until, Verdict, Wait
from batchsim.schedulers import _forming
from batchsim.schedulers._door import Door, MaxQueue, QueueTimeoutMs


@dataclass
class Static:
    """A batch waits until it is full and runs until its slowest member ends."""

    batch_size: Annotated[int, Field(ge=1, description="members of a full batch")] = 32
    max_wait_ms: Annotated[
        float | None,
        Field(ge=0, allow_inf_nan=False, description="longest wait of the oldest for more members; absent: for ever"),
    ] = None
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
    max_queue: MaxQueue = None
    queue_timeout_ms: QueueTimeoutMs = None

    def __post_init__(self) -> None:
        self._door = Door(self.max_queue, self.queue_timeout_ms)

    @property
    def hold(self) -> bool:
        """Whether ended members keep their seats."""
        return self.run_to != "leave"

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reservation larger than the pool, or a full queue."""
        return _forming.refusal(request, b, self.reserve) or self._door.refuse(request, b)

    def plan(self, b: Batch) -> Verdict | Until | Wait:
        """Run the batch under way; else send one that is full, that can take no more, that waited long enough, or the
        last.
        """
        self._door.expire(b)
        if b.seats:
            return self._door.watch(_forming.run_on(b), b)
        oldest = b.head()
        if oldest is None:
            return Wait()
        members, no_more = _forming.gather(b, self.batch_size, self.reserve)
        due_ns = None if self.max_wait_ms is None else oldest.queued_ns + round(self.max_wait_ms * 1e6)
        overdue = due_ns is not None and b.now_ns >= due_ns
        if len(members) == self.batch_size or no_more or overdue or b.draining:
            return _forming.send(b, members, run_to=self.run_to, pad_prompts=self.pad_prompts, reserve=self.reserve)
        timeout_ns = self._door.next_ns(b)
        if due_ns is None or timeout_ns is None:
            return Wait(timeout_ns if due_ns is None else due_ns)
        return Wait(min(due_ns, timeout_ns))
