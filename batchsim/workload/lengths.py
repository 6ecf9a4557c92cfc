"""How long prompts and answers are: descriptions of lengths, each of which turns into an array of token counts.

Every kind yields whole numbers of at least 1 (real draws are rounded to the nearest). A draw outside `min` and `max`
is drawn again, so the mean that a kind is given holds before that cut. Draws are used in order: asking for more
requests keeps the lengths of the first ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from batchsim.errors import InvalidInput, Problem
from batchsim.workload.columns import Int64
from batchsim.workload.fields import MAX_TOKENS, Description, Name, Positive, Tokens

_Z99 = NormalDist().inv_cdf(0.99)
_HOPELESS_AFTER = 200_000  # draws; with fewer than one in ten thousand kept, the bounds are taken for a mistake
_HOPELESS_SHARE = 1e-4

Min = Annotated[Tokens | None, Field(description="shortest length kept, tokens; a draw below it is drawn again")]
Max = Annotated[Tokens | None, Field(description="longest length kept, tokens; a draw above it is drawn again")]
Mean = Annotated[
    float,
    Field(strict=True, gt=0, le=MAX_TOKENS, allow_inf_nan=False, description="mean length before any cut, tokens"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(Description):
    """Always the same length."""

    kind: Literal["fixed"]
    tokens: Annotated[Tokens, Field(description="the length, tokens")]
    min: Min = None
    max: Max = None

    def __post_init__(self) -> None:
        _check_bounds(self, self.tokens, self.tokens)

    def draw(self, count: int, rng: Generator, base_dir: Path, path: str) -> Int64:
        """`count` equal lengths, tokens."""
        return np.full(count, self.tokens, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform(Description):
    """Whole numbers from floor(mean (1 - range_ratio)) to ceil(mean (1 + range_ratio)), all as likely."""

    kind: Literal["uniform"]
    mean: Mean
    range_ratio: Annotated[
        float, Field(strict=True, ge=0, le=1, allow_inf_nan=False, description="half the width over the mean, 0 to 1")
    ]
    min: Min = None
    max: Max = None

    def __post_init__(self) -> None:
        _check_bounds(self, *self.bounds)

    @property
    def bounds(self) -> tuple[int, int]:
        """The shortest and the longest length, in exact decimals (100 and 0.1 give 90 and 110), at least 1."""
        mean, ratio = Decimal(str(self.mean)), Decimal(str(self.range_ratio))
        low, high = math.floor(mean * (1 - ratio)), math.ceil(mean * (1 + ratio))
        return max(low, 1), max(high, 1)

    def draw(self, count: int, rng: Generator, base_dir: Path, path: str) -> Int64:
        """`count` lengths, tokens."""
        low, high = self.bounds
        return _kept(lambda n: rng.integers(low, high + 1, n), count, self, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(Description):
    """A long tail: the logarithm is normal; given by its mean and one of its 99th percentile and sigma."""

    kind: Literal["lognormal"]
    mean: Mean
    p99: Annotated[
        Positive | None, Field(description="99th percentile before any cut, tokens; 1 to 14.9 times the mean")
    ] = None
    sigma: Annotated[
        float | None,
        Field(strict=True, ge=0, le=10, allow_inf_nan=False, description="standard deviation of the logarithm"),
    ] = None
    min: Min = None
    max: Max = None

    def __post_init__(self) -> None:
        _check_bounds(self, 1, MAX_TOKENS)
        if (self.p99 is None) == (self.sigma is None):
            raise ValueError("give exactly one of p99 and sigma")
        if self.p99 is not None and not 0 <= 2 * math.log(self.p99 / self.mean) <= _Z99**2:
            largest = math.exp(_Z99**2 / 2)
            raise ValueError(
                f"p99 {self.p99:g} is {self.p99 / self.mean:.4g} times the mean {self.mean:g}; "
                f"a lognormal allows 1 to {largest:.4g} times"
            )

    @property
    def shape(self) -> float:
        """Sigma, given or found: p99 = mean exp(z sigma - sigma^2 / 2) has two solutions; this is the smaller."""
        if self.sigma is not None:
            return self.sigma
        assert self.p99 is not None
        return _Z99 - math.sqrt(max(_Z99**2 - 2 * math.log(self.p99 / self.mean), 0.0))

    def draw(self, count: int, rng: Generator, base_dir: Path, path: str) -> Int64:
        """`count` lengths, tokens."""
        mu = math.log(self.mean) - self.shape**2 / 2
        return _kept(lambda n: rng.lognormal(mu, self.shape, n), count, self, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential(Description):
    """Exponential lengths, rounded to whole tokens."""

    kind: Literal["exponential"]
    mean: Mean
    min: Min = None
    max: Max = None

    def __post_init__(self) -> None:
        _check_bounds(self, 1, MAX_TOKENS)

    def draw(self, count: int, rng: Generator, base_dir: Path, path: str) -> Int64:
        """`count` lengths, tokens."""
        return _kept(lambda n: rng.exponential(self.mean, n), count, self, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometric(Description):
    """Geometric lengths from 1: every further token is as likely as the one before."""

    kind: Literal["geometric"]
    mean: Annotated[
        float,
        Field(strict=True, ge=1, le=MAX_TOKENS, allow_inf_nan=False, description="mean length before any cut, tokens"),
    ]
    min: Min = None
    max: Max = None

    def __post_init__(self) -> None:
        _check_bounds(self, 1, MAX_TOKENS)

    def draw(self, count: int, rng: Generator, base_dir: Path, path: str) -> Int64:
        """`count` lengths, tokens."""
        return _kept(lambda n: rng.geometric(1 / self.mean, n), count, self, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical(Description):
    """Lengths drawn, with replacement, from a column of a CSV or JSONL file."""

    kind: Literal["empirical"]
    path: Annotated[Name, Field(description="the file, relative to the scenario")]
    column: Annotated[Name, Field(description="the column of whole numbers to draw from")]
    min: Min = None
    max: Max = None

    def __post_init__(self) -> None:
        _check_bounds(self, 1, MAX_TOKENS)

    def draw(self, count: int, rng: Generator, base_dir: Path, path: str) -> Int64:
        """`count` lengths, tokens; raises InvalidInput for a file that cannot be read or has a bad row."""
        from batchsim.workload.traces import read_lengths

        pool = read_lengths(base_dir / self.path, self.column, f"{path}.path")
        return _kept(lambda n: pool[rng.integers(0, len(pool), n)], count, self, path)


Lengths = Annotated[Fixed | Uniform | Lognormal | Exponential | Geometric | Empirical, Field(discriminator="kind")]

KINDS: tuple[type, ...] = (Fixed, Uniform, Lognormal, Exponential, Geometric, Empirical)
"""Every kind of lengths."""


def _check_bounds(lengths: Any, shortest: int, longest: int) -> None:
    low, high = lengths.min or 1, lengths.max or MAX_TOKENS
    if low > high:
        raise ValueError(f"min {low} is above max {high}")
    if shortest > high or longest < low:
        raise ValueError(f"no length from {shortest} to {longest} lies between min {low} and max {high}")


def _kept(draw: Callable[[int], NDArray[Any]], count: int, bounds: Any, path: str) -> Int64:
    """The first `count` draws, rounded, that lie within the bounds."""
    low, high = bounds.min or 1, bounds.max or MAX_TOKENS
    parts: list[Int64] = []
    kept = drawn = 0
    while kept < count:
        size = max(count - kept, 256)
        values = np.rint(draw(size))
        values = values[(values >= low) & (values <= high)].astype(np.int64)
        parts.append(values)
        kept, drawn = kept + len(values), drawn + size
        if drawn >= _HOPELESS_AFTER and kept < _HOPELESS_SHARE * drawn:
            rule = f"{kept} of {drawn} draws lie between min {low} and max {high}; widen them or change the mean"
            raise InvalidInput([Problem(path, rule)])
    return np.concatenate(parts)[:count] if parts else np.zeros(0, np.int64)
