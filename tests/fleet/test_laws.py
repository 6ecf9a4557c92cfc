"""What holds for every fleet, router and hand-off, whatever the traffic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchsim.assembly import assemble
from batchsim.metrics.fleet import phases_ns
from batchsim.recorder import Recorder
from batchsim.records import NEVER, Status
from batchsim.scenario import resolve
from batchsim.simulation import Run, simulate
from tests.fleet.fleets import difference, drawn

SHAPES = ("alike", "unlike", "apart")
seeds = st.integers(0, 10**9)
few = settings(max_examples=25, deadline=None)


@pytest.mark.parametrize("shape", SHAPES)
@few
@given(seed=seeds)
@example(seed=46)  # waits in the decode side's central queue
@example(seed=65)  # one-token answers on the prefill side
@example(seed=151)  # the decode side's reservation exceeds its pool
@example(seed=319)  # the last requests end on the prefill side, and the decode side fills batches
def test_collapsed_is_stepped(shape: str, seed: int) -> None:
    """Runs of steps taken as one event end in the same nanosecond, and routers read the same loads off them."""
    described = drawn(seed, shape)
    assert difference(simulate(described).records, simulate(described, stepwise=True).records) is None


@pytest.mark.parametrize("shape", SHAPES)
@few
@given(seed=seeds)
def test_requests_are_conserved(shape: str, seed: int) -> None:
    """submitted = completed + running + waiting + rejected + cancelled, and without a horizon nobody is left."""
    run = simulate(drawn(seed, shape))
    summary = run.summary
    ends = [summary[key] for key in ("completed", "running_at_end", "waiting_at_end", "rejected", "cancelled")]
    assert summary["submitted"] == sum(ends)
    if run.records.horizon_ns is None:
        assert summary["submitted"] == len(run.records.requests)
        assert summary["running_at_end"] == summary["waiting_at_end"] == 0
    done = run.records.requests.status == Status.COMPLETED
    assert np.all(run.records.requests.replica[done] >= 0)


@pytest.mark.parametrize("shape", SHAPES)
@few
@given(seed=seeds)
def test_same_seed_same_bytes(shape: str, seed: int) -> None:
    """A run repeated is the same run: random routers draw from streams of their own."""
    one, other = simulate(drawn(seed, shape)), simulate(drawn(seed, shape))
    assert difference(one.records, other.records) is None
    assert one.summary == other.summary


@pytest.mark.parametrize("shape", SHAPES)
@few
@given(seed=seeds)
def test_blocks_come_back(shape: str, seed: int) -> None:
    """When nobody is left, every KV block of every replica is free again, on both sides of a hand-off."""
    resolved = resolve(drawn(seed, shape))
    if resolved.horizon_ns is not None:
        return
    made = assemble(resolved, resolved.draw(), Recorder(), stepwise=False)
    for env, clients in made.worlds:
        clients.start()
        env.run()
    for replica in made.replicas:
        give_back = getattr(replica.engine.scheduler, "give_back", None)  # given up after the last plan
        if give_back is not None:
            give_back()
        assert replica.batch.pool.free == replica.batch.pool.total
        assert not replica.batch.seats
        assert not replica.batch.queue


@few
@given(seed=seeds)
def test_phases_add_up(seed: int) -> None:
    """The six phases of a completed request are its E2E; those of a one-token answer end with its prefill."""
    run = simulate(drawn(seed, "apart"))
    _check_phases(run)


def _check_phases(run: Run) -> None:
    records = run.records
    assert records.handoffs is not None
    phases = np.stack(list(phases_ns(records.requests, records.handoffs).values()))
    requests = records.requests
    done = requests.status == Status.COMPLETED
    handed = done & (records.handoffs.decode_ns != NEVER)
    assert np.all(phases[:, handed] >= 0)
    e2e = requests.finished_ns - requests.arrival_ns
    assert np.array_equal(phases[:, handed].sum(axis=0), e2e[handed])
    ended = done & ~handed
    assert np.array_equal(phases[:2, ended].sum(axis=0), e2e[ended])
    assert np.all(requests.emitted_tokens[ended] == 1)
