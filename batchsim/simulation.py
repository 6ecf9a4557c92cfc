"""A scenario -> a run: build the replicas, let SimPy run them, keep the records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import metadata
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simpy import Environment

from batchsim.cluster import Clients
from batchsim.engine import Engine
from batchsim.errors import NoProgress
from batchsim.kv.blocks import BlockPool
from batchsim.kv.content import Contents
from batchsim.kv.own import OwnBlocks
from batchsim.kv.prefix import PrefixCache
from batchsim.recorder import Recorder, evictions, spans
from batchsim.records import Records
from batchsim.replica import BEFORE_ALL, Alarm, Replica
from batchsim.request import Request
from batchsim.scenario.resolve import Resolved, resolve
from batchsim.scenario.scenario import Scenario
from batchsim.scheduler import Scheduler, attribute
from batchsim.workload.columns import ABSENT

if TYPE_CHECKING:
    import pandas as pd

    from batchsim.workload.columns import Workload


class Run:
    """One run: what was asked, the records, and everything computed from them, when asked for."""

    def __init__(self, resolved: Resolved, records: Records, wall_s: float) -> None:
        self.resolved = resolved
        self.records = records
        self.wall_s = wall_s  # of the simulation alone

    @property
    def scenario(self) -> Scenario:
        """The scenario as run."""
        return self.resolved.scenario

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The figures of `summary.json`."""
        from batchsim.metrics.summary import SummaryContext, summary

        resolved = self.resolved
        context = SummaryContext(
            gpus=resolved.gpus,
            slo=resolved.slo,
            gpu_hour=resolved.gpu_hour,
            extrapolated=self._extrapolated(),
            warnings=resolved.warnings,
            scenario=resolved.scenario.to_dict(),
            versions=versions(),
        )
        return summary(self.records, context)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request, the columns of `requests.csv`."""
        from batchsim.report.files import requests_frame

        return requests_frame(self.records)

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """One row a step or run of equal steps, the columns of `iterations.csv`."""
        from batchsim.report.files import iterations_frame

        return iterations_frame(self.records)

    def write(self, folder: Path, *, format: str = "csv", figures: bool = True) -> list[Path]:  # noqa: A002 - the option's name
        """Write the files of `--out` and return their paths. figures: the pictures too (they load matplotlib)."""
        from batchsim.report.files import write_run

        written = write_run(folder, self.records, self.summary, requests_format=format)
        if figures:
            from batchsim.report.plots import write_figures

            written += write_figures(folder, self.records, self.resolved.slo)
        return written

    def _extrapolated(self) -> float | None:
        rows = self.records.iterations
        flags = self.resolved.cost.outside(rows.prefill_tokens, rows.decode_seqs, rows.context_tokens)
        if not flags:
            return None
        outside = None
        for flag in flags.values():
            outside = flag if outside is None else outside | flag
        total = int(rows.repeats.sum())
        return int(rows.repeats[outside].sum()) / total if total else 0.0


def clients_listen(workload: Workload) -> bool:
    """Whether what clients send depends on the answers that they get, or on getting none."""
    gives_up = bool((workload.cancel_ns != ABSENT).any())
    return workload.clients is not None or workload.max_concurrency is not None or gives_up


def versions() -> dict[str, str]:
    """Of what computed the result."""
    return {name: metadata.version(name) for name in ("batchsim", "simpy", "numpy")}


def simulate(
    scenario: Scenario | Resolved, *, step_log: bool = False, stepwise: bool = False, workload: Workload | None = None
) -> Run:
    """Run a scenario. step_log: record every step; stepwise: take no runs of steps as one event (slower, same results).

    workload: these requests instead of the scenario's own. Raises InvalidInput, RuleBroken, NoProgress.
    """
    resolved = scenario if isinstance(scenario, Resolved) else resolve(scenario)
    if workload is None:
        workload = resolved.draw()
    began = time.perf_counter()
    records = _run(resolved, workload, step_log=step_log, stepwise=stepwise)
    return Run(resolved, records, time.perf_counter() - began)


def _run(resolved: Resolved, workload: Workload, *, step_log: bool, stepwise: bool) -> Records:
    env = Environment(0)
    recorder = Recorder(log=step_log)
    contents = Contents(workload.prefixes)
    alone = resolved.replicas == 1 and not stepwise and not clients_listen(workload)
    replicas = [
        _replica(env, number, resolved, contents, recorder, stepwise=stepwise, alone=alone)
        for number in range(resolved.replicas)
    ]
    turns = cycle(replicas)
    clients = Clients(
        env, workload, replicas, lambda request: next(turns), recorder, front_door(resolved),
        max_model_len=resolved.max_model_len, pool_tokens=resolved.capacity.tokens, ingress_ns=resolved.ingress_ns,
        horizon_ns=resolved.horizon_ns,
    )  # fmt: skip
    if not alone:
        for replica in replicas:
            replica.engine.on_done = clients.done
    clients.start()
    _until(env, resolved.horizon_ns)
    end_ns = max(replica.last_ns for replica in replicas) if resolved.horizon_ns is None else resolved.horizon_ns
    for replica in replicas:
        stuck = replica.stuck() if resolved.horizon_ns is None else None
        if stuck is not None:
            raise NoProgress(stuck)
        replica.close(end_ns)
    groups = [(replica.engine.number, replica.batch.group) for replica in replicas]
    return Records(
        workload=workload,
        requests=recorder.requests(workload),
        iterations=recorder.iterations(),
        spans=spans([(number, group.spans, group.odd_gaps) for number, group in groups]),
        evictions=evictions([replica.batch.evictions for replica in replicas]),
        end_ns=end_ns,
        horizon_ns=resolved.horizon_ns,
        kv_blocks_total=replicas[0].batch.pool.total,
        block_size=replicas[0].batch.block,
        replicas=resolved.replicas,
        step_log=recorder.steps,
    )


def _until(env: Environment, horizon_ns: int | None) -> None:
    """Run to the end, or to the horizon, at which nothing happens any more."""
    if horizon_ns is None:
        env.run()
    elif horizon_ns > 0:
        env.run(until=Alarm(env, horizon_ns, BEFORE_ALL, lambda _: None))


def _replica(
    env: Environment, number: int, resolved: Resolved, contents: Contents, recorder: Recorder, *, stepwise: bool, alone: bool
) -> Replica:
    scheduler = resolved.scheduler()
    engine = Engine(
        number,
        scheduler,
        _pool(resolved, scheduler, contents),
        recorder,
        name=resolved.scheduler_kind,
        max_model_len=resolved.max_model_len,
        log=recorder.steps is not None,
    )
    return Replica(
        env,
        engine,
        resolved.cost,
        single=resolved.replicas == 1,
        alone=alone,
        step=stepwise,
        ahead=attribute(scheduler, "async_scheduling", False),
        horizon_ns=resolved.horizon_ns,
    )


def _pool(resolved: Resolved, scheduler: Scheduler, contents: Contents) -> BlockPool:
    """The scheduler's own kind of KV memory, else blocks that remember their contents or do not."""
    capacity = resolved.capacity
    own = attribute(scheduler, "pool", None)
    if own is not None:
        pool: BlockPool = own(capacity.tokens, contents)
        return pool
    if not attribute(scheduler, "caching", False):
        return BlockPool(capacity.blocks, capacity.block_size)
    return cache(scheduler, capacity.blocks, capacity.block_size, contents)


def cache(scheduler: Scheduler, blocks: int, block_size: int, contents: Contents) -> BlockPool:
    """vLLM's prefix cache, in its short form where the workload shares nothing."""
    if contents.shared or attribute(scheduler, "evicts_served", True):
        return PrefixCache(blocks, block_size, contents)
    return OwnBlocks(blocks, block_size)


def front_door(resolved: Resolved) -> Callable[[Request], str | None]:
    """Says why a request could never be served, whatever the scheduler, naming both numbers; None if it could."""
    blocks, block_size, longest = resolved.capacity.blocks, resolved.capacity.block_size, resolved.max_model_len

    def look(request: Request) -> str | None:
        prompt = request.prompt_tokens
        output = request.max_tokens if request.declared else request.wanted_tokens
        if prompt + output > longest:
            return f"prompt and output of {prompt + output} tokens exceed max_model_len {longest}"
        need = -(-(prompt + output - 1) // block_size)
        if need > blocks:
            return f"needs {need} KV blocks, the cache has {blocks}"
        return None

    return look
