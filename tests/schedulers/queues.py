"""What tests of queueing policies measure: waits, overtakes, who was admitted before whom, service by tenant."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.scenario import Scenario, scenario
from batchsim.simulation import Run, simulate
from tests.schedulers.runs import LIN, Row

SMALL = {"max_num_seqs": 4, "max_num_batched_tokens": 256}


def drawn(scheduler: Mapping[str, Any], workload: Mapping[str, Any], **more: Any) -> Scenario:
    """A scenario with a drawn workload on the textbook cost model."""
    given: dict[str, Any] = {
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "engine": {"overhead_ms": 0}, "cost_model": dict(LIN),
        "kv_cache": {"block_size": 16, "num_blocks": 100_000}, "scheduler": dict(scheduler), "workload": dict(workload),
    }  # fmt: skip
    return scenario(given | more)


def crowd(seed: int, count: int, **more: Any) -> list[Row]:
    """Requests of mixed sizes that arrive faster than four seats can serve."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        output = rng.choice([1, 4, 20, 60])
        rows.append(
            {"arrival_ms": rng.randrange(0, 900), "prompt_tokens": rng.choice([5, 40, 90, 150]),
             "output_tokens": output, "max_tokens": output, **{key: rng.choice(values) for key, values in more.items()}}
        )  # fmt: skip
    return sorted(rows, key=lambda row: row["arrival_ms"])


def waits_ms(run: Run) -> NDArray[np.float64]:
    """From arrival to admission, ms, of everyone."""
    requests = run.records.requests
    return np.asarray((requests.admitted_ns - requests.arrival_ns) / 1e6)


def first_admissions(run: Run) -> list[int]:
    """Requests in the order in which they were first admitted, within a step as well."""
    workload = run.records.workload
    place = {workload.id_of(index): index for index in range(len(workload))}
    seen: dict[int, None] = {}
    for step in run.records.step_log or []:
        for name, _, before in step["sched"]:
            if before == 0:
                seen.setdefault(place[name])
    return list(seen)


def most_overtakes(run: Run) -> int:
    """The most often that anyone was passed over: requests that came later and were admitted earlier."""
    arrival = run.records.requests.arrival_ns
    order = first_admissions(run)
    return max(
        sum(1 for other in order[:turn] if (arrival[other], other) > (arrival[index], index))
        for turn, index in enumerate(order)
    )


def logged(case: Scenario) -> Run:
    """A run with its step log."""
    return simulate(case, step_log=True)
