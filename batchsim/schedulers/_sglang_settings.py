"""SGLang's own parameters, release 0.5.23: server arguments by name, environment variables without SGLANG_."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass
class Settings:
    """What a server is started with."""

    max_running_requests: Annotated[
        int | None,
        Field(ge=1, description="requests that run at once; absent: 2,048 to 4,096, at most half the pool's tokens"),
    ] = None
    max_prefill_tokens: Annotated[
        int, Field(ge=1, description="tokens of a prefill pass after which nobody is added")
    ] = 16384
    chunked_prefill_size: Annotated[
        int, Field(ge=-1, description="longest piece of prompts in a step, tokens; -1: prompts are not cut")
    ] = 8192
    enable_mixed_chunk: Annotated[bool, Field(description="decodes ride along in a prefill batch")] = False
    page_size: Annotated[
        int, Field(ge=1, description="tokens of a KV page; kv_cache gives the size of the pool in tokens")
    ] = 1
    schedule_policy: Annotated[
        Literal["fcfs", "lpm", "lof"],
        Field(description="order of the queue: as they came, longest cached prefix first, longest output first"),
    ] = "fcfs"
    schedule_conservativeness: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False, description="scales the share of its limit that a running request is held to"),
    ] = 1.0
    disable_radix_cache: Annotated[bool, Field(description="forget the KV of prompts and answers at once")] = False
    disable_overlap_schedule: Annotated[bool, Field(description="plan a step when the one before has ended")] = False
    prefill_max_requests: Annotated[int | None, Field(ge=1, description="requests of a prefill batch")] = None
    prefill_decode_interval: Annotated[int, Field(ge=0, description="steps after a prefill in which nobody enters")] = 0
    retraction_policy: Annotated[
        Literal["length", "priority"], Field(description="who is retracted first: fewest outputs, or least urgent")
    ] = "length"
    enable_priority_scheduling: Annotated[
        bool, Field(description="order by priority, lower is more urgent; it may preempt")
    ] = False
    priority_scheduling_preemption_threshold: Annotated[
        int, Field(ge=0, description="a running request gives way to one that is more urgent by more than this")
    ] = 10
    max_queued_requests: Annotated[
        int | None, Field(ge=1, description="waiting requests; beyond it they are rejected")
    ] = None
    ignore_eos: Annotated[
        bool, Field(description="all are sent with ignore_eos: their limits are taken at their word")
    ] = False
    init_new_token_ratio: Annotated[
        float, Field(gt=0, le=1, description="share of its limit that a running request is held to")
    ] = 0.7
    min_new_token_ratio_factor: Annotated[
        float, Field(gt=0, le=1, description="what is left of that share at the end")
    ] = 0.14
    new_token_ratio_decay_steps: Annotated[int, Field(ge=1, description="decode steps to that end")] = 600
    retract_decode_steps: Annotated[
        int, Field(ge=0, description="tokens each survivor of a retraction is given ahead")
    ] = 20
    clip_max_new_tokens_estimation: Annotated[int, Field(ge=1, description="tokens of a limit that count at most")] = (
        4096
    )
    in_batch_prefix_caching_check_threshold: Annotated[
        int, Field(ge=0, description="lpm: hits of at most so many tokens are compared with others waiting")
    ] = 32
    in_batch_prefix_caching_deprioritize_threshold: Annotated[
        int, Field(ge=0, description="lpm: who shares so many tokens with one before it is set back")
    ] = 32
