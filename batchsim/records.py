"""What a run leaves behind, as columns: requests, iterations, and where every token's time can be read off.

Times are int64 nanoseconds on the simulation's clock; a time that never came is `NEVER`. The engine's own clock counts
femtoseconds, so that a run of k steps and k single steps end on the same nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchsim.compact import Column, narrow
from batchsim.workload.columns import Workload

Int64 = NDArray[np.int64]
NEVER = -1
FS_PER_NS = 1_000_000


class Status(IntEnum):
    """How a request stood when the run ended."""

    COMPLETED = 0
    REJECTED = 1
    CANCELLED = 2
    RUNNING = 3
    WAITING = 4
    UNSENT = 5  # beyond the horizon, or still in its client's queue: not submitted


@dataclass(frozen=True)
class Requests:
    """One entry a request, in file order (the workload's).

    arrival_ns: when the server got it (for a closed loop or a client cap: when it was really sent).
    scheduled_ns: when its schedule would have sent it (equal to arrival_ns without a client cap).
    admitted_ns: start of the first step that scheduled it.  first_token_ns, finished_ns: ends of steps, or NEVER.
    emitted_tokens: tokens it streamed (all of output_tokens when completed).
    waited_ns, ran_ns: time in the queue and time holding a seat, preemptions and an unfinished end included.
    odd_gap_ns: the longest gap between two of its tokens that no tick of the batch shows (see `Spans`), 0 if none.
    reasons: why, for the rejected and cancelled, by index.
    """

    status: NDArray[np.int8]
    replica: Column = Column()
    arrival_ns: Column = Column()
    scheduled_ns: Column = Column()
    admitted_ns: Column = Column()
    first_token_ns: Column = Column()
    finished_ns: Column = Column()
    prompt_tokens: Column = Column()
    output_tokens: Column = Column()
    emitted_tokens: Column = Column()
    preemptions: Column = Column()
    recomputed_tokens: Column = Column()
    prefix_hit_tokens: Column = Column()
    resume_hit_tokens: Column = Column()
    waited_ns: Column = Column()
    ran_ns: Column = Column()
    odd_gap_ns: Column = Column()
    reasons: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.status)


@dataclass(frozen=True)
class Iterations:
    """One row a step, or a run of `repeats` equal decode steps, in order of time for each replica.

    start_ns, end_ns: of the whole row.  first_fs, growth_fs: the first step lasts first_fs femtoseconds, each further one
    growth_fs longer than the one before; start_frac_fs: the exact start is start_ns * FS_PER_NS + start_frac_fs.
    So the end of the j-th step (from 1) is
        round_half_up(start + j * first_fs + growth_fs * j * (j - 1) / 2)   -> `step_ends_ns`.
    prefill_tokens, prefill_s2_x2: computed prompt tokens (padding included), and twice the sum of chunk * (past + chunk / 2).
    decode_seqs, context_tokens: sequences decoding (padding rows included) and the sum of their contexts, in the row's FIRST step.
    padded_tokens: tokens of one step that were computed for nobody (static padding of prompts, rows that have ended).
    running, waiting, kv_blocks_used: as after scheduling, before its finishes, in the LAST repeat.  kv_blocks_first: in the first.
    preempted: requests evicted.
    Ticks: a step in which anyone decodes is a tick of the batch's decode clock. tick_before counts this replica's ticks
    before the row (the row holds `repeats` ticks if decode_seqs > 0, else none). In the first tick of the row
    `steady_seqs` sequences have the gap (end of this tick - end of the replica's previous tick), and in each further tick
    `streaming_seqs` sequences have the gap (duration of that step). All other gaps are in `Spans.odd_gaps_ns`.
    """

    replica: Column = Column()
    start_ns: Column = Column()
    end_ns: Column = Column()
    repeats: Column = Column()
    prefill_tokens: Column = Column()
    prefill_s2_x2: Column = Column()
    decode_seqs: Column = Column()
    context_tokens: Column = Column()
    padded_tokens: Column = Column()
    running: Column = Column()
    waiting: Column = Column()
    kv_blocks_used: Column = Column()
    kv_blocks_first: Column = Column()
    preempted: Column = Column()
    tick_before: Column = Column()
    steady_seqs: Column = Column()
    streaming_seqs: Column = Column()
    first_fs: Column = Column()
    growth_fs: Column = Column()
    start_frac_fs: Column = Column()

    def __len__(self) -> int:
        return len(narrow(self, "start_ns"))


@dataclass(frozen=True)
class Spans:
    """When requests streamed: at every tick t with from_tick < t <= to_tick of its replica, request `index` took one token,
    and the gap before that token is the time between the ends of ticks t - 1 and t (ticks count from 1).

    odd_gaps_ns: every other gap between consecutive tokens of a request (the first decode after a step without decodes,
    the return from a preemption or a rest); odd_index: whose; odd_end_ns: when the token behind it came.
    """

    index: Column = Column()
    replica: Column = Column()
    from_tick: Column = Column()
    to_tick: Column = Column()
    odd_gaps_ns: Column = Column()
    odd_index: Column = Column()
    odd_end_ns: Column = Column()


@dataclass(frozen=True, slots=True)
class Evictions:
    """One entry a preemption: request `index` lost its seat at evicted_ns and had one again at resumed_ns, or NEVER."""

    index: Int64
    evicted_ns: Int64
    resumed_ns: Int64


@dataclass(frozen=True, slots=True)
class Handoffs:
    """Prefill and decode apart: one entry a request, in file order; NEVER where it did not come so far.

    prefill_replica: which computed the prompt.  prefilled_ns: when that was done.  pulled_ns: when the decode side held
    blocks for it.  landed_ns: when its KV was there.  decode_ns: start of the first step there that scheduled it.
    `Requests.admitted_ns` is the prefill side's.
    """

    prefill_replica: Int64
    prefilled_ns: Int64
    pulled_ns: Int64
    landed_ns: Int64
    decode_ns: Int64


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal replicas of a fleet, numbered from `first` on. role: serve, prefill or decode."""

    name: str
    role: str
    first: int
    replicas: int
    gpus_per_replica: int
    gpu: str
    kv_blocks: int  # of one replica
    block_size: int

    @property
    def numbers(self) -> range:
        """The numbers of its replicas."""
        return range(self.first, self.first + self.replicas)


@dataclass(frozen=True, slots=True)
class Records:
    """Everything a run recorded. `end_ns`: the horizon if one was set, else the last event.

    kv_blocks_total, block_size: of one replica, the first where they differ (`pools` says all of them).
    retries: how often a router tried a further replica.  stuck: what stood still when the horizon came, with nothing left to
    happen; None where the run was on its way.
    """

    workload: Workload
    requests: Requests
    iterations: Iterations
    spans: Spans
    evictions: Evictions
    end_ns: int
    horizon_ns: int | None
    kv_blocks_total: int  # of one replica
    block_size: int
    replicas: int
    step_log: list[dict[str, Any]] | None = None
    pools: tuple[Pool, ...] = ()
    handoffs: Handoffs | None = None
    retries: int = 0
    stuck: str | None = None

    def kv_blocks(self) -> Int64:
        """KV blocks of each replica, by number."""
        if not self.pools:
            return np.full(self.replicas, self.kv_blocks_total, dtype=np.int64)
        return np.repeat([pool.kv_blocks for pool in self.pools], [pool.replicas for pool in self.pools])


def step_ends_ns(start_ns: Int64, frac_fs: Int64, first_fs: Int64, growth_fs: Int64, step: Int64) -> Int64:
    """End of the `step`-th step (from 1) of rows that start at start_ns + frac_fs: whole nanoseconds, halves up."""
    offset = frac_fs + step * first_fs + growth_fs * (step * (step - 1) // 2)
    return np.asarray(start_ns + (offset + FS_PER_NS // 2) // FS_PER_NS)
