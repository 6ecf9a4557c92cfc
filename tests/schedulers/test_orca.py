"""Orca: iteration-level batches, memory reserved to the end, and the buddy allocator under it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsim.schedulers._buddy import Buddy
from batchsim.simulation import Run, simulate
from tests.schedulers.runs import listed, row, story, ttft_ms


def orca(requests: list[dict[str, Any]], blocks: int = 1000, **keys: Any) -> Run:
    """A run with a step log."""
    return simulate(listed({"kind": "orca", **keys}, requests, blocks=blocks, max_model_len=512), step_log=True)


def most_running(run: Run) -> int:
    """The largest batch."""
    return int(run.records.iterations.running.max())


def test_prompts_share_the_step_with_decodes() -> None:
    """A whole prompt beside one decode: 10 + 80 + 1 ms, with no token budget."""
    run = orca([row(100, 50), row(400, 2, arrival_ms=25)])
    assert story(run)[2]["sched"] == [["r0", 1, 101], ["r1", 400, 0]]
    assert run.summary["max_itl_ms"] == pytest.approx(10 + 40 + 1)
    assert ttft_ms(run, 1) == pytest.approx(31 - 25 + 51)


@pytest.mark.parametrize(
    ("keys", "together"),
    [
        ({}, 3),  # 100 + 200 tokens: 19 blocks of 64
        ({"reserve": "max"}, 2),  # 512: 32
        ({"reserve": "pow2"}, 5),  # 100 + 64: 11
        ({"reserve": "oracle"}, 7),  # 100 + 40: 9
        ({"reserve": "oracle", "allocator": "buddy"}, 4),  # 9 -> 16
        ({"reserve": "max", "allocator": "buddy"}, 2),
        ({"reserve": "oracle", "max_num_seqs": 3}, 3),
    ],
)
def test_how_many_fit_under_each_reservation(keys: dict[str, Any], together: int) -> None:
    """64 blocks of 16; ten requests of 100 tokens that declare 200 more and generate 40."""
    run = orca([row(100, 40, max_tokens=200) for _ in range(10)], blocks=64, **keys)
    assert most_running(run) == together
    assert run.summary["completed"] == 10
    assert run.summary["preemptions"] == 0


def test_only_real_lengths_make_an_oracle() -> None:
    """`pow2` and `oracle` read the real output; the others do not, and give the same run whatever it is declared as."""
    from batchsim.schedulers.orca import Orca

    assert [Orca(reserve=reserve).oracle for reserve in (None, "max", "pow2", "oracle")] == [False, False, True, True]


def test_no_declared_limit_reserves_what_the_model_leaves() -> None:
    """Without max_tokens a request reserves up to max_model_len, cut to the pool, and is not turned away for it."""
    requests = [{"prompt_tokens": 100, "output_tokens": 10} for _ in range(4)]
    assert most_running(orca(requests, blocks=64)) == 2
    run = orca(requests, blocks=20)
    assert (most_running(run), run.summary["completed"]) == (1, 4)


def test_what_no_arena_holds_is_refused() -> None:
    """300 tokens are 19 blocks, more than an arena of 256 tokens; the reason names both."""
    run = orca([row(100, 200), row(100, 100)], allocator="buddy", arena_tokens=256)
    assert run.records.requests.reasons == {0: "reserves 300 tokens, the largest arena holds 256"}
    run = orca([row(100, 40)], blocks=31, reserve="max")
    assert run.records.requests.reasons == {0: "reserves 512 tokens: 32 blocks, the pool has 31"}


def pieces(buddy: Buddy) -> list[tuple[int, int]]:
    """Start and size of all pieces, free and held."""
    free = [(start, 1 << order) for order, starts in enumerate(buddy._free) for start in starts]
    return sorted(free + [(start, 1 << order) for start, order in buddy._held.values()])


@given(
    total=st.integers(1, 300),
    arena=st.sampled_from([1, 2, 8, 32, 128]),
    moves=st.lists(st.one_of(st.integers(1, 40), st.integers(-20, -1)), max_size=60),
)
def test_pieces_tile_the_memory(total: int, arena: int, moves: list[int]) -> None:
    """After any takes and frees the pieces, aligned powers of two, cover the memory once; all freed, arenas return."""
    buddy = Buddy(total, arena)
    empty = pieces(buddy)
    assert sum(size for _, size in empty) == total
    held: dict[int, int] = {}
    for owner, move in enumerate(moves):
        if move > 0:
            size = buddy.take(owner, move)
            if size:
                assert move <= size < 2 * move
                held[owner] = size
        elif held:
            del held[sorted(held)[move % len(held)]]
            buddy.keep(held)
        at = 0
        for start, size in pieces(buddy):
            assert start == at
            assert start % size == 0
            at += size
        assert at == total
        assert sorted(buddy._held) == sorted(held)
    buddy.keep({})
    assert pieces(buddy) == empty


def test_a_hole_of_the_wrong_shape_takes_nobody() -> None:
    """Two free pieces of 4 blocks that are not each other's buddies hold no piece of 8."""
    buddy = Buddy(16, 16)
    for owner in range(4):
        assert buddy.take(owner, 4) == 4
    buddy.keep({0: None, 3: None})
    assert buddy.take(9, 8) == 0
    buddy.keep({3: None})
    assert buddy.take(9, 8) == 8
