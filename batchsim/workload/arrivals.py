"""When requests are sent: descriptions of arrivals, each of which turns into an array of times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.random import Generator
from pydantic import Field

from batchsim.errors import InvalidInput, problem
from batchsim.workload.fields import (
    MAX_REQUESTS,
    Count,
    Description,
    FloatArray,
    Name,
    NotNegative,
    Positive,
    PositiveSeconds,
    Rate,
    Seconds,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(Description):
    """Independent arrivals: exponential gaps; the first comes after the first gap."""

    kind: Literal["poisson"]
    rate_per_s: Annotated[Rate, Field(description="mean arrivals per second; .inf with `requests`: all at 0")]

    def arrivals_s(self, rng: Generator, count: int | None, duration_s: float | None) -> FloatArray:
        """`count` arrival times in order, or those before `duration_s`; seconds from zero."""
        return _after_gaps(lambda n: rng.exponential(1 / self.rate_per_s, n), self.rate_per_s, count, duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma(Description):
    """Bursty or even arrivals: Gamma gaps; the first comes after the first gap."""

    kind: Literal["gamma"]
    rate_per_s: Annotated[Rate, Field(description="mean arrivals per second; .inf with `requests`: all at 0")]
    burstiness: Annotated[
        float,
        Field(
            strict=True,
            ge=0.001,
            allow_inf_nan=True,
            description="Gamma shape: 1 is Poisson, below 1 burstier, .inf even; gaps vary by 1/sqrt(burstiness)",
        ),
    ] = 1.0

    def arrivals_s(self, rng: Generator, count: int | None, duration_s: float | None) -> FloatArray:
        """`count` arrival times in order, or those before `duration_s`; seconds from zero."""
        shape = self.burstiness
        if math.isinf(shape):
            return _even(self.rate_per_s, 1, count, duration_s)
        scale = 1 / self.rate_per_s / shape
        return _after_gaps(lambda n: rng.gamma(shape, scale, n), self.rate_per_s, count, duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Description):
    """Even arrivals, one every 1/rate seconds; the first comes at 0."""

    kind: Literal["constant"]
    rate_per_s: Annotated[Rate, Field(description="arrivals per second; .inf with `requests`: all at 0")]

    def arrivals_s(self, rng: Generator, count: int | None, duration_s: float | None) -> FloatArray:
        """`count` arrival times in order, or those before `duration_s`; seconds from zero."""
        return _even(self.rate_per_s, 0, count, duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst(Description):
    """All requests at 0."""

    kind: Literal["burst"]

    def arrivals_s(self, rng: Generator, count: int | None, duration_s: float | None) -> FloatArray:
        """`count` zeros; needs a count."""
        if count is None:
            raise InvalidInput([problem("workload.requests", None, "missing: a burst needs the number of requests")])
        return np.zeros(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(Description):
    """A stretch of time with one rate."""

    duration_s: Annotated[PositiveSeconds, Field(description="length of the stretch, seconds")]
    rate_per_s: Annotated[NotNegative, Field(description="mean arrivals per second in it; 0 is a pause")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piecewise(Description):
    """Poisson arrivals whose rate changes from segment to segment; none come after the last."""

    kind: Literal["piecewise"]
    segments: Annotated[tuple[Segment, ...], Field(min_length=1, description="stretches of {duration_s, rate_per_s}")]

    def __post_init__(self) -> None:
        if not any(segment.rate_per_s > 0 for segment in self.segments):
            raise ValueError("at least one segment needs a rate above 0")

    @property
    def expected(self) -> float:
        """The mean number of arrivals in all segments."""
        return math.fsum(segment.duration_s * segment.rate_per_s for segment in self.segments)

    def arrivals_s(self, rng: Generator, count: int | None, duration_s: float | None) -> FloatArray:
        """The arrivals of all segments, the first `count` of them, or those before `duration_s`; seconds from zero.

        A unit-rate Poisson process in operational time, mapped back through the integral of the rate.
        Raises InvalidInput when fewer than `count` arrivals fall in the segments.
        """
        units = _after_gaps(lambda n: rng.exponential(1.0, n), 1.0, None, self.expected)
        if count is not None and len(units) < count:
            span_s = math.fsum(segment.duration_s for segment in self.segments)
            rule = f"only {len(units)} arrivals fall in the {span_s:g} s of workload.arrivals.segments; ask for fewer"
            raise InvalidInput([problem("workload.requests", count, rule)])
        edges_s = np.cumsum([0.0, *(segment.duration_s for segment in self.segments)])
        mass = np.cumsum([0.0, *(segment.duration_s * segment.rate_per_s for segment in self.segments)])
        place = np.minimum(np.searchsorted(mass, units, side="right"), len(self.segments)) - 1
        rates = np.array([segment.rate_per_s for segment in self.segments])
        flowing = rates[place] > 0
        into_s = np.where(flowing, (units - mass[place]) / np.where(flowing, rates[place], 1.0), 0.0)
        times: FloatArray = np.minimum(edges_s[place] + into_s, edges_s[place + 1])
        return times[:count] if count is not None else _before(times, duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(Description):
    """A fixed number of clients, each of which sends again some time after its last answer."""

    kind: Literal["closed"]
    concurrency: Annotated[Count, Field(description="clients; all send at 0")]
    think_s: Annotated[Seconds, Field(description="from an answer to the client's next request, seconds")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArrivals(Description):
    """Arrival times read from a trace file; lengths are drawn."""

    kind: Literal["trace"]
    path: Annotated[Name, Field(description="the trace file, relative to the scenario")]
    format: Annotated[
        Literal["auto", "azure", "mooncake", "burstgpt", "vllm", "batchsim"], Field(description="the file's format")
    ] = "auto"
    speedup: Annotated[Positive, Field(description="times are divided by it")] = 1.0
    skip_invalid: Annotated[bool, Field(strict=True, description="leave bad rows out and count them")] = False


Arrivals = Annotated[
    Poisson | Gamma | Constant | Burst | Piecewise | Closed | TraceArrivals, Field(discriminator="kind")
]

KINDS: tuple[type, ...] = (Poisson, Gamma, Constant, Burst, Piecewise, Closed, TraceArrivals)
"""Every kind of arrivals, in the order in which `batchsim list arrivals` shows them."""


def endless_rate(arrivals: Arrivals) -> bool:
    """Whether all requests come at once, so that no duration can bound their number."""
    return isinstance(arrivals, Burst) or math.isinf(getattr(arrivals, "rate_per_s", 0.0))


def _even(rate_per_s: float, first: int, count: int | None, duration_s: float | None) -> FloatArray:
    if count is None:
        assert duration_s is not None
        count = min(math.ceil(duration_s * rate_per_s) + 1, MAX_REQUESTS + 2)
    times: FloatArray = np.arange(first, first + count) / rate_per_s
    return _before(times, duration_s)


def _after_gaps(
    gaps: Callable[[int], FloatArray], rate_per_s: float, count: int | None, duration_s: float | None
) -> FloatArray:
    """Running sums of gaps. However many are asked for, the first ones are the same: gaps are drawn in order."""
    if count is not None:
        return _before(np.cumsum(gaps(count)), duration_s)
    assert duration_s is not None
    expected = duration_s * rate_per_s
    drawn = gaps(int(expected + 6 * math.sqrt(expected)) + 64)
    times = np.cumsum(drawn)
    while times[-1] < duration_s:
        if len(drawn) > MAX_REQUESTS:
            rule = f"more than {MAX_REQUESTS} arrivals fall in it"
            raise InvalidInput([problem("workload.duration_s", duration_s, rule)])
        drawn = np.concatenate([drawn, gaps(len(drawn))])
        times = np.cumsum(drawn)
    return _before(times, duration_s)


def _before(times: FloatArray, duration_s: float | None) -> FloatArray:
    return times if duration_s is None else times[: np.searchsorted(times, duration_s, side="left")]
