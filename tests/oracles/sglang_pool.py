"""Requests of the SGLang oracle and the slots that they fill: recordings into tokens, and one owner of every slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracles.sglang_rules import Rules
from tests.oracles.sglang_tree import Run, Token, Tree


@dataclass(eq=False)
class Request:
    """A request and where it stands. Lengths and counts in tokens."""

    id: str
    arrival_step: int
    tokens: list[Token]  # prompt and output, equal tokens are equal values
    prompt: int  # P
    limit: int  # M
    ends_at: int | None  # ends by itself after so many tokens of output; None: only by its limit
    ignore_eos: bool
    priority: int
    out: int = 0
    pre: int = 0
    end: int = 0
    kv: int = 0
    own_from: int = 0
    node: Run | None = None  # the run of the tree that it holds
    row: bool = False  # holds one of the max_running_requests rows
    done: bool = False
    seen: bool = False  # admitted at least once
    retractions: int = 0
    queued_at: int = 0  # stamp, not a step
    tried_full: int = 0  # `full` as of the last time that it was tried; 0: never

    @property
    def full(self) -> int:
        return self.prompt + self.out

    def known(self, n: int) -> list[Token]:
        """Its first `n` tokens."""
        assert n <= self.full
        return self.tokens[:n]


def requests_of(recording: Mapping[str, Any]) -> list[Request]:
    """The requests of a recording, in its order."""
    rows = {row["id"]: row for row in recording["requests"]}
    known: dict[str, list[Token]] = {}

    def tokens(name: str) -> list[Token]:
        if name not in known:
            row = rows[name]
            prompt: list[Token] = []
            for segment, n in row.get("prefix", []):
                shared = segment.removeprefix("req:")
                prompt += tokens(shared)[:n] if shared != segment else [(segment, at) for at in range(n)]
            prompt = prompt[: row["prompt_len"]]
            prompt += [(name, "prompt", at) for at in range(len(prompt), row["prompt_len"])]
            output: list[Token] = [(name, "output", at) for at in range(row.get("max_new", row["output_len"]))]
            if ends_at(row) is not None:
                output[row["output_len"] - 1] = "eos"
            known[name] = prompt + output
        return known[name]

    return [
        Request(
            id=name,
            arrival_step=row["arrival_step"],
            tokens=tokens(name),
            prompt=row["prompt_len"],
            limit=row.get("max_new", row["output_len"]),
            ends_at=ends_at(row),
            ignore_eos=row.get("ignore_eos", False),
            priority=row.get("priority", 0),
        )
        for name, row in rows.items()
    ]


def ends_at(row: Mapping[str, Any]) -> int | None:
    """The output length at which a request ends by itself, before its limit."""
    ends = "max_new" in row and row["output_len"] < row["max_new"] and not row.get("ignore_eos", False)
    return int(row["output_len"]) if ends else None


class OutOfSlotsError(Exception):
    """The real process dies here."""


class Pool:
    """The slots: free, in the tree, or a request's own. All changes of KV go through here."""

    def __init__(self, slots: int, page: int, cache: bool, rules: Rules) -> None:
        self.slots, self.page, self.rules = slots, page, rules
        self.tree = Tree(page, split=not rules.no_split_at_prompt) if cache else None
        self.free = slots

    def up(self, n: int) -> int:
        return -(-n // self.page) * self.page

    def down(self, n: int) -> int:
        return n // self.page * self.page

    def loose(self) -> int:
        return self.tree.loose() if self.tree else 0

    def room(self) -> int:
        return self.free + self.loose()

    def evict(self, wanted: int) -> bool:
        """Evict loose leaves until `wanted` slots are free; False if they are not even then."""
        while self.free < wanted and self.tree is not None:
            got = self.tree.evict_one(newest=self.rules.evict_newest)
            if not got:
                break
            self.free += got
        return self.free >= wanted

    def hit(self, r: Request) -> None:
        """Sets `pre` and the run to hold to what the cache knows of all but the last token of `r`."""
        r.tried_full = r.full
        r.pre, r.node = self.lookup(r, r.full - 1)

    def lookup(self, r: Request, n: int) -> tuple[int, Run | None]:
        if self.tree is None:
            return 0, None
        return self.tree.lookup(r.known(n), refresh=not self.rules.lookup_no_use)

    def hold(self, r: Request, by: int) -> None:
        if self.tree is not None and r.node is not None:
            self.tree.hold(r.node, by)

    def own(self, r: Request) -> int:
        """Slots that only `r` fills."""
        return self.up(r.kv) - r.own_from

    def take_prompts(self, taken: list[Request]) -> None:
        """Slots up to `end` of each; what is taken is known from `kv`."""
        wanted = sum(r.end - r.pre for r in taken)
        need = sum(self.up(r.end) - self.up(r.kv) for r in taken)
        if self.page > 1:
            wanted = need if self.rules.no_extra_page else wanted + self.page * len(taken)
        self.evict(wanted)
        if need > self.free:
            raise OutOfSlotsError
        self.free -= need
        for r in taken:
            r.kv = r.end

    def need(self, members: list[Request]) -> int:
        """Slots that one more token of each member takes."""
        return sum(self.page for r in members if r.kv % self.page == 0)

    def take_decodes(self, members: list[Request]) -> None:
        need = self.need(members)
        self.evict(need if self.rules.no_extra_page else self.page * len(members))
        assert need <= self.free
        self.free -= need
        for r in members:
            r.kv += 1

    def publish(self, r: Request, n: int) -> None:
        """The first `n` tokens of `r` go to the tree; it holds their end."""
        if self.tree is None:
            return
        there, node = self.tree.insert(r.known(n), r.prompt if n > r.prompt else None)
        assert there >= r.own_from
        self.free += there - r.own_from
        self.tree.hold(node, 1)
        self.hold(r, -1)
        r.node, r.own_from = node, self.down(n)

    def finish(self, r: Request) -> None:
        """Prompt and all but the last output token go to the tree, everything else of `r` is free."""
        if not self.rules.output_unpublished:
            self.publish(r, r.full - 1)
        self.release(r)

    def release(self, r: Request) -> None:
        """The own slots of `r` go free and its hold ends."""
        self.free += self.own(r)
        self.hold(r, -1)
        r.node, r.kv, r.own_from, r.pre, r.row = None, 0, 0, 0, False

    def check(self, alive: list[Request]) -> None:
        """Every slot has one owner, and every hold a holder."""
        cached = self.tree.size() if self.tree else 0
        own = [self.own(r) for r in alive if r.row]
        assert min(own, default=0) >= 0
        assert 0 <= self.free <= self.slots
        assert self.free + cached + sum(own) == self.slots, (self.free, cached, own)
        if self.tree is not None:
            assert self.tree.root.holds == sum(1 for r in alive if r.row)
            holders = [r.node for r in alive if r.row]
            for run in self.tree.runs():
                below = sum(1 for c in run.children for _ in range(c.holds)) + sum(1 for h in holders if h is run)
                assert run.holds == below
                assert run.tokens
                assert len(run.tokens) % self.page == 0
