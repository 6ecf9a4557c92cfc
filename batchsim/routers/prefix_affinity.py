"""Requests go where their prefix was sent before, unless that replica is too busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from batchsim.request import Request
from batchsim.router import Load, Outlook, Retry, by_requests
from batchsim.routers._radix import Radix


@dataclass
class PrefixAffinity:
    """Requests go where their prefix was sent before: as SGLang's gateway (`threshold`) or Dynamo's router (`cost`).

    `threshold`: the longest match if it is more than cache_threshold of the prompt, else the least loaded, and of
    equals the one that was sent the fewest different tokens; with unbalanced load the least loaded, whatever matches.
    `cost`: the least of prefill_load_scale * (prompt blocks - overlap_score_credit * matched blocks) + blocks of the
    requests there. The router knows what it sent, not what the caches have evicted since.
    """

    mode: Annotated[Literal["threshold", "cost"], Field(description="how a match is weighed against load")] = (
        "threshold"
    )
    cache_threshold: Annotated[float, Field(ge=0, le=1, description="share of the prompt that a match must exceed")] = (
        0.3
    )
    balance_abs_threshold: Annotated[
        int, Field(ge=0, description="unbalanced: the most requests exceed the fewest by more than this,")
    ] = 64
    balance_rel_threshold: Annotated[
        float, Field(ge=1, allow_inf_nan=False, description="and by more than this factor")
    ] = 1.5
    prefill_load_scale: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="weight of a block to prefill, against one being decoded")
    ] = 1.0
    overlap_score_credit: Annotated[
        float, Field(ge=0, le=1, description="how much of a matched block need not be computed")
    ] = 1.0
    temperature: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="0: the least cost; above: drawn, as a softmax of the costs"),
    ] = 0.0
    retry: Retry = 0

    def begin(self, outlook: Outlook) -> None:
        """Nothing was sent yet."""
        self._rng = outlook.rng
        self._contents = outlook.contents
        self._tree = Radix(outlook.replicas)

    def route(self, request: Request, replicas: Sequence[Load]) -> Load:
        """Choose, and remember."""
        shares = self._contents.shares(request.index)
        path = self._contents.path(request.index) if shares else None
        matches = {} if path is None else self._tree.match(path, request.prompt_tokens)
        choose = self._by_threshold if self.mode == "threshold" else self._by_cost
        chosen = choose(request, replicas, matches)
        if path is not None:
            whole = request.index in self._contents.followed
            known = request.prompt_tokens if whole else min(request.prompt_tokens, path.shared_tokens)
            self._tree.insert(path, known, chosen.number)
        return chosen

    def _by_threshold(self, request: Request, replicas: Sequence[Load], matches: dict[int, int]) -> Load:
        loads = [load.requests for load in replicas]
        most, fewest = max(loads), min(loads)
        if most - fewest > self.balance_abs_threshold and most > self.balance_rel_threshold * fewest:
            return min(replicas, key=by_requests)
        best = max(replicas, key=lambda load: (matches.get(load.number, 0), -load.requests, -load.number))
        if matches.get(best.number, 0) > self.cache_threshold * request.prompt_tokens:
            return best
        return min(replicas, key=lambda load: (load.requests, self._tree.tokens[load.number], load.number))

    def _by_cost(self, request: Request, replicas: Sequence[Load], matches: dict[int, int]) -> Load:
        costs = [self._cost(request, load, matches.get(load.number, 0)) for load in replicas]
        spread = max(costs) - min(costs)
        if not self.temperature or not spread:
            return replicas[costs.index(min(costs))]
        weights = np.exp((min(costs) - np.array(costs)) / (spread * self.temperature))
        edges = np.cumsum(weights)
        return replicas[
            min(int(np.searchsorted(edges, self._rng.random() * edges[-1], side="right")), len(replicas) - 1)
        ]

    def _cost(self, request: Request, load: Load, matched: int) -> float:
        blocks = -(-request.prompt_tokens // load.block)
        to_prefill = blocks - self.overlap_score_credit * (matched // load.block)
        return self.prefill_load_scale * to_prefill + -(-load.tokens // load.block)
