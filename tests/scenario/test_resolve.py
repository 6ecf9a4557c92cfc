"""From a scenario to the parts of a run."""

from __future__ import annotations

import pytest

from batchsim.errors import DoesNotFit, InvalidInput
from batchsim.metrics.slo import Slo
from batchsim.scenario import load, resolve


def test_the_parts_of_the_quickstart() -> None:
    """One replica on one GPU, the preset's share of memory, targets and price; two draws of the requests are the
    same."""
    parts = resolve(load("quickstart"))
    assert (parts.replicas, parts.gpus, parts.gpu_hour, parts.horizon_ns) == (1, 1, 2.0, None)
    assert parts.slo == {"default": Slo(ttft_ms=500.0, tpot_ms=15.0)}
    assert parts.max_model_len == parts.model.max_position_embeddings
    assert parts.capacity.blocks > 20_000
    first, second = parts.draw(), parts.draw()
    assert len(first) == 2000
    assert (first.arrival_ns == second.arrival_ns).all()
    assert (first.prompt_tokens == second.prompt_tokens).all()


def test_every_replica_has_a_scheduler_of_its_own() -> None:
    """Two schedulers of one scenario are equal and not the same."""
    parts = resolve(load("quickstart"))
    assert parts.scheduler() == parts.scheduler()
    assert parts.scheduler() is not parts.scheduler()


def test_a_pool_smaller_than_the_longest_request_is_allowed_with_a_warning() -> None:
    """40 blocks of 16 are 640 tokens, fewer than the model's limit: the warning names both numbers; a lower limit
    ends it."""
    small = load("quickstart", ["kv_cache.num_blocks=40", "scheduler.async_scheduling=false"])
    (warning,) = resolve(small).warnings
    assert "40 blocks of 16 = 640 tokens" in warning
    assert "131,072" in warning
    assert resolve(small.replace("max_model_len=640")).warnings == ()


def test_what_does_not_fit_or_does_not_divide_is_refused() -> None:
    """A 70B model has no room on one H100; 3 GPUs cannot share 32 heads."""
    with pytest.raises(DoesNotFit, match="does not fit on h100-sxm"):
        resolve(load("quickstart", ["model=llama-3.1-70b"]))
    with pytest.raises(InvalidInput, match="tensor_parallel: 3: must divide the 32 attention heads"):
        resolve(load("quickstart", ["tensor_parallel=3"]))


def test_units_become_nanoseconds_and_gpus_are_counted() -> None:
    """A horizon of 1.5 s is 1.5e9 ns; two replicas on two GPUs each are four."""
    parts = resolve(load("quickstart", ["horizon_s=1.5", "replicas=2", "tensor_parallel=2"]))
    assert parts.horizon_ns == 1_500_000_000
    assert parts.gpus == 4


def test_classes_without_targets_of_their_own_take_the_scenario_s() -> None:
    """In a mix, a class's own targets stand in place of the general ones."""
    lengths = "prompt_tokens: {kind: fixed, tokens: 9}, output_tokens: {kind: fixed, tokens: 9}"
    mix = f"[{{name: a, share: 0.5, {lengths}}}, {{name: b, share: 0.5, slo: {{e2e_ms: 9}}, {lengths}}}]"
    parts = resolve(load("quickstart", [f"workload={{requests: 4, arrivals: {{kind: burst}}, mix: {mix}}}"]))
    assert parts.slo == {"a": Slo(ttft_ms=500.0, tpot_ms=15.0), "b": Slo(e2e_ms=9.0)}
