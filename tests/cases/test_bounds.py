"""Case A18 and the kind behind it: what would freeze or break a run is refused before it, each with place and rule."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

import pytest

from batchsim import plugins
from batchsim.errors import InvalidInput
from batchsim.scenario import scenario
from batchsim.simulation import simulate
from tests.laws.parameters import bounds
from tests.laws.scenarios import SCHEDULERS, base, listed

ONE = listed([(0, 1, 1)])


def drawn(arrivals: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A drawn workload of one-token requests."""
    one = {"kind": "fixed", "tokens": 1}
    return {"arrivals": arrivals, "prompt_tokens": one, "output_tokens": one} | more


REFUSED: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "workload.arrivals.rate_per_s",
        "inf",
        "requests",
        {"workload": drawn({"kind": "constant", "rate_per_s": float("inf")})},
    ),
    (
        "workload.arrivals.rate_per_s",
        "0",
        "greater than 0|above 0",
        {"workload": drawn({"kind": "poisson", "rate_per_s": 0}, requests=5)},
    ),
    (
        "workload.arrivals.burstiness",
        "nan",
        "must be a number",
        {"workload": drawn({"kind": "gamma", "rate_per_s": 1, "burstiness": float("nan")}, requests=5)},
    ),
    ("kv_cache.block_size", "0", "1", {"kv_cache": {"block_size": 0, "num_blocks": 5}}),
    ("kv_cache.num_blocks", "0", "1", {"kv_cache": {"block_size": 16, "num_blocks": 0}}),
    ("scheduler.max_num_seqs", "0", "1", {"scheduler": {"kind": "vllm", "max_num_seqs": 0}}),
    (
        "scheduler.max_num_batch_tokens",
        "",
        "max_num_batched_tokens",
        {"scheduler": {"kind": "vllm", "max_num_batch_tokens": 64}},
    ),
    ("scheduler.kind", "guaranteed_completion", "unknown kind", {"scheduler": {"kind": "guaranteed_completion"}}),
]


@pytest.mark.parametrize(
    ("path", "value", "rule", "changes"), REFUSED, ids=[entry[0] + "-" + entry[1] for entry in REFUSED]
)
def test_a18_refused_before_the_run(path: str, value: str, rule: str, changes: dict[str, Any]) -> None:
    """A18: place, value and rule, or the nearest key, in one line."""
    with pytest.raises(InvalidInput, match=rule) as caught:
        scenario(base(workload=ONE) | changes)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert value in problem.value
    assert "Traceback" not in str(caught.value)


def test_a18_an_infinite_rate_with_a_count_is_a_burst() -> None:
    """50 requests at rate .inf arrive at 0."""
    found = simulate(scenario(base(workload=drawn({"kind": "constant", "rate_per_s": float("inf")}, requests=50))))
    assert found.records.requests.arrival_ns.tolist() == [0] * 50


def outside_bounds() -> list[tuple[str, str, Any]]:
    """Every bounded parameter of every scheduler, with a value just outside; and a text where a number is due."""
    found: list[tuple[str, str, Any]] = []
    for kind in SCHEDULERS:
        cls = plugins.find("batchsim.schedulers", kind)
        hints = get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            limits = bounds(hints[field.name]) if field.init else {}
            for rule, value in limits.items():
                step = {"ge": -1, "gt": 0, "le": 1, "lt": 0}[rule]
                found.append((kind, field.name, value + step))
            if limits:
                found += [(kind, field.name, "many"), (kind, field.name, float("nan"))]
    return found


@pytest.mark.parametrize(("kind", "key", "value"), outside_bounds())
def test_a18_every_parameter_of_every_scheduler_has_its_bounds(kind: str, key: str, value: Any) -> None:
    """A value just beyond a parameter's bound, a text, and NaN are refused under the parameter's own path."""
    with pytest.raises(InvalidInput) as caught:
        scenario(base(workload=ONE, scheduler={"kind": kind, key: value}))
    assert any(problem.path.startswith(f"scheduler.{key}") for problem in caught.value.problems)


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a18_every_number_of_a_scheduler_is_bounded(kind: str) -> None:
    """No scheduler takes a whole number or a decimal without a lower bound: 0 and -1 would get in."""
    cls = plugins.find("batchsim.schedulers", kind)
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        if not field.init or not isinstance(field.default, (int, float)) or isinstance(field.default, bool):
            continue
        assert {"ge", "gt"} & set(bounds(hints[field.name])), f"{kind}.{field.name}"


def test_a18_all_problems_at_once() -> None:
    """A file with five faults is told of all five."""
    changes: dict[str, Any] = {
        "kv_cache": {"block_size": 0, "num_blocks": 0},
        "scheduler": {"kind": "vllm", "max_num_seqs": 0, "max_num_batch_tokens": 4},
        "seed": -1,
    }
    with pytest.raises(InvalidInput) as caught:
        scenario(base(workload=ONE) | changes)
    assert len(caught.value.problems) == 5
