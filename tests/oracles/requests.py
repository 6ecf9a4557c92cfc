"""The requests of a recording, and what the vLLM V1 oracle keeps of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.oracles.pool import Key


@dataclass(eq=False)
class Request:
    """A request and where it stands. Lengths and counts in tokens."""

    id: str
    place: int  # in the list of requests
    arrival_step: int
    arrival: float  # what ties of priority are broken by
    priority: int
    prompt: int
    output: int  # it ends after so many tokens ...
    max_tokens: int  # ... and this many are its limit
    abort_step: int | None
    tokens: list[int]  # prompt and output, as numbers: equal tokens have equal numbers
    computed: int = 0
    out: int = 0
    blocks: list[int] = field(default_factory=list)
    published: int = 0
    holders: int = 0  # async: tokens scheduled, but not yet seen
    inflight: int = 0  # async: tokens that an unprocessed batch will bring
    stale: int = 0  # async: those of them that were scheduled before a preemption
    admitted: bool = False  # at least once
    done: bool = False

    @property
    def known(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return self.prompt + self.out

    def key(self, i: int, block_size: int) -> Key:
        """What block i is called once it is full: all the tokens up to its end."""
        return tuple(self.tokens[: (i + 1) * block_size])


def read_requests(rows: list[dict[str, Any]]) -> list[Request]:
    """The requests of a recording, in the order listed, with their tokens made out."""
    numbers: dict[tuple[str, int], int] = {}
    by_id = {row["id"]: row for row in rows}
    arrival_order = sorted(range(len(rows)), key=lambda i: rows[i]["arrival_step"])
    place_in_time = {i: place for place, i in enumerate(arrival_order)}
    requests = []
    for i, row in enumerate(rows):
        total = row["prompt_len"] + row["output_len"]
        names = [token(by_id, row["id"], position) for position in range(total)]
        requests.append(
            Request(
                id=row["id"],
                place=i,
                arrival_step=row["arrival_step"],
                arrival=row.get("arrival_time", place_in_time[i]),
                priority=row.get("priority", 0),
                prompt=row["prompt_len"],
                output=row["output_len"],
                max_tokens=row["output_len"] + (1000 if row.get("stop") == "eos" else 0),
                abort_step=row.get("abort_step"),
                tokens=[numbers.setdefault(name, len(numbers)) for name in names],
            )
        )
    return requests


def token(by_id: Mapping[str, Mapping[str, Any]], owner: str, position: int) -> tuple[str, int]:
    """The name of a request's token: its place in a shared segment, or its own place in its own request."""
    row = by_id[owner]
    start = 0
    for segment, length in row.get("prefix", []):
        if position < min(start + length, row["prompt_len"]):
            if segment.startswith("req:"):
                return token(by_id, segment[4:], position - start)
            return ("segment " + segment, position - start)
        start += length
    return ("request " + owner, position)
