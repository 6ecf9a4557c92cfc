"""Reports of small studies, for the tests of their files and of what a browser makes of them."""

from __future__ import annotations

import functools

from batchsim import compare, plan, simulate, sweep
from batchsim.report import pages
from batchsim.report.document import Page
from tests.study.given import one_at_a_time, small

RATE = "workload.arrivals.rate_per_s"
TARGETS = {"ttft_ms": 200, "tpot_ms": 40, "percentile": 95}


@functools.cache
def made(name: str) -> Page:
    """The report of a run, comparison, sweep, plan, or of a plan that cannot be."""
    base = small(slo=TARGETS, price={"gpu_hour": 2.0})
    if name == "run":
        return pages.run_page(simulate(base), command="batchsim run study.yaml --report")
    if name == "compare":
        return pages.compare_page(compare(base, ["static", "vllm"]))
    if name == "sweep":
        return pages.sweep_page(sweep(base, {RATE: [2, 6, 10, 14], "scheduler.max_num_seqs": [8, 64]}, jobs=1))
    if name == "plan":
        return pages.plan_page(plan(one_at_a_time(requests=300, rate_per_s=3.0, ttft_ms=2000.0), seeds=2))
    assert name == "infeasible"
    return pages.plan_page(plan(small(slo={"ttft_ms": 1})))


NAMES = ("run", "compare", "sweep", "plan", "infeasible")
