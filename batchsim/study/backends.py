"""Where the runs of a study are computed: here, in processes of this machine, on a Dask cluster, on Ray.

Each backend is a generator of (place, row) in the order in which runs end; the caller puts them back in theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from batchsim.errors import InvalidInput, Problem
from batchsim.study.work import Row, Task, run_task

NAMES = ("processes", "dask", "ray")
Done = Iterator[tuple[int, Row]]


def compute(tasks: Sequence[Task], *, backend: str = "processes", jobs: int | None = None, address: str = "") -> Done:
    """The rows of tasks as they end, each with its task's place.

    jobs: worker processes, None: one a core. address: of a running Dask scheduler or Ray cluster; "": a local one.
    Raises `InvalidInput` for an unknown backend, or one whose package is not installed.
    """
    if backend not in NAMES:
        raise InvalidInput([Problem("--backend", f"must be one of {', '.join(NAMES)}", backend)])
    if jobs is not None and jobs < 1:
        raise InvalidInput([Problem("--jobs", "must be at least 1", str(jobs))])
    workers = min(jobs or os.cpu_count() or 1, max(len(tasks), 1))
    if backend == "processes":
        return _here(tasks) if workers == 1 else _processes(tasks, workers)
    return {"dask": _dask, "ray": _ray}[backend](tasks, workers, address)


def _numbered(place: int, task: Task) -> tuple[int, Row]:
    return place, run_task(task)


def _here(tasks: Sequence[Task]) -> Done:
    for place, task in enumerate(tasks):
        yield _numbered(place, task)


def _processes(tasks: Sequence[Task], workers: int) -> Done:
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1, pre_dispatch="3*n_jobs")
    yield from pool(delayed(_numbered)(place, task) for place, task in enumerate(tasks))


def _dask(tasks: Sequence[Task], workers: int, address: str) -> Done:
    client_class, as_completed = _imported("dask", "distributed", "Client", "as_completed")
    options: dict[str, Any] = {"address": address} if address else {
        "n_workers": workers, "threads_per_worker": 1, "dashboard_address": None
    }  # fmt: skip
    with client_class(**options) as client:
        futures = client.map(_numbered, range(len(tasks)), list(tasks), pure=False)
        for _, result in as_completed(futures, with_results=True):
            yield result


def _ray(tasks: Sequence[Task], workers: int, address: str) -> Done:
    init, remote, wait, get, shutdown = _imported("ray", "ray", "init", "remote", "wait", "get", "shutdown")
    init(**({"address": address} if address else {"num_cpus": workers, "include_dashboard": False}))
    try:
        call = remote(_numbered)
        waiting = [call.remote(place, task) for place, task in enumerate(tasks)]
        while waiting:
            ready, waiting = wait(waiting)
            yield from get(ready)
    finally:
        shutdown()


def _imported(extra: str, module: str, *names: str) -> tuple[Callable[..., Any], ...]:
    from importlib import import_module

    try:
        found = import_module(module)
    except ImportError as missing:
        rule = f"needs {extra}: pip install 'batchsim[{extra}]'"
        raise InvalidInput([Problem("--backend", rule, extra)]) from missing
    return tuple(getattr(found, name) for name in names)
