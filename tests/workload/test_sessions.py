"""Conversations: what is drawn, and when the next turn is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.errors import InvalidInput
from batchsim.records import Status
from batchsim.scenario import scenario
from batchsim.simulation import Run, simulate


def described(**workload: Any) -> dict[str, Any]:
    """Conversations on the textbook cost: 10 ms a step."""
    return {
        "name": "sessions", "model": "llama-3.1-8b", "gpu": "h100-sxm",
        "cost_model": {"kind": "linear", "base_ms": 10}, "scheduler": {"kind": "vllm"},
        "workload": {
            "kind": "sessions", "sessions": 1, "arrivals": {"kind": "constant", "rate_per_s": 1},
            "turns": {"kind": "fixed", "tokens": 3}, "think_s": 2,
            "prompt_tokens": {"kind": "fixed", "tokens": 32}, "output_tokens": {"kind": "fixed", "tokens": 5},
        } | workload,
    }  # fmt: skip


def run(**workload: Any) -> Run:
    """Simulated."""
    return simulate(scenario(described(**workload)))


def test_a_turn_carries_the_conversation_and_waits_for_the_answer() -> None:
    """One conversation: prompts 32, 69, 106; each answer takes 50 ms, the next turn comes 2 s after it."""
    done = run().requests
    assert done.prompt_tokens.tolist() == [32, 69, 106]
    assert done.arrival_s.tolist() == [0, 2.05, 4.1]
    assert done.prefix_hit_tokens.tolist() == [0, 32, 64]  # 36 and 73 tokens stand in the cache, in whole blocks of 16
    assert set(done.session) == {"s0"}


def test_shared_tokens_stand_in_front_of_every_conversation() -> None:
    """160 shared tokens: the second conversation's first turn finds them, 10 blocks of 16."""
    done = run(sessions=2, turns={"kind": "fixed", "tokens": 1}, shared_prefix_tokens=160).requests
    assert done.prompt_tokens.tolist() == [192, 192]
    assert done.prefix_hit_tokens.tolist() == [0, 160]


def test_a_refused_turn_ends_its_conversation() -> None:
    """With room for 100 tokens the third turn (106 + 5) is rejected, and the fourth is never sent."""
    wanted = described(turns={"kind": "fixed", "tokens": 4}) | {"max_model_len": 100}
    status = simulate(scenario(wanted)).records.requests.status.tolist()
    assert status == [Status.COMPLETED, Status.COMPLETED, Status.REJECTED, Status.UNSENT]


def test_conversations_begin_by_the_clock() -> None:
    """A closed loop has no conversations to begin: refused with the kinds that can."""
    with pytest.raises(InvalidInput, match=r"workload\.arrivals\.kind: closed: conversations begin by the clock"):
        run(arrivals={"kind": "closed", "concurrency": 2})


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000), sessions=st.integers(1, 12), think_s=st.sampled_from([0.0, 0.01, 0.3]),
    cap=st.sampled_from([None, 1, 3]), ahead=st.booleans(), blocks=st.sampled_from([60, 400]),
)  # fmt: skip
def test_turns_follow_each_other(
    seed: int, sessions: int, think_s: float, cap: int | None, ahead: bool, blocks: int
) -> None:
    """Every turn is sent its think time after the answer before it, or later where the client has a cap; collapsed = stepped."""
    wanted = described(
        sessions=sessions, think_s=think_s, arrivals={"kind": "poisson", "rate_per_s": 20},
        turns={"kind": "geometric", "mean": 3}, output_tokens={"kind": "geometric", "mean": 8},
    )  # fmt: skip
    wanted["workload"] |= {} if cap is None else {"max_concurrency": cap}
    wanted |= {"seed": seed, "kv_cache": {"num_blocks": blocks}}
    wanted["scheduler"] |= {"async_scheduling": ahead, "max_num_seqs": 4}
    done, stepped = simulate(scenario(wanted)), simulate(scenario(wanted), stepwise=True)
    requests, work = done.records.requests, done.records.workload
    assert work.after is not None
    for index in np.flatnonzero(work.after >= 0).tolist():
        before = int(work.after[index])
        if requests.status[index] == Status.UNSENT:
            assert requests.status[before] != Status.COMPLETED
            continue
        due_ns = int(requests.finished_ns[before]) + round(think_s * 1e9)
        assert requests.scheduled_ns[index] == due_ns
        assert requests.arrival_ns[index] >= due_ns if cap else requests.arrival_ns[index] == due_ns
        assert work.prompt_tokens[index] > work.prompt_tokens[before] + work.output_tokens[before]
    assert requests.finished_ns.tolist() == stepped.records.requests.finished_ns.tolist()
