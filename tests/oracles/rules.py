"""The rules of the vLLM V1 oracle that can be broken one at a time, for mutation tests."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Rules:
    """Deviations from the rules of vLLM V1, each off by default: `Rules()` is the scheduler itself.

    A mutant is `Rules` with one deviation on. Numbers in the comments are sections of the specification.
    """

    # the pool (1, 3)
    null_block_usable: bool = False  # every block of num_gpu_blocks can be used
    watermark_of_usable: bool = False  # W from the usable blocks, not from all
    watermark_rounded_up: bool = False
    watermark_in_grow: bool = False  # a running request leaves W blocks free too
    watermark_when_alone: bool = False  # also while nothing runs
    block_one_token_early: bool = False  # room for one token more than is computed
    reserve_prompt_only: bool = False  # the full-length test forgets the output of a resumed request
    reserve_forgets_idle: bool = False  # in that test an idle cached block counts both as free and as hit
    reserve_takes_blocks: bool = False  # the full-length test takes all the blocks that it tests for
    # pass 1 (2)
    decodes_first: bool = False
    cap_when_alone: bool = False  # the threshold holds for a lone request too
    cap_counts_running: bool = False  # the adaptive threshold divides by the running requests only
    stop_at_nothing_to_do: bool = False  # a request with n == 0 ends pass 1
    self_preemption_goes_on: bool = False
    victim_is_newest: bool = False  # under priority, too
    victim_last_maximum: bool = False
    victim_by_priority_alone: bool = False
    victim_keeps_budget: bool = False  # its tokens of this step are not given back
    victim_keeps_index: bool = False  # the scan skips the request behind a victim that stood in front
    chunk_grows_back: bool = False  # n is computed again after tokens were given back
    # pass 2 (2)
    admit_after_preemption: bool = False
    skip_blocked_head: bool = False
    seats_one_more: bool = False
    split_without_chunking: bool = False
    cached_tokens_charged: bool = False
    # preemption and the queue (2)
    preempted_to_back: bool = False
    preempted_keeps_no_output: bool = False
    ties_by_arrival_alone: bool = False  # equal (priority, arrival): first come, not the id as a string
    # the end (2)
    one_past_max_model_len: bool = False
    # the free list and the cache (4, 5)
    freed_head_first: bool = False  # a request's first block is freed first
    unkeyed_to_tail: bool = False
    keyed_to_head: bool = False
    key_lost_when_freed: bool = False
    last_token_hit: bool = False  # a whole cached prompt is hit to its end
    published_after_model: bool = False  # keys at the end of the step, not at scheduling
    newest_copy_hit: bool = False
    failed_attempt_refreshes: bool = False  # a failed admission moves its hit blocks to the tail
    output_unpublished: bool = False  # generated tokens carry no key
    # async (6)
    no_last_token_skip: bool = False
    no_catch_up: bool = False  # update publishes nothing
    placeholders_published: bool = False  # a block counts as full with tokens still in flight
    stale_token_lost: bool = False  # what is in flight at a preemption is thrown away
    update_first: bool = False  # async runs as sync


MUTANTS: dict[str, Rules] = {f.name: Rules(**{f.name: True}) for f in fields(Rules)}
