"""Token-fair sharing between tenants: the virtual token counter of Sheng et al. (2024), "Fairness in Serving LLMs"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import ONCE, STEADY, Until, Verdict
from batchsim.schedulers._continuous import (
    Budget,
    Caching,
    Chunked,
    MaxOvertakes,
    Reserve,
    Seats,
    SkipBlocked,
    Stepper,
    newest,
)
from batchsim.schedulers._door import MaxQueue, QueueTimeoutMs
from batchsim.schedulers._tenants import Lines, fill


@dataclass
class Vtc:
    """Continuous batching that admits from the tenant who has been served the fewest weighted tokens."""

    input_weight: Annotated[
        float,
        Field(ge=0, le=1e6, allow_inf_nan=False, description="service a prompt token counts for, charged at admission"),
    ] = 1.0
    output_weight: Annotated[
        float,
        Field(ge=0, le=1e6, allow_inf_nan=False, description="service an output token counts for, charged as it comes"),
    ] = 2.0
    lift: Annotated[
        bool, Field(description="a tenant back from idle starts level with the least served: no credit is saved up")
    ] = True
    max_num_seqs: Seats = 256
    max_num_batched_tokens: Budget = 8192
    enable_chunked_prefill: Chunked = True
    enable_prefix_caching: Caching = False
    reserve: Reserve = "none"
    skip_blocked: SkipBlocked = False
    max_overtakes: MaxOvertakes = 16
    max_queue: MaxQueue = None
    queue_timeout_ms: QueueTimeoutMs = None

    sized: ClassVar[tuple[str, str]] = ("max_num_seqs", "max_num_batched_tokens")

    def __post_init__(self) -> None:
        self._stepper = Stepper.of(self)
        self._lines = Lines()
        self._inputs: dict[int, int] = {}  # by tenant: prompt tokens admitted,
        self._outputs: dict[int, int] = {}  # output tokens counted,
        self._lifted: dict[int, float] = {}  # and what lifts added
        self._growing: dict[int, Request] = {}  # admitted, and perhaps not yet counted to the end
        self._counted: dict[int, int] = {}  # output tokens of those that are in `_outputs`
        self._last: int | None = None  # the tenant admitted last

    @property
    def caching(self) -> bool:
        """Whether the blocks remember their contents."""
        return self.enable_prefix_caching

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reason to reject an arrival."""
        return self._stepper.refuse(request, b)

    def plan(self, b: Batch) -> Verdict | Until:
        """Running requests, then the first in line of the least served tenant, again and again."""
        stepper, lines = self._stepper, self._lines
        stepper.door.expire(b)
        blocked = None
        if b.queue:
            self._count(b)
            lines.look(b, self._joins)
        budget = stepper.go_on(b, newest)
        if b.step.preempted:
            lines.put_back(b)
        elif b.queue:
            blocked = fill(stepper, lines, b, budget, self._least_served, self._took)
        verdict = stepper.verdict(b, listens=True)
        if blocked is None or verdict is ONCE:
            return verdict
        return self._until_another_is_due(b, blocked, verdict)

    # -- counters ------------------------------------------------------------

    def served(self, tenant: int) -> float:
        """The tenant's counter: weighted tokens, as of the last count, and what lifts added."""
        return (
            self.input_weight * self._inputs.get(tenant, 0)
            + self.output_weight * self._outputs.get(tenant, 0)
            + self._lifted.get(tenant, 0.0)
        )

    def _count(self, b: Batch) -> None:
        """Charge the output tokens that came since the last count."""
        gone: list[int] = []
        counted, outputs = self._counted, self._outputs
        for index, request in self._growing.items():
            emitted = request.emitted_tokens
            if emitted != counted[index]:
                outputs[request.tenant] = outputs.get(request.tenant, 0) + emitted - counted[index]
                counted[index] = emitted
            if index not in b.seats and index not in b.queue:
                gone.append(index)
        for index in gone:
            del self._growing[index], counted[index]

    def _took(self, request: Request) -> None:
        """Charge the prompt, once: what an eviction makes it compute again is no service."""
        self._last = request.tenant
        if request.index not in self._growing:  # its first seat: it stays there until it is gone for good
            self._inputs[request.tenant] = self._inputs.get(request.tenant, 0) + request.prompt_tokens
            self._growing[request.index] = request
            self._counted[request.index] = 0

    def _joins(self, request: Request) -> None:
        """A tenant nobody of whom waited comes back: its counter rises to the least of those who wait."""
        tenant = request.tenant
        waiting = self._lines.tenants()
        if not self.lift or tenant in waiting:
            return
        if waiting:
            floor = min(map(self.served, waiting))
        elif self._last is not None:
            floor = self.served(self._last)
        else:
            return
        short = floor - self.served(tenant)
        if short > 0:
            self._lifted[tenant] = self._lifted.get(tenant, 0.0) + short

    def _least_served(self, tenants: list[int]) -> int:
        return min(tenants, key=lambda tenant: (self.served(tenant), tenant)) if len(tenants) > 1 else tenants[0]

    # -- how long it holds ------------------------------------------------------------

    def _until_another_is_due(self, b: Batch, blocked: Request, verdict: Verdict | Until) -> Verdict | Until:
        """The least served tenant's request does not fit: another tenant may become the least served as tokens come."""
        tenants = self._lines.tenants()
        if len(tenants) == 1 or not self.output_weight:
            return verdict
        if self.skip_blocked:
            return ONCE
        rates = dict.fromkeys(tenants, 0)
        for request in b.seats.values():
            if request.tenant in rates:
                rates[request.tenant] += 1
        mine, ahead = rates[blocked.tenant], self.served(blocked.tenant)
        ticks = [
            (self.served(tenant) - ahead) / (self.output_weight * (mine - rates[tenant]))
            for tenant in tenants
            if rates[tenant] < mine
        ]
        if not ticks:
            return verdict
        soon = int(min(ticks))
        return verdict._replace(ticks=soon) if isinstance(verdict, Until) else Until(STEADY, ticks=soon)
