"""What a scenario's `workload` may be: drawn, a mix of classes, conversations, a list written out, or a trace.

`WorkloadDescription` is the union of them for pydantic; `check` finds what no single field can show.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from batchsim.errors import Problem, problem
from batchsim.workload.arrivals import Arrivals, Closed, Piecewise, TraceArrivals, endless_rate
from batchsim.workload.fields import (
    MAX_REQUESTS,
    Count,
    Description,
    Flag,
    Identifier,
    Milliseconds,
    Name,
    Positive,
    PositiveMilliseconds,
    PositiveSeconds,
    Priority,
    Seconds,
    Tokens,
)
from batchsim.workload.lengths import Lengths

NAMED = 20
"""Rows of a list that a refusal names; the others are counted."""

Requests = Annotated[Count | None, Field(description="number of requests")]
Duration = Annotated[PositiveSeconds | None, Field(description="arrivals before this time, instead of `requests`")]
Cap = Annotated[
    Count | None, Field(description="a client's cap on requests under way; what waits for a slot is client queue")
]
MaxTokens = Annotated[
    Tokens | Lengths | None,
    Field(description="declared limit of an answer, a number or lengths; a longer drawn answer is cut to it"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo(Description):
    """Latency targets, milliseconds; a request is good when it meets all of them together."""

    ttft_ms: Annotated[PositiveMilliseconds | None, Field(description="time to first token")] = None
    tpot_ms: Annotated[PositiveMilliseconds | None, Field(description="time per output token after the first")] = None
    itl_ms: Annotated[PositiveMilliseconds | None, Field(description="every gap between tokens")] = None
    e2e_ms: Annotated[PositiveMilliseconds | None, Field(description="arrival to last token")] = None
    percentile: Annotated[
        float | None, Field(strict=True, gt=0, lt=100, allow_inf_nan=False, description="each target's, in `plan`")
    ] = None
    attainment: Annotated[
        float | None, Field(strict=True, gt=0, le=1, allow_inf_nan=False, description="joint share, in `plan`")
    ] = None

    def __post_init__(self) -> None:
        if self.ttft_ms is None and self.tpot_ms is None and self.itl_ms is None and self.e2e_ms is None:
            raise ValueError("give at least one of ttft_ms, tpot_ms, itl_ms and e2e_ms")
        if self.percentile is not None and self.attainment is not None:
            raise ValueError("give percentile or attainment, not both")

    def targets_ms(self) -> dict[str, float]:
        """The targets given, by metric: `ttft`, `tpot`, `itl`, `e2e`."""
        targets = {"ttft": self.ttft_ms, "tpot": self.tpot_ms, "itl": self.itl_ms, "e2e": self.e2e_ms}
        return {metric: target for metric, target in targets.items() if target is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass(Description):
    """A class of traffic in a mix."""

    name: Annotated[Name, Field(description="the class's name in every output")]
    share: Annotated[Positive, Field(le=1, description="its share of the requests; shares add up to 1")]
    prompt_tokens: Annotated[Lengths, Field(description="prompt lengths")]
    output_tokens: Annotated[Lengths, Field(description="answer lengths")]
    max_tokens: MaxTokens = None
    tenant: Annotated[Name, Field(description="who sends it")] = "default"
    priority: Annotated[Priority, Field(description="lower is more urgent")] = 0
    slo: Annotated[Slo | None, Field(description="targets of this class")] = None
    distinct_prompts: Annotated[
        Count | None, Field(description="prompts come from a pool of this size, which cycles")
    ] = None
    shared_prefix_tokens: Annotated[
        Tokens | None, Field(description="every prompt of the class starts with these shared tokens")
    ] = None
    cancel_ms: Annotated[Milliseconds | None, Field(description="clients give up that long after arrival")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn(Description):
    """One class of traffic, drawn."""

    kind: Literal["drawn"] = "drawn"
    arrivals: Annotated[Arrivals, Field(description="when requests are sent")]
    prompt_tokens: Annotated[Lengths, Field(description="prompt lengths")]
    output_tokens: Annotated[Lengths, Field(description="answer lengths")]
    requests: Requests = None
    duration_s: Duration = None
    max_tokens: MaxTokens = None
    tenant: Annotated[Name, Field(description="who sends it")] = "default"
    priority: Annotated[Priority, Field(description="lower is more urgent")] = 0
    distinct_prompts: Annotated[
        Count | None, Field(description="prompts come from a pool of this size, which cycles")
    ] = None
    shared_prefix_tokens: Annotated[
        Tokens | None, Field(description="every prompt starts with these shared tokens")
    ] = None
    cancel_ms: Annotated[Milliseconds | None, Field(description="clients give up that long after arrival")] = None
    max_concurrency: Cap = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix(Description):
    """Several classes of traffic, drawn; they share the arrivals."""

    kind: Literal["mix"] = "mix"
    mix: Annotated[tuple[TrafficClass, ...], Field(min_length=1, description="the classes")]
    arrivals: Annotated[Arrivals, Field(description="when requests are sent, all classes together")]
    requests: Requests = None
    duration_s: Duration = None
    max_concurrency: Cap = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions(Description):
    """Conversations: each turn's prompt is the whole conversation before it and new tokens, sent after the last answer."""

    kind: Literal["sessions"]
    sessions: Annotated[Count, Field(description="number of conversations")]
    arrivals: Annotated[Arrivals, Field(description="when conversations begin; not closed, not a trace")]
    turns: Annotated[Lengths, Field(description="turns of a conversation")]
    think_s: Annotated[Seconds, Field(description="from an answer to the next turn")] = 0.0
    prompt_tokens: Annotated[Lengths, Field(description="new tokens of a turn")]
    output_tokens: Annotated[Lengths, Field(description="answer lengths")]
    max_tokens: MaxTokens = None
    tenant: Annotated[Name, Field(description="who sends them")] = "default"
    priority: Annotated[Priority, Field(description="lower is more urgent")] = 0
    shared_prefix_tokens: Annotated[
        Tokens | None, Field(description="every conversation begins with these shared tokens, on top of the new ones")
    ] = None
    max_concurrency: Cap = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRequest(Description):
    """One request of a list."""

    id: Annotated[Identifier | None, Field(description="its name; absent: r0, r1, … by place")] = None
    arrival_ms: Annotated[Milliseconds | None, Field(description="arrival; a closed loop needs none")] = None
    prompt_tokens: Annotated[Tokens, Field(description="length of the prompt")]
    output_tokens: Annotated[Tokens, Field(description="tokens that it really generates")]
    max_tokens: Annotated[Tokens | None, Field(description="the limit that it declares")] = None
    priority: Annotated[Priority, Field(description="lower is more urgent")] = 0
    tenant: Annotated[Name, Field(description="who sends it")] = "default"
    session: Annotated[Identifier | None, Field(description="the conversation that it belongs to")] = None
    prefix: Annotated[
        tuple[tuple[Name, Tokens], ...],
        Field(description="leading segments [name, tokens], shared by name; `req:ID` is a request's prompt and output"),
    ] = ()
    cancel_ms: Annotated[Milliseconds | None, Field(description="the client gives up that long after arrival")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Description):
    """Requests written out."""

    kind: Literal["list"]
    requests: Annotated[
        tuple[ListedRequest, ...], Field(min_length=1, max_length=MAX_REQUESTS, description="the requests, in order")
    ]
    arrivals: Annotated[Closed | None, Field(description="a closed loop in place of the requests' own times")] = None
    max_concurrency: Cap = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile(Description):
    """Requests of a trace file."""

    kind: Literal["trace"]
    path: Annotated[Name, Field(description="the file, plain or gzip, relative to the scenario")]
    format: Annotated[
        Literal["auto", "azure", "mooncake", "burstgpt", "vllm", "batchsim"], Field(description="the file's format")
    ] = "auto"
    limit: Annotated[Count | None, Field(description="read only so many rows from the top")] = None
    speedup: Annotated[Positive, Field(description="arrival times are divided by it")] = 1.0
    skip_invalid: Annotated[Flag, Field(description="leave bad rows out and count them")] = False
    hash_block_tokens: Annotated[Tokens | None, Field(description="tokens of one hash id, format vllm")] = None
    arrivals: Annotated[Closed | None, Field(description="a closed loop in place of the trace's times")] = None
    max_concurrency: Cap = None


