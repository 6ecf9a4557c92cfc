"""Shortest job first, by the true length of the answer, a prediction with a stated error, or the declared limit."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from math import exp
from statistics import NormalDist
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import Express, Until, Verdict
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

_NORMAL = NormalDist()


@dataclass
class Sjf:
    """Continuous batching that admits the request with the shortest (predicted) answer first."""

    predictor: Annotated[
        Literal["oracle", "noisy", "limit"],
        Field(description="what it sorts by: true length, true length with an error (both oracles), max_tokens"),
    ] = "oracle"
    error: Annotated[
        float,
        Field(ge=0, le=10, allow_inf_nan=False, description="noisy: deviation of log(predicted / true length)"),
    ] = 0.5
    predictor_seed: Annotated[int, Field(ge=0, description="noisy: which errors are drawn")] = 0
    aging_tokens_per_s: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="by how much a second of waiting shortens the length")
    ] = 0.0
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
        self._batch: Batch | None = None

    @property
    def oracle(self) -> bool:
        """Whether it reads output lengths."""
        return self.predictor != "limit"

    @property
    def caching(self) -> bool:
        """Whether the blocks remember their contents."""
        return self.enable_prefix_caching

    def express(self, blocks: int) -> Express | None:
        """Only the order of the queue is its own."""
        return self._stepper.express()

    def refuse(self, request: Request, b: Batch) -> str | None:
        """A reason to reject an arrival."""
        self._batch = b
        return self._stepper.refuse(request, b)

    def order(self, request: Request) -> tuple[float, int]:
        """Shortest first. Ageing at a constant rate is an order that time does not change."""
        return self._length(request) + self.aging_tokens_per_s * request.arrival_ns / 1e9, request.prompt_tokens

    def plan(self, b: Batch) -> Verdict | Until:
        """Running requests, then the queue from the shortest."""
        stepper = self._stepper
        stepper.door.expire(b)
        budget = stepper.go_on(b, newest)
        if b.queue and not b.step.preempted:
            stepper.fill(b, budget)
        return stepper.verdict(b)

    def _length(self, request: Request) -> float:
        """Output tokens that it is taken to need."""
        if self.predictor == "limit":
            return request.max_tokens
        assert self._batch is not None, "an arrival is refused or not before it is queued"
        true = self._batch.output_tokens(request)
        if self.predictor == "oracle":
            return true
        return true * exp(self.error * _draw(self.predictor_seed, request.id))


def _draw(seed: int, name: str) -> float:
    """A standard normal number that depends on the seed and the request's name alone."""
    digest = blake2b(f"{seed}/{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return _NORMAL.inv_cdf((int.from_bytes(digest, "little") + 0.5) / 2**64)
