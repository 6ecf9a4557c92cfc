"""The rules of the SGLang oracle that can be broken one at a time, for mutation tests."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Rules:
    """Deviations from the rules of SGLang, each off by default: `Rules()` is the scheduler itself.

    A mutant is `Rules` with one deviation on. Numbers in the comments are sections of the specification.
    """

    # one step (2)
    decode_before_prefill: bool = False  # running requests decode while there are any; admission waits
    shut_stays_after_finish: bool = False  # a finish does not reopen the batch
    chunk_keeps_shut: bool = False  # the chunk leaving the last batch does not reopen the running one
    shut_kept_with_new_object: bool = False  # the first prefill batch inherits `shut` when it becomes the running batch
    ratio_kept_when_idle: bool = False
    # the prefill pass (3)
    newcomer_promises_ratio: bool = False  # a newcomer's own limit is weighed by the ratio
    newcomer_promises_rest: bool = False  # a resumed request is charged M - out, not M
    running_promise_in_full: bool = False  # running requests count without the ratio
    estimate_unclipped: bool = False
    no_page_of_margin: bool = False  # admission does not add a page to each newcomer
    room_to_the_last: bool = False  # a request that takes all the room is admitted
    refusal_leaves_open: bool = False  # a refusal does not shut the batch
    refused_skipped: bool = False  # the pass goes on behind a refused request
    chunk_last: bool = False  # the unfinished prompt comes after the newcomers
    chunk_not_counted: bool = False  # a seat is free beside the chunk
    first_within_budget: bool = False  # the first of a pass may not exceed max_prefill_tokens either
    budget_cuts: bool = False  # with chunking, max_prefill_tokens refuses too
    riders_not_reserved: bool = False
    request_limit_ignored: bool = False  # prefill_max_requests
    cut_anywhere: bool = False  # a cut need not end on a page edge
    # ignore_eos with the radix cache off (4)
    ignore_eos_not_played_out: bool = False
    ignore_eos_ratio: bool = False  # ignore_eos requests are weighed by the ratio too
    inserted_sorted: bool = False  # a later candidate with the most left goes behind the last entry
    # decode (5)
    ratio_decays_on_prefill: bool = False
    victim_most_outputs: bool = False
    victim_newest: bool = False  # the last of the batch, whatever its outputs
    victim_shortest_prompt: bool = False  # among equal outputs
    victims_all_but_one: bool = False
    retracted_to_head: bool = False
    retracted_lose_outputs: bool = False
    survivors_keep_order: bool = False
    ratio_kept_on_retract: bool = False
    ratio_over_retracted: bool = False  # the new ratio counts the victims too
    slots_ahead_for_victim: bool = False  # the victim counts among the number left
    no_slots_ahead: bool = False  # retraction evicts no leaves ahead
    riders_in_front: bool = False  # mixed: running before taken
    # the order of the queue (6)
    order_forgotten: bool = False  # lof, lpm: the queue itself is not reordered
    nobody_set_back: bool = False
    long_queue_sorted: bool = False  # more than 128 waiting are sorted all the same
    no_periodic_lookup: bool = False
    # the radix cache (7)
    published_at_launch: bool = False  # a prompt is published when it is launched, not when its result is settled
    chunks_unpublished: bool = False
    retracted_published: bool = False
    output_unpublished: bool = False
    own_hit_counts_as_room: bool = False
    evict_newest: bool = False
    lookup_no_use: bool = False  # a lookup does not refresh
    no_split_at_prompt: bool = False
    no_extra_page: bool = False  # paged allocation evicts no more than it takes
    # options (8)
    interval_ignored: bool = False
    threshold_reached: bool = False  # a difference of exactly the threshold preempts
    prompt_counted: bool = False  # a request never tried needs room for its prompt
    requeued_in_place: bool = False  # a re-queued request keeps its queue time
    # arrival (9)
    limit_uncut: bool = False
    too_long_dropped: bool = False  # no stub
    # overlap (10)
    last_not_left_out: bool = False
    retract_beside_left_out: bool = False
    stale_token_kept: bool = False  # the in-flight token of a retracted request counts
    ratio_resets_at_first_idle: bool = False  # while a result is in flight
    settle_first: bool = False  # overlap runs as the normal loop, a step late


MUTANTS: dict[str, Rules] = {f.name: Rules(**{f.name: True}) for f in fields(Rules)}
