"""Dynamic batching as Triton's batcher: a batch leaves when it is full, or when its oldest member has waited long enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import Verdict, Wait
from batchsim.schedulers import _forming


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
            description="seats are held until the longest member ends, until the largest declared max_tokens, or members leave"
        ),
    ] = "longest"
    pad_prompts: Annotated[bool, Field(description="compute each prompt at the length of the longest")] = True
    reserve: Annotated[
        Literal["declared", "max_model_len"],
        Field(description="KV held for each member: prompt + max_tokens (without one its real output), or max_model_len"),
    ] = "declared"

    def __post_init__(self) -> None:
        if self.preferred_batch_size and max(self.preferred_batch_size) > self.max_batch_size:
            raise ValueError(
                f"preferred_batch_size {max(self.preferred_batch_size)} must be at most max_batch_size {self.max_batch_size}"
            )

    @property
    def hold(self) -> bool:
        """Whether ended members keep their seats."""
        return self.run_to != "leave"

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reservation larger than the pool."""
        return _forming.refusal(request, b, self.reserve)

    def plan(self, b: Batch) -> Verdict | Wait:
        """Run the batch under way; else send a preferred size, a batch that cannot grow, or one that waited long enough."""
        if b.seats:
            return _forming.run_on(b)
        oldest = b.head()
        if oldest is None:
            return Wait()
        members, no_more = _forming.gather(b, self.max_batch_size, self.reserve)
        due_ns = oldest.queued_ns + round(self.max_queue_delay_ms * 1e6)
        preferred = self.preferred_batch_size or [self.max_batch_size]
        met = max((size for size in preferred if size <= len(members)), default=0)
        if met and not (self.max_queue_delay_ms and b.now_ns >= due_ns):
            members = members[:met]
        elif not (no_more or len(members) == self.max_batch_size or b.now_ns >= due_ns):
            return Wait(due_ns)
        return _forming.send(b, members, run_to=self.run_to, pad_prompts=self.pad_prompts, reserve=self.reserve)
