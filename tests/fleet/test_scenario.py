"""Fleets in scenario files: groups, what they inherit, what is refused, what `list routers` says."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from batchsim.cli.listing import entries
from batchsim.errors import InvalidInput
from batchsim.scenario import json_schema, resolve, scenario
from batchsim.simulation import simulate
from tests.fleet.fleets import ROUTERS, apart, base

GROUPS = [
    {"name": "new", "replicas": 2, "gpu": "h200-sxm", "scheduler": {"max_num_seqs": 8}},
    {"tensor_parallel": 2, "kv_cache": {"num_blocks": 500}},
]


def test_groups_take_missing_keys_from_above() -> None:
    """Key by key inside scheduler and kv_cache too; another kind of scheduler takes nothing over."""
    groups = scenario(base(fleet=[*GROUPS, {"name": "c", "scheduler": {"kind": "static"}}])).groups
    new, second, third = groups
    assert [group.name for group in groups] == ["new", "group-1", "c"]
    assert (new.scenario.gpu.name, second.scenario.gpu.name) == ("h200-sxm", "h100-sxm")
    assert (new.scenario.scheduler.max_num_seqs, second.scenario.scheduler.max_num_seqs) == (8, 256)
    assert not new.scenario.scheduler.enable_prefix_caching
    assert (second.scenario.kv_cache.num_blocks, second.scenario.kv_cache.block_size) == (500, 16)
    assert third.scenario.kind("scheduler") == "static"


def test_one_count_of_gpus() -> None:
    """Two on one GPU and one on two are four, in the summary as in the plan; rates divide by owned and by used ones."""
    described = scenario(base(fleet=GROUPS, router={"kind": "session"}))
    summary = simulate(described).summary
    assert summary["gpus"] == resolve(described).gpus == 4
    assert [group["gpus"] for group in summary["groups"]] == [2, 2]
    rate = summary["output_throughput"]
    assert summary["output_throughput_per_owned_gpu"] == pytest.approx(rate / 4)
    assert summary["output_throughput_per_used_gpu"] == pytest.approx(rate / summary["used_gpus"])
    lazy = simulate(scenario(base(replicas=5, router={"kind": "session"}, workload=one_session()))).summary
    assert (lazy["gpus"], lazy["used_gpus"]) == (5, 1)


def one_session() -> dict[str, Any]:
    """Three requests of one session."""
    rows = [{"id": f"{n}", "arrival_ms": n, "prompt_tokens": 5, "output_tokens": 2, "session": "s"} for n in range(3)]
    return {"kind": "list", "requests": rows}


@pytest.mark.parametrize("section", [{"fleet": GROUPS}, {"disaggregation": apart({"replicas": 2})}])
def test_written_out_and_read_back(section: dict[str, Any]) -> None:
    """The scenario as run describes the same fleet, passes the schema, and has the same digest."""
    described = scenario(base(**section))
    written = described.to_dict()
    assert scenario(written) == described
    assert scenario(written).digest() == described.digest() != scenario(base()).digest()
    jsonschema.validate(written, json_schema())


def test_the_gpu_may_stand_in_the_groups_alone() -> None:
    """With `gpu` in each group the top level needs none; without any it is missing."""
    given = base(fleet=[{"gpu": "l40s"}, {"gpu": "a10", "name": "b"}])
    del given["gpu"]
    assert [group.scenario.gpu.name for group in scenario(given).groups] == ["l40s", "a10"]
    with pytest.raises(InvalidInput, match="gpu: missing"):
        scenario(given | {"fleet": [{}]})


def test_overrides_reach_into_groups() -> None:
    """`--set fleet.0.replicas=5`, and a changed kind drops the keys that it lacks."""
    changed = scenario(base(fleet=GROUPS)).replace("fleet.0.replicas=5", "fleet.0.scheduler.kind=static")
    assert resolve(changed).replicas == 6
    assert changed.groups[0].scenario.kind("scheduler") == "static"
    assert any("fleet.0.scheduler.kind: static has no max_num_seqs: left out" in text for text in changed.warnings)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fleet": []}, "fleet: []: must be a list of groups, one at least"),
        ({"fleet": {}}, "fleet: {}: must be a list of groups, one at least"),
        ({"fleet": [3]}, "fleet[0]: 3: must be a mapping (key: value)"),
        ({"fleet": [{"gpus": 2}]}, "fleet[0].gpus: unknown key; did you mean 'gpu'?"),
        ({"fleet": [{"replicas": 0}]}, "fleet[0].replicas: 0: must be at least 1"),
        ({"fleet": [{}, {"gpu": "h101-sxm"}]}, "fleet[1].gpu: "),
        ({"fleet": [{"name": "a"}, {"name": "a"}]}, "fleet: 'a': names a group twice"),
        ({"fleet": [{"name": 3}]}, "fleet[0].name: 3: must be text"),
        (
            {"router": {"kind": "least_request"}},
            "router.kind: 'least_request': unknown kind; did you mean 'least_requests'?",
        ),
        ({"router": {"kind": "random", "retry": -1}}, "router.retry: -1: must be at least 0"),
        ({"router": {"kind": "central_queue", "retry": 1}}, "router.retry: unknown key; there are none here"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], said: str) -> None:
    """Refused before the run: the place in the file, the value, the rule, the nearest key."""
    with pytest.raises(InvalidInput) as caught:
        scenario(base() | change)
    assert said in str(caught.value)


def test_every_router_is_listed() -> None:
    """`batchsim list routers` names all of them, with a line and the meaning of each parameter."""
    listed = entries("routers")
    assert sorted(entry.name for entry in listed) == sorted(ROUTERS)
    assert all(entry.line and all(parameter.meaning for parameter in entry.parameters) for entry in listed)
