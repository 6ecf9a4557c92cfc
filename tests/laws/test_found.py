"""Small scenarios in which the laws once failed: they stay mended."""

from __future__ import annotations

from typing import Any

import pytest

from batchsim.simulation import simulate
from tests.laws.scenarios import base, build, listed
from tests.laws.test_every_run import hold

Given = dict[str, Any]

AHEAD = {"kind": "vllm", "async_scheduling": True, "enable_prefix_caching": False}
ONE = {"arrival_ms": 0, "prompt_tokens": 1, "output_tokens": 1}

FOUND: dict[str, Given] = {
    # evicted by a plan that came to nothing while its last token was in flight: logged as finished twice
    "evicted while ending": {
        "kv_cache": {"block_size": 1, "num_blocks": 2},
        "scheduler": AHEAD,
        "workload": {"kind": "list", "requests": [ONE | {"max_tokens": 1}, ONE, ONE]},
    },
    "evicted while ending, under priority": {
        "seed": 4,
        "horizon_s": 1.0,
        "kv_cache": {"block_size": 16, "num_blocks": 2},
        "scheduler": AHEAD
        | {"policy": "priority", "enable_chunked_prefill": False, "max_num_seqs": 2, "max_num_batched_tokens": 9},
        "workload": {
            "requests": 3,
            "arrivals": {"kind": "closed", "concurrency": 2, "think_s": 0},
            "prompt_tokens": {"kind": "fixed", "tokens": 8},
            "output_tokens": {"kind": "uniform", "mean": 8, "range_ratio": 0.5, "max": 16},
        },
    },
    # with chunking off a request evicted with more than the budget is never taken again, as in vLLM
    "outgrew the budget": {
        "kv_cache": {"block_size": 3, "num_blocks": 8},
        "scheduler": AHEAD
        | {"async_scheduling": False, "enable_chunked_prefill": False, "max_num_seqs": 2, "max_num_batched_tokens": 5},
        "workload": listed([(0, 4, 12), (0, 4, 12)]),
    },
    # replicas run one after the other: the first rejected was the first of the first replica
    "rejected by two replicas": {
        "kv_cache": {"block_size": 1, "num_blocks": 7},
        "scheduler": {"kind": "tensorrt_llm", "max_num_tokens": 2},
        "workload": listed([(0, 2, 1), (1, 3, 1), (2, 4, 1), (3, 2, 1)]),
        "replicas": 2,
    },
    # a static batch was told that nobody is on the way while the last was between its client and the replica
    "the last one on its way to a static batch": {
        "engine": {"ingress_ms": 5},
        "scheduler": {"kind": "static"},
        "workload": listed([(0, 1, 1), (0, 1, 1), (0, 1, 1), (7, 1, 1)]),
        "replicas": 2,
    },
}


@pytest.mark.parametrize("name", FOUND)
def test_the_laws_hold_where_they_did_not(name: str) -> None:
    """Every law, and the same results however the scenario is run."""
    hold(build(base(**FOUND[name])))


def test_the_first_rejected_is_no_cancelled_one() -> None:
    """The warning tells why the rejected one that arrived first was, whoever gave up before."""
    rows = [
        {"arrival_ms": 9, "prompt_tokens": 7, "output_tokens": 1},
        {"arrival_ms": 0, "prompt_tokens": 2, "output_tokens": 1},
        {"arrival_ms": 1, "prompt_tokens": 2, "output_tokens": 1, "cancel_ms": 1},
        {"arrival_ms": 5, "prompt_tokens": 6, "output_tokens": 1},
    ]
    scheduler = {"kind": "vllm", "max_num_seqs": 1, "max_num_batched_tokens": 5, "enable_chunked_prefill": False}
    found = simulate(build(base(scheduler=scheduler, workload={"kind": "list", "requests": rows})))
    assert (found.summary["rejected"], found.summary["cancelled"]) == (2, 1)
    assert any("2 requests were rejected, the first: prompt of 6" in text for text in found.summary["warnings"])


def test_a_static_batch_waits_for_who_is_on_the_way() -> None:
    """The third is sent at 7 ms and is here at 12: until then the batch may still fill."""
    workload = listed([(0, 1, 1), (0, 1, 1), (7, 1, 1)])
    found = simulate(build(base(engine={"ingress_ms": 5}, scheduler={"kind": "static"}, workload=workload)))
    assert found.records.requests.admitted_ns.tolist() == [12_000_000] * 3
