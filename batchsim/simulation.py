"""A scenario -> a run: build the replicas, let SimPy run them, keep the records."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import metadata
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simpy import Environment

from batchsim.alarm import BEFORE_ALL, Alarm
from batchsim.assembly import assemble, pools
from batchsim.errors import NoProgress
from batchsim.fleet import Fleet
from batchsim.handoff import Handoff
from batchsim.recorder import Recorder, evictions, handoffs, spans
from batchsim.records import Records
from batchsim.scenario.resolve import Resolved, resolve
from batchsim.scenario.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

    from batchsim.study.run_plots import RunPlots
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
            extrapolated=self.extrapolated(),
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

    @property
    def plot(self) -> RunPlots:
        """Figures of the run, each a method that returns its Axes: `run.plot.timeline(20, 25)`."""
        from batchsim.study.run_plots import RunPlots

        return RunPlots(self)

    def _repr_html_(self) -> str:
        from batchsim.report.notebook import run_html

        return run_html(self)

    def write(self, folder: Path, *, format: str = "csv", figures: bool = True) -> list[Path]:  # noqa: A002 - the option's name
        """Write the files of `--out` and return their paths. figures: the pictures too (they load matplotlib)."""
        from batchsim.report.files import write_run

        written = write_run(folder, self.records, self.summary, requests_format=format)
        if figures:
            from batchsim.report.plots import write_figures

            written += write_figures(folder, self.records, self.resolved.slo)
        return written

    def extrapolated(self) -> float | None:
        """Share of the steps priced outside the range that the cost model was calibrated on; None without such a range."""
        import numpy as np

        rows = self.records.iterations
        ranged, steps = False, 0
        for made, pool in zip(self.resolved.parts, self.records.pools, strict=True):
            mine = slice(*np.searchsorted(rows.replica, [pool.first, pool.first + pool.replicas]).tolist())
            flags = made.cost.outside(rows.prefill_tokens[mine], rows.decode_seqs[mine], rows.context_tokens[mine])
            if flags:
                ranged = True
                steps += int(rows.repeats[mine][np.logical_or.reduce(list(flags.values()))].sum())
        total = int(rows.repeats.sum())
        return None if not ranged else steps / total if total else 0.0


def versions() -> dict[str, str]:
    """Of what computed the result."""
    return {name: _version(name) for name in ("batchsim", "simpy", "numpy")}


@cache
def _version(name: str) -> str:
    return metadata.version(name)  # reads files


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
    with _no_collector():
        records = _run(resolved, workload, step_log=step_log, stepwise=stepwise)
    return Run(resolved, records, time.perf_counter() - began)


@contextmanager
def _no_collector() -> Iterator[None]:
    """The cyclic garbage collector off: a run makes no cycles that outlive a step, and tens of thousands of waiting requests
    would be walked again and again (4 times the run's own time on the Mooncake trace)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _run(resolved: Resolved, workload: Workload, *, step_log: bool, stepwise: bool) -> Records:
    recorder = Recorder(log=step_log)
    made = assemble(resolved, workload, recorder, stepwise=stepwise)
    replicas, server = made.replicas, made.server
    quiet = True  # nothing is left that could happen
    for env, clients in made.worlds:
        clients.start()
        quiet = _until(env, resolved.horizon_ns) and quiet
    end_ns = max(replica.last_ns for replica in replicas) if resolved.horizon_ns is None else resolved.horizon_ns
    stuck = made.stuck() if quiet else None
    if stuck is not None and resolved.horizon_ns is None:
        raise NoProgress(stuck)
    made.close(end_ns)
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
        pools=pools(resolved.parts, replicas),
        handoffs=handoffs(server.rows, len(workload)) if isinstance(server, Handoff) else None,
        retries=server.retries if isinstance(server, Fleet) else server.prefill.retries if server is not None else 0,
        stuck=stuck,
    )


def _until(env: Environment, horizon_ns: int | None) -> bool:
    """Run to the end, or to the horizon, at which nothing happens any more; whether nothing was left to happen."""
    if horizon_ns is None:
        env.run()
        return True
    left: list[float] = []  # when the next event would come
    if horizon_ns > 0:
        env.run(until=Alarm(env, horizon_ns, BEFORE_ALL, lambda _: left.append(env.peek())))
    return left == [inf]