def _which(value: Any) -> str:
    """The tag of a workload: its `kind`; without one, `mix` where there is a mix, else `drawn`."""
    if not isinstance(value, Mapping):
        return str(getattr(value, "kind", "drawn"))
    kind = value.get("kind")
    return ("mix" if "mix" in value else "drawn") if kind is None else str(kind)


WorkloadDescription = Annotated[
    Annotated[Drawn, Tag("drawn")]
    | Annotated[Mix, Tag("mix")]
    | Annotated[Listed, Tag("list")]
    | Annotated[TraceFile, Tag("trace")]
    | Annotated[Sessions, Tag("sessions")],
    Discriminator(_which),
]


def check(workload: WorkloadDescription) -> list[Problem]:
    """What is wrong with a workload across its fields, paths from the scenario's root; empty if nothing is."""
    problems = []
    if workload.max_concurrency is not None and isinstance(workload.arrivals, Closed):
        rule = "a closed loop has its own concurrency; leave one of them out"
        problems.append(problem("workload.max_concurrency", workload.max_concurrency, rule))
    if isinstance(workload, Drawn | Mix):
        problems += _check_count(workload)
    if isinstance(workload, Mix):
        problems += _check_shares(workload)
    if isinstance(workload, Listed):
        problems += _check_list(workload)
    if isinstance(workload, Sessions) and isinstance(workload.arrivals, Closed | TraceArrivals):
        rule = "conversations begin by the clock; one of poisson, gamma, constant, burst, piecewise"
        problems.append(problem("workload.arrivals.kind", workload.arrivals.kind, rule))
    return problems


