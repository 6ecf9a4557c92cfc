"""How evenly service was shared: Jain's index over tenants, the longest wait of each class and tenant."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchsim.metrics.latency import NS_PER_MS, submitted
from batchsim.records import NEVER, Records

Int64 = NDArray[np.int64]


def jain(shares: NDArray[np.float64] | Int64) -> float | None:
    """(sum x)^2 / (n sum x^2): 1 when all are equal, 1/n when one has everything; None where nobody has anything."""
    values = np.asarray(shares, dtype=np.float64)
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / (len(values) * squares)) if squares > 0 else None


def output_tokens_by_tenant(records: Records) -> Int64:
    """Tokens streamed to each tenant, in the order of the workload's tenants."""
    workload = records.workload
    counts = np.bincount(workload.tenant, records.requests.emitted_tokens, minlength=len(workload.tenants))
    return counts.astype(np.int64)


def longest_wait_ms(records: Records, members: NDArray[np.bool_]) -> float | None:
    """The longest time from arrival to admission among some requests, ms.

    One that was never admitted counts until it left or the run ended: the longest waits are theirs.
    """
    requests = records.requests
    mine = members & submitted(requests)
    if not mine.any():
        return None
    until = np.where(requests.admitted_ns != NEVER, requests.admitted_ns, requests.arrival_ns + requests.waited_ns)
    return float((until - requests.arrival_ns)[mine].max() / NS_PER_MS)
