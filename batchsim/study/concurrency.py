"""How many requests fit in a KV pool, and how many there are: two numbers that are neither rates nor each other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Room:
    """Concurrent requests (not requests a second) that one KV pool holds at two lengths."""

    pool_tokens: int
    longest_tokens: int
    mean_tokens: float

    @property
    def at_longest(self) -> float:
        """Worst case: every request as long as `max_model_len` allows."""
        return self.pool_tokens / self.longest_tokens

    @property
    def at_mean(self) -> float:
        """Every request at the mean context of the traffic."""
        return self.pool_tokens / self.mean_tokens

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, labelled."""
        return asdict(self) | {
            "concurrent_requests_at_max_model_len": self.at_longest,
            "concurrent_requests_at_mean_context": self.at_mean,
        }


@dataclass(frozen=True, slots=True)
class InUse:
    """Little's law: a rate times the time that each stays is how many are there."""

    rate_per_s: float
    stay_s: float
    mean_tokens: float
    bytes_per_token: int | None

    @property
    def requests(self) -> float:
        """Concurrent requests, over the whole fleet."""
        return self.rate_per_s * self.stay_s

    @property
    def kv_tokens(self) -> float:
        """Tokens in the KV caches on average, before any headroom."""
        return self.requests * self.mean_tokens

    @property
    def kv_gib(self) -> float | None:
        """The same in GiB, of the GPUs that share a replica together where bytes_per_token counts them together."""
        return None if self.bytes_per_token is None else self.kv_tokens * self.bytes_per_token / GIB

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, labelled."""
        return asdict(self) | {
            "concurrent_requests": self.requests, "kv_tokens": self.kv_tokens, "kv_gib": self.kv_gib
        }  # fmt: skip
