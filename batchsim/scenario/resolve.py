"""A scenario -> the parts that a run is made of: the cost model built, the KV pool measured, schedulers and
requests on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from batchsim import cost
from batchsim.catalog import Engine, Gpu, Model
from batchsim.cost import CostContext, CostModel
from batchsim.kv.capacity import Capacity, kv_capacity
from batchsim.scenario.scenario import Scenario
from batchsim.scheduler import Scheduler

if TYPE_CHECKING:
    from batchsim.metrics.slo import Slo
    from batchsim.workload.columns import Workload

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Resolved:
    """Everything that `simulate` needs.

    max_model_len: longest prompt and answer together, tokens.  gpus: of all replicas.  gpu_hour: money, None
    without a price.
    slo: targets by class of traffic (`draw().classes`).  scheduler(): a fresh one for each replica.  draw(): the
    requests, the same each time.
    ingress_ns: from an arrival to the queue.  warnings: what a person should know before the run, one sentence each.
    """

    scenario: Scenario
    model: Model
    gpu: Gpu
    engine: Engine
    cost: CostModel
    capacity: Capacity
    max_model_len: int
    replicas: int
    gpus: int
    scheduler_kind: str
    scheduler: Callable[[], Scheduler]
    draw: Callable[[], Workload]
    slo: Mapping[str, Slo]
    gpu_hour: float | None
    horizon_ns: int | None
    ingress_ns: int
    warnings: tuple[str, ...]


def resolve(scenario: Scenario) -> Resolved:
    """The parts of a run. Raises `InvalidInput` for what does not go together, `DoesNotFit` where no KV cache
    fits."""
    settings, model, gpu = scenario.settings, scenario.model, scenario.gpu
    model.check_tensor_parallel(settings.tensor_parallel)
    context = CostContext(
        model, gpu, settings.tensor_parallel, settings.dtype, scenario.kv_cache.dtype, scenario.engine
    )
    capacity = kv_capacity(
        model, gpu, dtype=settings.dtype, tensor_parallel=settings.tensor_parallel, settings=scenario.kv_cache
    )
    max_model_len = _max_model_len(scenario)
    horizon_s, price = settings.horizon_s, scenario.price
    return Resolved(
        scenario=scenario,
        model=model,
        gpu=gpu,
        engine=scenario.engine,
        cost=cost.build(scenario.cost_model, context),
        capacity=capacity,
        max_model_len=max_model_len,
        replicas=settings.replicas,
        gpus=settings.replicas * settings.tensor_parallel,
        scheduler_kind=scenario.kind("scheduler"),
        scheduler=lambda: replace(scenario.scheduler),
        draw=lambda: _draw(scenario),
        slo=_slo(scenario),
        gpu_hour=None if price is None else price.gpu_hour,
        horizon_ns=None if horizon_s is None else round(horizon_s * NS_PER_S),
        ingress_ns=round(scenario.engine.ingress_ms * 1_000_000),
        warnings=(*scenario.warnings, *_warnings(scenario, capacity, max_model_len)),
    )


def _max_model_len(scenario: Scenario) -> int:
    wanted = scenario.settings.max_model_len
    return scenario.model.max_position_embeddings if wanted is None else wanted


def _warnings(scenario: Scenario, capacity: Capacity, max_model_len: int) -> list[str]:
    found: list[str] = []
    own = scenario.model.max_position_embeddings
    if max_model_len > own:
        found.append(
            f"max_model_len {max_model_len:,} is above the model's own {own:,}: a server would refuse it; lower it"
        )
    if capacity.tokens < max_model_len:
        found.append(
            f"the KV pool ({capacity.blocks:,} blocks of {capacity.block_size} = {capacity.tokens:,} tokens) is "
            f"smaller than max_model_len ({max_model_len:,}): longer requests are rejected; lower it, or add memory"
        )
    unsaid = hasattr(scenario.scheduler, "async_scheduling") and "async_scheduling" not in scenario.filled["scheduler"]
    if scenario.engine.async_scheduling and unsaid:
        found.append(
            f"engine {scenario.engine.name} schedules one step ahead, this run does not: TTFT at light load comes out "
            "too short; set scheduler.async_scheduling: false to say that you know"
        )
    return found


def _draw(scenario: Scenario) -> Workload:
    from batchsim.workload.draw import draw

    return draw(scenario.workload, scenario.settings.seed, scenario.folder)


def _slo(scenario: Scenario) -> dict[str, Slo]:
    """Targets by class: a class's own, else the scenario's; a workload of one class calls it `default`."""
    from batchsim.metrics.slo import Slo
    from batchsim.workload.description import Mix

    workload, general = scenario.workload, scenario.slo
    named = (
        {entry.name: entry.slo or general for entry in workload.mix}
        if isinstance(workload, Mix)
        else {"default": general}
    )
    return {
        name: Slo(found.ttft_ms, found.tpot_ms, found.itl_ms, found.e2e_ms)
        for name, found in named.items()
        if found is not None
    }
