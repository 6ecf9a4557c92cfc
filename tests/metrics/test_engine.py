"""The engine's own records against its step log: every token that the log shows is in the statistics, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchsim as bs
from batchsim.metrics import itl_stats_ns, max_itl_ns, token_times_ns, tokens_between
from batchsim.records import Records, Status
from batchsim.scenario import scenario as build

SCHEDULERS: dict[str, dict[str, Any]] = {
    "vllm": {"kind": "vllm", "max_num_seqs": 6, "max_num_batched_tokens": 64},
    "static": {"kind": "static", "batch_size": 4, "max_wait_ms": 50},
    "dynamic": {"kind": "dynamic", "max_batch_size": 4, "max_queue_delay_ms": 20},
}


def a_scenario(scheduler: dict[str, Any], blocks: int, horizon_s: float | None, seed: int) -> Any:
    """Random requests on a pool that is small or large; costs that are no whole nanoseconds."""
    cost = {"kind": "linear", "base_ms": 7.0000003, "prefill_token_ms": 0.0712345, "decode_seq_ms": 0.3100001,
            "context_token_ms": 0.0001234567}  # fmt: skip
    return build(
        {
            "name": "metrics",
            "seed": seed,
            "model": "llama-3.1-8b",
            "gpu": "h100-sxm",
            "cost_model": cost,
            "kv_cache": {"block_size": 16, "num_blocks": blocks},
            "scheduler": scheduler,
            "horizon_s": horizon_s,
            "workload": {
                "requests": 60,
                "arrivals": {"kind": "poisson", "rate_per_s": 20},
                "prompt_tokens": {"kind": "uniform", "mean": 60, "range_ratio": 0.9},
                "output_tokens": {"kind": "exponential", "mean": 30, "min": 1, "max": 120},
            },
        }
    )


def tokens_of_log(records: Records) -> list[list[int]]:
    """Token times of every request, ns: a step emits one where it brings a request level with what it knows."""
    tokens: list[list[int]] = [[] for _ in range(len(records.requests))]
    assert records.step_log is not None
    for step in records.step_log:
        for name, count, before in step["sched"]:
            index = int(name.removeprefix("r"))
            known = int(records.requests.prompt_tokens[index]) + len(tokens[index])
            if before + count == known and len(tokens[index]) < records.workload.output_tokens[index]:
                tokens[index].append(round(step["end_s"] * 1e9))
    return tokens


@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.parametrize("horizon_s", [None, 1.7])
@pytest.mark.parametrize("blocks", [24, 4000])
@pytest.mark.parametrize("seed", range(3))
def test_statistics_are_those_of_the_logged_tokens(kind: str, horizon_s: float | None, blocks: int, seed: int) -> None:
    """ITL, longest gaps and token counts equal those of the step log, preempted, held and unfinished ones too."""
    described = a_scenario(SCHEDULERS[kind], blocks, horizon_s, seed)
    tokens = tokens_of_log(bs.simulate(described, step_log=True).records)
    records = bs.simulate(described).records
    assert records.requests.emitted_tokens.tolist() == [len(times) for times in tokens]
    gaps = np.concatenate([np.diff(times) for times in tokens if times])
    stats = itl_stats_ns(records)
    assert stats.n == len(gaps) > 100
    assert stats.percentiles == tuple(np.quantile(gaps, [0.5, 0.9, 0.95, 0.99]).tolist())
    assert stats.mean == pytest.approx(gaps.mean(), rel=1e-12)
    longest = [int(np.diff(times).max()) if len(times) > 1 else -1 for times in tokens]
    assert max_itl_ns(records).tolist() == longest
    done = records.requests.status == Status.COMPLETED
    assert [times[-1] for times, ended in zip(tokens, done, strict=True) if ended] == records.requests.finished_ns[
        done
    ].tolist()
    middle = records.end_ns // 2
    assert tokens_between(records, 0, middle) == sum(token <= middle for times in tokens for token in times)
    for index in range(0, len(tokens), 7):
        assert token_times_ns(records, index).tolist() == tokens[index]
