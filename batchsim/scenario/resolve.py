"""A scenario -> the parts that a run is made of: the cost model built, the KV pool measured, schedulers and
requests on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from batchsim import cost
from batchsim.catalog import Engine, Gpu, Model
from batchsim.cost import CostContext, CostModel
from batchsim.errors import InvalidInput, Problem
from batchsim.kv.capacity import Capacity, kv_capacity
from batchsim.router import Router
from batchsim.scenario.scenario import Scenario
from batchsim.scheduler import Scheduler, attribute

if TYPE_CHECKING:
    from batchsim.metrics.slo import Slo
    from batchsim.workload.columns import Workload

NS_PER_S = 1_000_000_000
FROM_SCRATCH = ("orca", "sarathi", "tgi", "vllm_v0")
"""Schedulers that know no cached tokens."""


@dataclass(frozen=True, slots=True)
class Part:
    """Equal replicas of a run, and what each of them is made of. role: serve, prefill or decode."""

    name: str
    role: str
    scenario: Scenario
    cost: CostModel
    capacity: Capacity
    router: Callable[[], Router]

    @property
    def replicas(self) -> int:
        """How many there are."""
        return self.scenario.settings.replicas

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one is spread over."""
        return self.scenario.settings.tensor_parallel

    @property
    def scheduler_kind(self) -> str:
        """What their scheduler is called."""
        return self.scenario.kind("scheduler")

    def scheduler(self) -> Scheduler:
        """A fresh one for each replica."""
        made: Scheduler = replace(self.scenario.scheduler)
        return made

    def kv_bytes_per_token(self) -> int:
        """KV bytes of a token on each GPU."""
        scenario = self.scenario
        return scenario.model.kv_bytes_per_token(scenario.kv_cache.dtype, self.gpus_per_replica)


def gpus_of(parts: Iterable[Part]) -> int:
    """The GPUs of a run: the one count that the summary, per-GPU rates and costs use."""
    return sum(part.replicas * part.gpus_per_replica for part in parts)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Everything that `simulate` needs.

    parts: the kinds of replica there are; what stands beside (gpu, engine, cost, capacity, scheduler) is of the first.

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
    parts: tuple[Part, ...]
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
    parts = _parts(scenario)
    first = parts[0].scenario
    max_model_len = _max_model_len(scenario)
    horizon_s, price = scenario.settings.horizon_s, scenario.price
    warnings = [sentence for part in parts for sentence in _warnings(part.scenario, part.capacity, max_model_len)]
    return Resolved(
        scenario=scenario,
        model=scenario.model,
        gpu=first.gpu,
        engine=first.engine,
        cost=parts[0].cost,
        capacity=parts[0].capacity,
        max_model_len=max_model_len,
        replicas=sum(part.replicas for part in parts),
        gpus=gpus_of(parts),
        parts=parts,
        scheduler_kind=parts[0].scheduler_kind,
        scheduler=parts[0].scheduler,
        draw=lambda: _draw(scenario),
        slo=_slo(scenario),
        gpu_hour=None if price is None else price.gpu_hour,
        horizon_ns=None if horizon_s is None else round(horizon_s * NS_PER_S),
        ingress_ns=round(first.engine.ingress_ms * 1_000_000),
        warnings=tuple(dict.fromkeys((*scenario.warnings, *warnings))),
    )


def _parts(scenario: Scenario) -> tuple[Part, ...]:
    if not scenario.groups:
        return (_part(scenario, "replicas", "serve"),)
    _check_sides(scenario)
    return tuple(_part(group.scenario, group.name, group.role) for group in scenario.groups)


def _check_sides(scenario: Scenario) -> None:
    """Raise InvalidInput where a side's scheduler cannot hand over, or take over, KV."""
    problems = []
    for group in scenario.groups if scenario.disaggregation is not None else ():
        kind, path = group.scenario.kind("scheduler"), f"disaggregation.{group.role}.scheduler.kind"
        if attribute(group.scenario.scheduler, "pool", None) is not None:
            problems.append(Problem(path, "keeps KV memory of its own kind, which cannot be handed over", repr(kind)))
        elif group.role == "decode" and kind in FROM_SCRATCH:
            problems.append(Problem(path, "computes whole prompts: it cannot start from KV pulled", repr(kind)))
    if problems:
        raise InvalidInput(problems)


def _part(scenario: Scenario, name: str, role: str) -> Part:
    settings, model, gpu = scenario.settings, scenario.model, scenario.gpu
    model.check_tensor_parallel(settings.tensor_parallel)
    context = CostContext(
        model, gpu, settings.tensor_parallel, settings.dtype, scenario.kv_cache.dtype, scenario.engine, scenario.folder
    )
    capacity = kv_capacity(
        model, gpu, dtype=settings.dtype, tensor_parallel=settings.tensor_parallel, settings=scenario.kv_cache
    )
    return Part(
        name, role, scenario, cost.build(scenario.cost_model, context), capacity, lambda: replace(scenario.router)
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
    keys = {field.name for field in fields(scenario.scheduler)}
    unsaid = "async_scheduling" in keys and "async_scheduling" not in scenario.filled["scheduler"]
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
