"""Triton's dynamic batcher beyond delay and preferred sizes: priority levels, the queue's size, timeouts."""

from __future__ import annotations

from typing import Any

import pytest

from batchsim.errors import InvalidInput
from batchsim.records import Status
from batchsim.simulation import Run, simulate
from tests.schedulers.queues import first_admissions, logged
from tests.schedulers.runs import listed, row


def one_at_a_time(rows: list[dict[str, Any]], **keys: Any) -> Run:
    """A first request holds the server for 561 ms; the others come meanwhile and go one by one."""
    scheduler = {"kind": "dynamic", "max_batch_size": 1, **keys}
    return logged(listed(scheduler, [row(10, 51, priority=keys.get("default_priority_level", 0)), *rows]))


def test_levels_are_walked_from_the_most_urgent() -> None:
    """Levels 1 to 3, in each by arrival; priority 0 is the default level, without one the least urgent."""
    rows = [row(10, 2, arrival_ms=10 + place, priority=level) for place, level in enumerate([3, 0, 1, 2, 1])]
    assert first_admissions(one_at_a_time(rows, priority_levels=3)) == [0, 3, 5, 4, 1, 2]
    assert first_admissions(one_at_a_time(rows, priority_levels=3, default_priority_level=2)) == [0, 3, 5, 2, 4, 1]


def test_a_priority_that_is_no_level_is_rejected() -> None:
    """With three levels a priority of 4 or of -1 is turned away with a reason."""
    run = one_at_a_time([row(10, 2, priority=4), row(10, 2, priority=-1), row(10, 2, priority=3)], priority_levels=3)
    assert run.summary["rejected"] == 2
    assert run.records.requests.reasons[1] == "priority 4 is not a level: 1 to 3, or 0 for the default"


def test_a_default_level_must_be_one() -> None:
    """A default beyond the levels is refused before the run."""
    with pytest.raises(InvalidInput, match="default_priority_level 4 must be at most priority_levels 3"):
        listed({"kind": "dynamic", "priority_levels": 3, "default_priority_level": 4}, [row(1, 1)])


def test_the_queue_of_each_level_has_its_size() -> None:
    """Two may wait on each level: of three on level 1 and two on level 2 one is rejected."""
    rows = [row(10, 2, arrival_ms=10, priority=level) for level in (1, 1, 1, 2, 2)]
    run = one_at_a_time(rows, priority_levels=2, max_queue_size=2)
    assert run.records.requests.status.tolist().count(Status.REJECTED) == 1
    assert run.records.requests.reasons[3] == "queue is full: 2 waiting, max_queue_size 2"


def test_a_timeout_rejects_when_the_batcher_looks_again() -> None:
    """It looks when the server is free, at 561 ms: who has waited 100 ms by then is gone, the last one is served."""
    rows = [row(10, 2, arrival_ms=10), row(10, 2, arrival_ms=20), row(10, 2, arrival_ms=500)]
    run = one_at_a_time(rows, queue_timeout_ms=100)
    status = [Status(value).name for value in run.records.requests.status]
    assert status == ["COMPLETED", "REJECTED", "REJECTED", "COMPLETED"]
    assert run.records.requests.waited_ns[1] == 551_000_000


def test_a_delayed_request_goes_behind_the_others_of_its_level() -> None:
    """timeout_action DELAY: nobody is rejected; those overdue at 561 ms go last, by arrival."""
    rows = [row(10, 2, arrival_ms=10), row(10, 2, arrival_ms=20), row(10, 2, arrival_ms=500)]
    run = one_at_a_time(rows, queue_timeout_ms=100, timeout_action="DELAY")
    assert first_admissions(run) == [0, 3, 1, 2]


def test_a_forming_batch_ends_its_wait_at_a_timeout() -> None:
    """A batch of two may wait 300 ms for company, its only member 100: rejected at 100, when nothing else happens."""
    keys = {"max_batch_size": 2, "max_queue_delay_ms": 300, "queue_timeout_ms": 100}
    run = simulate(listed({"kind": "dynamic", **keys}, [row(10, 2)]))
    assert run.summary["rejected"] == 1
    assert run.records.requests.waited_ns[0] == 100_000_000
