"""A request while it lives in the simulator: what it asks for, and how far it has come."""

from __future__ import annotations

from typing import Any

from batchsim.records import NEVER


class Clock:
    """The decode clock of one batch: how many steps in which somebody decoded have passed."""

    __slots__ = ("ticks",)

    def __init__(self) -> None:
        self.ticks = 0


class Request:
    """One request on a replica.

    Schedulers read the plain attributes and the properties and change nothing. What a request really generates is
    hidden: a scheduler that declares itself an oracle asks `Batch.output_tokens`.

    While a request decodes with the others of its batch (`base` is set) its counters are not stored: it has emitted
    `ticks - base` tokens, so a step that moves 256 requests changes one number.
    """

    __slots__ = (
        "_computed",
        "_emitted",
        "_rank",
        "admitted_ns",
        "arrival_ns",
        "base",
        "blocks",
        "cancelled",
        "clock",
        "declared",
        "ended",
        "ending",
        "evicted_ns",
        "finished_ns",
        "first_token_ns",
        "fresh_ns",
        "held",
        "hit_tokens",
        "hold_blocks",
        "id",
        "index",
        "keyed",
        "last_token_ns",
        "limit",
        "lost_tokens",
        "max_tokens",
        "odd_gap_ns",
        "path",
        "preemptions",
        "prefix_hit_tokens",
        "priority",
        "prompt_tokens",
        "published",
        "queued_ns",
        "ran_ns",
        "recomputed_tokens",
        "residue",
        "resume_hit_tokens",
        "scheduled_ns",
        "seat",
        "seated_ns",
        "session",
        "span_from",
        "stamp",
        "tenant",
        "traffic_class",
        "waited_ns",
        "wanted_tokens",
    )

    stamp: int  # of its last joining of the group; like the next three, set when it first applies
    residue: int
    span_from: int
    seated_ns: int

    def __init__(
        self,
        index: int,
        id: str,  # noqa: A002 - the contract's word
        arrival_ns: int,
        prompt_tokens: int,
        limit: int,
        max_tokens: int,
        wanted_tokens: int | None = None,
        declared: bool = True,
        priority: int = 0,
        tenant: int = 0,
        traffic_class: int = 0,
        session: int = -1,
    ) -> None:
        self.index = index  # place in the workload
        self.id = id
        self.arrival_ns = arrival_ns
        self.scheduled_ns = arrival_ns
        self.prompt_tokens = prompt_tokens
        self.limit = limit  # tokens that it will emit; for the engine alone
        self.wanted_tokens = (
            limit if wanted_tokens is None else wanted_tokens
        )  # with no max_model_len in the way; for the front door
        self.max_tokens = max_tokens  # tokens that it may emit: the declared limit, else what the model and pool leave
        self.declared = declared  # whether max_tokens was written by the client
        self.priority = priority
        self.tenant = tenant
        self.traffic_class = traffic_class
        self.session = session
        self._rank: Any = None

        self.clock: Clock | None = None  # the replica's, once it is there
        self._emitted = 0
        self._computed = 0
        self.base: int | None = None  # set while it decodes with the group
        self.blocks = 0  # held, while it is not in the group
        self.hold_blocks = 0  # reserved at admission
        self.seat = -1  # admissions are numbered
        self.ended = False
        self.ending = False  # its last token is in flight: it holds its seat, but computes no more
        self.cancelled = False
        self.hit_tokens = 0
        self.path: Any = None  # the prefix cache's: its contents, the runs of cached blocks it holds,
        self.held: Any = None
        self.keyed = 0  # how many blocks those are,
        self.published = 0  # and the prompt tokens that others can hit

        self.admitted_ns = NEVER
        self.first_token_ns = NEVER
        self.finished_ns = NEVER
        self.last_token_ns = NEVER
        self.fresh_ns = NEVER  # when it joined the group, if that was not the end of a tick
        self.queued_ns = arrival_ns
        self.evicted_ns = NEVER  # last
        self.waited_ns = 0
        self.ran_ns = 0
        self.odd_gap_ns = 0
        self.preemptions = 0
        self.lost_tokens = 0
        self.recomputed_tokens = 0
        self.prefix_hit_tokens = 0
        self.resume_hit_tokens = 0

    @property
    def emitted_tokens(self) -> int:
        """Tokens streamed so far."""
        if self.base is None or self.clock is None or self.ended:
            return self._emitted
        return self.clock.ticks - self.base

    @property
    def computed_tokens(self) -> int:
        """Tokens whose keys and values stand in the cache."""
        if self.base is None:
            return self._computed
        return self.prompt_tokens + self.emitted_tokens - 1

    @property
    def known_tokens(self) -> int:
        """Prompt and emitted tokens: what has to be computed before the next token can come."""
        return self.prompt_tokens + self.emitted_tokens

    @property
    def remaining_tokens(self) -> int:
        """Tokens still to compute before its next token: 1 for a request that decodes."""
        return 1 if self.base is not None else self.prompt_tokens + self._emitted - self._computed

    @property
    def rank(self) -> Any:
        """Orders requests by arrival, then by place in the file."""
        return (self.arrival_ns, self.index) if self._rank is None else self._rank

    def __repr__(self) -> str:
        return f"<{self.id}: prompt {self.prompt_tokens}, computed {self.computed_tokens}, out {self.emitted_tokens}>"
