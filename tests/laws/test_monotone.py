"""Off pressure more room never hurts: a larger pool, budget or number of seats never adds preemptions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.simulation import Run, simulate
from tests.laws.scenarios import SCHEDULERS, base, build, listed

rows = st.lists(
    st.tuples(st.sampled_from([0, 10, 35, 60]), st.integers(1, 50), st.integers(1, 40)), min_size=1, max_size=10
)


def run(kind: str, rows: list[tuple[float, int, int]], blocks: int, **sizes: int) -> Run:
    """A run with a pool and sizes; keys that the scheduler lacks are left out."""
    given: dict[str, Any] = base(
        kv_cache={"block_size": 4, "num_blocks": blocks}, scheduler={"kind": kind} | sizes, workload=listed(rows)
    )
    return simulate(build(given))


@pytest.mark.parametrize("kind", SCHEDULERS)
@settings(deadline=None, max_examples=25)
@given(rows=rows, extra=st.integers(0, 500))
def test_a_larger_pool_never_adds_preemptions(kind: str, rows: list[tuple[float, int, int]], extra: int) -> None:
    """Where everybody fits at once nobody is evicted, and more blocks change neither that nor any time."""
    need = sum(-(-(prompt + output) // 4) for _, prompt, output in rows) + 1
    enough = 2 * need + 8  # watermarks and retractions look at shares of the pool
    small, large = run(kind, rows, enough), run(kind, rows, enough + extra)
    assert small.summary["preemptions"] == large.summary["preemptions"] == 0
    assert small.records.requests.finished_ns.tolist() == large.records.requests.finished_ns.tolist()


@settings(deadline=None, max_examples=40)
@given(rows=rows, budget=st.integers(4, 60), extra=st.integers(0, 60))
def test_a_larger_budget_never_adds_preemptions(rows: list[tuple[float, int, int]], budget: int, extra: int) -> None:
    """vLLM off pressure: a larger token budget evicts nobody, and nobody's first token comes later than before."""
    blocks = 2 * sum(-(-(prompt + output) // 4) for _, prompt, output in rows) + 8
    small = run("vllm", rows, blocks, max_num_batched_tokens=budget, max_num_seqs=4)
    large = run("vllm", rows, blocks, max_num_batched_tokens=budget + extra, max_num_seqs=4)
    assert small.summary["preemptions"] == large.summary["preemptions"] == 0
    assert large.summary["iterations"] <= small.summary["iterations"]
