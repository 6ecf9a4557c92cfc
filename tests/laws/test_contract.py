"""What a scheduler may not do, said by name; and what a plug-in from outside gets for free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.batch import Batch
from batchsim.errors import InvalidInput, RuleBroken
from batchsim.scenario import scenario
from batchsim.scheduler import ONCE, Verdict, Wait
from batchsim.simulation import simulate
from tests.laws.scenarios import LINEAR, base, listed

Deed = Callable[[Batch], Any]


def admit_all(b: Batch) -> None:
    """Everyone gets a seat and its whole prompt."""
    for request in list(b.waiting.values()):
        b.admit(request, request.remaining_tokens)


def first(b: Batch) -> Any:
    """The running request that came first."""
    return next(iter(b.running.values()))


DEEDS: dict[str, tuple[Deed, str]] = {
    "decodes twice": (lambda b: (b.decode(), b.decode()), "each request decodes once a step"),
    "decodes all, then one by name": (
        lambda b: (b.decode(), b.extend(first(b), 1)),
        "each request decodes once a step",
    ),
    "decodes one twice by name": (
        lambda b: (b.extend(first(b), 1), b.extend(first(b), 1)),
        "each request decodes once a step",
    ),
    "decodes one, then all": (lambda b: (b.extend(first(b), 1), b.decode()), "each request decodes once a step"),
    "two tokens of a decode": (lambda b: b.extend(first(b), 2), "a request past its prompt decodes one token"),
    "admits the running": (lambda b: b.admit(first(b), 1), "only a waiting request is admitted"),
    "rejects the running": (lambda b: b.reject(first(b), "no"), "only a waiting request is rejected"),
    "evicts twice": (lambda b: [b.preempt(r) for r in [first(b)] * 2], "only a running request is preempted"),
    "reads the future": (lambda b: b.output_tokens(first(b)), "only a declared oracle reads output lengths"),
    "waits beside a step": (lambda b: b.decode() and Wait(b.now_ns + 5), "a wait comes with an empty step"),
}
AT_ADMISSION: dict[str, tuple[Deed, str]] = {
    "no tokens": (lambda b: b.admit(b.head(), 0), "a chunk is part of what remains"),
    "more than the prompt": (lambda b: b.admit(b.head(), 11), "a chunk is part of what remains"),
    "two chunks": (
        lambda b: [f for f in [b.head()] if b.admit(f, 2) and b.extend(f, 2)],
        "each request computes one chunk a step",
    ),
    "decodes a waiting one": (lambda b: b.extend(b.head(), 1), "only a request past its prompt decodes"),
    "evicts a waiting one": (lambda b: b.preempt(b.head()), "only a running request is preempted"),
    "decodes a prompt": (
        lambda b: [f for f in [b.head()] if b.admit(f, 2) and b.decode([f])],
        "only a request past its prompt decodes",
    ),
}


@dataclass
class Breaker:
    """Serves first come, first served, until it does one forbidden thing."""

    deed: str = "decodes twice"

    def plan(self, b: Batch) -> Verdict | Wait:
        """Break the rule as soon as there is somebody to break it with."""
        if self.deed in AT_ADMISSION:
            AT_ADMISSION[self.deed][0](b)
            return ONCE
        if b.running:
            found = DEEDS[self.deed][0](b)
            return found if isinstance(found, Wait) else ONCE
        admit_all(b)
        return ONCE


@pytest.mark.parametrize("deed", [*DEEDS, *AT_ADMISSION])
def test_a_broken_rule_names_itself_and_the_scheduler(deed: str) -> None:
    """Every rule of the batch stops the run with its name, the scheduler's, and what was asked."""
    kind = "tests.laws.test_contract:Breaker"
    given = base(scheduler={"kind": kind, "deed": deed}, workload=listed([(0, 10, 5), (0, 10, 5)]))
    with pytest.raises(RuleBroken) as caught:
        simulate(scenario(given))
    assert caught.value.rule == (DEEDS | AT_ADMISSION)[deed][1]
    assert caught.value.scheduler == kind
    assert kind in str(caught.value)
    assert caught.value.rule in str(caught.value)


class SeenAll(Exception):
    """The plug-in below has seen what it wanted to."""


@dataclass
class Refused:
    """Asks for too much memory, and looks at what that changed."""

    def plan(self, b: Batch) -> Verdict:
        """An admission and a chunk that do not fit answer False and leave everything as it was."""
        large, small = [*b.running.values(), *b.waiting.values()][:2]
        if not b.running:
            before = (b.free, len(b.waiting), len(b.running), b.step.empty)
            for more in ({"hold_tokens": 65}, {"room_tokens": 65}, {"spare": 3}):
                assert not b.admit(large, 24, **more)
                assert (b.free, len(b.waiting), len(b.running), b.step.empty) == before
            assert b.admit(large, 24, spare=2)
            assert b.admit(small, 8)
            return ONCE
        assert (large.computed_tokens, large.blocks, b.free) == (24, 2, 1)
        assert not b.extend(large, 25)  # A06: 49 tokens need two more blocks
        assert (large.blocks, b.free, b.step.empty) == (2, 1, True)
        assert b.extend(large, 24)  # 48 need one, for 8 of them still fit in the second
        assert (large.blocks, b.free, b.step.empty) == (3, 0, False)
        raise SeenAll


def test_a_call_that_does_not_fit_changes_nothing() -> None:
    """False means that blocks lack, and that nothing has happened."""
    given = base(
        kv_cache={"block_size": 16, "num_blocks": 4},
        scheduler={"kind": "tests.laws.test_contract:Refused"},
        workload=listed([(0, 49, 1), (0, 16, 1)]),
    )
    with pytest.raises(SeenAll):
        simulate(scenario(given))


def test_a_plug_in_that_is_no_dataclass_or_not_there_is_refused() -> None:
    """A kind outside batchsim is found by `module:Class`; what is wrong with it is said before the run."""
    for kind in ("tests.laws.outside:Nobody", "tests.laws.nowhere:Naive", "tests.laws.outside:ONCE"):
        with pytest.raises(InvalidInput, match=r"scheduler\.kind"):
            scenario(base(scheduler={"kind": kind}, workload=listed([(0, 1, 1)])))


rows = st.lists(
    st.tuples(st.sampled_from([0, 10, 13, 40, 41.5]), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12
)


@settings(deadline=None, max_examples=60)
@given(
    rows=rows, blocks=st.integers(8, 40), seats=st.integers(1, 8), budget=st.integers(8, 80), collapsed=st.booleans()
)
def test_a_naive_plug_in_gives_the_results_of_vllm(
    rows: list[tuple[float, int, int]], blocks: int, seats: int, budget: int, collapsed: bool
) -> None:
    """Lists and requests by name, in a class outside batchsim, give every number that the fast scheduler gives."""
    sizes: dict[str, Any] = {"max_num_seqs": seats, "max_num_batched_tokens": budget}
    runs = []
    plain = {"enable_prefix_caching": False, "async_scheduling": False}
    for kind, more in (("vllm", plain), ("tests.laws.outside:Naive", {})):
        given = base(
            cost_model=dict(LINEAR),
            kv_cache={"block_size": 4, "num_blocks": blocks},
            scheduler={"kind": kind} | sizes | more,
            workload=listed(rows),
        )
        runs.append(simulate(scenario(given), stepwise=not collapsed).records.requests)
    for column in (
        "status",
        "admitted_ns",
        "first_token_ns",
        "finished_ns",
        "preemptions",
        "recomputed_tokens",
        "ran_ns",
    ):
        assert np.array_equal(getattr(runs[0], column), getattr(runs[1], column)), column
