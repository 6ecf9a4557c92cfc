"""The JSON Schema: it accepts the scenarios there are, and rejects what the loader rejects."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from batchsim.errors import InvalidInput
from batchsim.scenario import json_schema, load, scenario, shipped
from batchsim.scenario.overrides import apply, assignments
from batchsim.scenario.text import read

VALIDATOR = Draft202012Validator(json_schema())


def test_it_is_a_schema() -> None:
    """The schema is valid under its own meta-schema."""
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("name", shipped.names())
def test_shipped_scenarios_are_valid_as_written_and_as_run(name: str) -> None:
    """The file and the scenario with its defaults filled in."""
    assert list(VALIDATOR.iter_errors(read(shipped.locate(name)))) == []
    assert list(VALIDATOR.iter_errors(load(name).to_dict())) == []


@pytest.mark.parametrize(
    "change",
    [
        "scheduler.max_num_batch_tokens=5", "scheduler.max_num_seqs=0", "scheduler.kind=orca", "scheduler=vllm",
        "scheduler={kind: static, max_num_seqs: 3}", "horizon=5", "seed=-1", "seed=x", "dtype=int4", "model=3",
        "gpu={x: 1}", "engine={overhead: 1}", "kv_cache.block_size=0", "kv_cache.gpu_memory_utilization=1.5",
        "workload.arrivals.kind=poison", "workload.arrivals.rate_per_s=0", "workload.prompt_tokens.kind=trace",
        "workload={kind: list}", "workload={kind: nope}", "slo={}", "slo={percentile: 99}", "price={}", "fleet=[]",
        "router.kind=sessions", "cost_model={kind: linear, base: 1}", "model=null",
    ],
)  # fmt: skip
def test_what_the_loader_rejects_the_schema_rejects(change: str) -> None:
    """Unknown keys and kinds, wrong types, values out of range, and missing keys."""
    given: dict[str, Any] = read(shipped.locate("quickstart"))
    changed, _ = apply(given, assignments([change]), lambda section, kind: None)
    with pytest.raises(InvalidInput):
        scenario(changed)
    assert not VALIDATOR.is_valid(changed)
