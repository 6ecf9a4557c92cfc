"""The rules of the other engines' oracles that can be broken one at a time, as `rules` has them for vLLM V1."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class SarathiRules:
    """Deviations of the oracle `sarathi`, in any of its four policies."""

    decodes_are_free: bool = False  # chunk_size counts prompt tokens alone
    back_in_the_same_step: bool = False  # an evicted request may enter at once
    decodes_ride_along: bool = False  # vllm: beside prompts, too
    ignoring_costs_no_step: bool = False  # vllm: a step that drops a prompt decodes all the same
    static_lets_in: bool = False  # a batch is joined while it runs
    evicts_at_need_only: bool = False  # none is free, but none is needed
    next_gives_way: bool = False  # not the last, but the next in line is evicted
    evicted_to_back: bool = False
    output_not_computed_again: bool = False
    nothing_reserved: bool = False  # orca and static hold the prompt's blocks alone
    watermark_rounded_up: bool = False
    no_watermark: bool = False


@dataclass(frozen=True, slots=True)
class TgiRules:
    """Deviations of the oracle `tgi`, in either mode."""

    no_block_kept_back: bool = False  # of max_batch_total_tokens
    one_more_here: bool = False  # than max_concurrent_requests
    last_token_held: bool = False  # memory for prompt + max_tokens
    budget_not_rounded: bool = False  # to whole blocks
    prefill_not_counted: bool = False  # among the steps of patience
    prefill_after_prefill: bool = False  # no decode is owed in between
    ratio_rounded_up: bool = False
    patience_one_longer: bool = False
    skip_blocked_head: bool = False
    last_prompt_whole: bool = False  # the last to enter is not cut


@dataclass(frozen=True, slots=True)
class TensorrtRules:
    """Deviations of the oracle `tensorrt`, in any policy."""

    static_lets_in: bool = False
    skip_blocked_head: bool = False
    one_block_kept_back: bool = False
    oldest_behind_paused: bool = False  # not the one that started last
    paused_blocks_come_late: bool = False  # in the next step
    room_for_one_more: bool = False  # a new prompt asks for its first output, too
    paused_to_back: bool = False
    generations_are_free: bool = False  # of the token budget
    walk_goes_on: bool = False  # past a prompt that does not fit unchunked
    chunk_not_rounded: bool = False
    two_blocks_a_turn: bool = False  # EQUAL_PROGRESS
    blocks_as_computed: bool = False  # a prompt's first chunk holds its own blocks alone


@dataclass(frozen=True, slots=True)
class V0Rules:
    """Deviations of the oracles `vllm_v0` and, from `chunks_always_first` on, of its alternating form."""

    watermark_rounded_up: bool = False
    watermark_when_idle_only: bool = False
    always_released_early: bool = False
    decodes_ride_along: bool = False
    delay_reached: bool = False  # at exactly factor times the last prompt step, too
    delay_when_idle: bool = False
    limit_each: bool = False  # of tokens for each prompt, not for all of a step
    one_more_seat: bool = False
    one_makes_way: bool = False  # only one running request a step
    way_for_seats_only: bool = False  # not for blocks
    next_gives_way: bool = False
    evicted_to_back: bool = False
    chunks_always_first: bool = False
    running_chunk_alone: bool = False  # nobody enters beside one
    prompts_keep_blocks: bool = False


def mutants(rules: type[R]) -> dict[str, R]:
    """Each rule broken alone, by name."""
    return {each.name: rules(**{each.name: True}) for each in fields(rules)}  # type: ignore[arg-type]