def _check_count(workload: Drawn | Mix) -> list[Problem]:
    arrivals, duration_s = workload.arrivals, workload.duration_s
    if workload.requests is not None:
        rule = "give requests or duration_s, not both"
        return [problem("workload.duration_s", duration_s, rule)] if duration_s is not None else []
    if isinstance(arrivals, Closed):
        rule = "missing: a closed loop needs the number of requests" + (
            "; duration_s does not bound it" * bool(duration_s)
        )
        return [problem("workload.requests", None, rule)]
    if endless_rate(arrivals):
        rate = getattr(arrivals, "rate_per_s", None)
        place = "workload.arrivals" if rate is None else "workload.arrivals.rate_per_s"
        rule = "all at once needs workload.requests: N; no duration bounds it"
        return [problem(place, arrivals.kind if rate is None else rate, rule)]
    if isinstance(arrivals, Piecewise):
        expected = arrivals.expected
    elif isinstance(arrivals, TraceArrivals):
        return []
    elif duration_s is None:
        return [problem("workload.requests", None, "missing: give requests: N or duration_s")]
    else:
        expected = duration_s * getattr(arrivals, "rate_per_s", 0.0)
    if expected > MAX_REQUESTS:
        rule = f"about {expected:.3g} arrivals fall in it; at most {MAX_REQUESTS} are possible"
        return [problem("workload.duration_s", duration_s, rule)]
    return []


def _check_shares(workload: Mix) -> list[Problem]:
    problems = []
    names = Counter(entry.name for entry in workload.mix)
    for at, entry in enumerate(workload.mix):
        if names[entry.name] > 1:
            problems.append(problem(f"workload.mix[{at}].name", entry.name, "every class needs a name of its own"))
    total = math.fsum(entry.share for entry in workload.mix)
    if abs(total - 1) > 1e-6:
        problems.append(problem("workload.mix", f"shares add up to {total:g}", "must add up to 1"))
    return problems


def ids_of(workload: Listed) -> list[str]:
    """Every request's name, in order."""
    return [f"r{at}" if entry.id is None else str(entry.id) for at, entry in enumerate(workload.requests)]


def _check_list(workload: Listed) -> list[Problem]:
    ids = ids_of(workload)
    first: dict[str, int] = {}
    for at, name in enumerate(ids):
        first.setdefault(name, at)
    problems: list[Problem] = []
    for at, entry in enumerate(workload.requests):
        place = f"workload.requests[{at}]"
        if first[ids[at]] != at:
            problems.append(problem(f"{place}.id", ids[at], f"is the id of workload.requests[{first[ids[at]]}] too"))
        if entry.arrival_ms is None and workload.arrivals is None:
            problems.append(problem(f"{place}.arrival_ms", None, "missing: only a closed loop needs no arrival times"))
        if entry.max_tokens is not None and entry.output_tokens > entry.max_tokens:
            rule = f"is above this request's max_tokens ({entry.max_tokens})"
            problems.append(problem(f"{place}.output_tokens", entry.output_tokens, rule))
        if entry.prefix:
            problems += _check_prefix(workload, at, first)
    if not problems and (circle := _circle(workload, first)):
        rule = "these requests' prefixes name each other in a circle"
        problems.append(problem("workload.requests", ", ".join(ids[at] for at in circle[:NAMED]), rule))
    if len(problems) > NAMED:
        problems = [*problems[:NAMED], Problem("workload.requests", f"and {len(problems) - NAMED} more problems")]
    return problems


def _check_prefix(workload: Listed, at: int, first: dict[str, int]) -> list[Problem]:
    entry, place = workload.requests[at], f"workload.requests[{at}].prefix"
    problems = []
    for k, (name, tokens) in enumerate(entry.prefix):
        if not name.startswith("req:"):
            continue
        other = first.get(name[4:])
        if other is None or other == at:
            rule = "a request cannot be its own prefix" if other == at else "no request has this id"
            problems.append(problem(f"{place}[{k}]", name, rule))
            continue
        whole = workload.requests[other].prompt_tokens + workload.requests[other].output_tokens
        if tokens > whole:
            problems.append(problem(f"{place}[{k}]", tokens, f"{name} has {whole} tokens, prompt and output"))
    total = sum(tokens for _, tokens in entry.prefix)
    if total > entry.prompt_tokens:
        problems.append(problem(place, f"{total} tokens", f"must be at most the prompt's {entry.prompt_tokens}"))
    return problems


def _circle(workload: Listed, first: dict[str, int]) -> list[int]:
    """Requests whose prefixes name each other in a circle, or that lean on such; found by peeling off the others."""
    leans = {
        at: {first[name[4:]] for name, _ in entry.prefix if name.startswith("req:")}
        for at, entry in enumerate(workload.requests)
        if entry.prefix
    }
    if all(other < at for at, others in leans.items() for other in others):
        return []
    carries: dict[int, list[int]] = {}
    for at, others in leans.items():
        for other in others:
            carries.setdefault(other, []).append(at)
    free = [at for at in range(len(workload.requests)) if not leans.get(at)]
    while free:
        for at in carries.get(done := free.pop(), ()):
            leans[at].discard(done)
            if not leans[at]:
                free.append(at)
    return [at for at, others in leans.items() if others]
