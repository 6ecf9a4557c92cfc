"""What every field of the output files is: unit and definition, in one place. `reference` makes the page of it.

Tests hold it against real runs: a field without an entry here, or an entry without a field, fails.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its name, its unit (empty: a count or a text), what it is, and when it is there if not always."""

    name: str
    unit: str
    meaning: str
    when: str = ""


LATENCIES = {
    "ttft": "TTFT: first token − arrival, queue included; every request that got a first token",
    "tpot": "TPOT: (E2E − TTFT) / (output tokens − 1); completed requests of two tokens or more",
    "itl": "ITL: every gap between consecutive tokens, pooled over requests, unfinished ones too",
    "e2el": "E2E: last token − arrival; completed requests",
    "client_queue": "time in the client's own queue, from the scheduled to the real sending",
    "from_schedule_ttft": "TTFT counted from when the schedule would have sent the request",
    "from_schedule_e2el": "E2E counted from when the schedule would have sent the request",
}
"""The latencies of a summary; each has the keys of STATISTICS."""

STATISTICS = (
    Field("mean_X_ms", "ms", "mean"),
    Field("median_X_ms", "ms", "median, the same as p50"),
    Field("std_X_ms", "ms", "standard deviation of the sample (divided by n)"),
    Field("p50_X_ms", "ms", "50th percentile; all percentiles interpolate linearly between order statistics"),
    Field("p90_X_ms", "ms", "90th percentile"),
    Field("p95_X_ms", "ms", "95th percentile"),
    Field("p99_X_ms", "ms", "99th percentile"),
    Field("max_X_ms", "ms", "largest"),
    Field("n_X", "", "how many there are; a warning tells where too few for a percentile"),
)

_TENANTS = "several tenants"
_POOLS = "a run by the command line"
SUMMARY = (
    Field("duration", "s", "first arrival to last completion, or to the horizon if one is set; rates count over it"),
    Field("completed", "", "requests that got all their tokens"),
    Field("failed", "", "rejected + cancelled"),
    Field("total_input_tokens", "tokens", "prompt tokens of the requests with a first token"),
    Field("total_output_tokens", "tokens", "tokens streamed, of unfinished requests too"),
    Field("request_throughput", "1/s", "completed over duration"),
    Field("request_goodput", "1/s", "requests that met all their targets, over duration; null without targets"),
    Field("output_throughput", "tokens/s", "total_output_tokens over duration"),
    Field("total_token_throughput", "tokens/s", "input and output tokens over duration"),
    Field("submitted", "", "requests that reached the server: completed + running + waiting + rejected + cancelled"),
    Field("rejected", "", "requests turned away: never servable, or a queue was full or a wait too long"),
    Field("cancelled", "", "requests whose client gave up"),
    Field("running_at_end", "", "requests with a seat when the run ended"),
    Field("waiting_at_end", "", "requests in the queue when the run ended"),
    Field("preemptions", "", "evictions: a running request lost its seat and its KV blocks"),
    Field("recomputed_tokens", "tokens", "computed tokens lost at evictions, less those hit again in the prefix cache"),
    Field("prefix_hit_tokens", "tokens", "prompt tokens found in the prefix cache at first admissions"),
    Field("resume_hit_tokens", "tokens", "tokens found in the prefix cache at admissions after an eviction"),
    Field("iterations", "", "steps that were executed"),
    Field("gpus", "", "GPUs of all replicas; cost and per-GPU figures use it"),
    Field(
        "gpu_busy_fraction",
        "share",
        "time in steps over duration, mean of replicas; without a step cut by the horizon",
    ),
    Field("mean_running", "requests", "requests with a seat, averaged over duration"),
    Field("mean_waiting", "requests", "requests in the queue, averaged over duration"),
    Field("kv_blocks_total", "blocks", "KV blocks of one replica that requests can use"),
    Field("kv_peak_fraction", "share", "the fullest that a replica's KV cache was; idle cached blocks do not count"),
    Field("kv_mean_fraction", "share", "KV blocks in use over all, averaged over duration and replicas"),
    Field("slo_attainment", "share", "good over submitted, of the classes with targets; null without targets"),
    Field("cost_per_million_output_tokens", "money", "all GPUs for the whole duration, over the tokens streamed"),
    Field("stable", "", "false: the backlog grows by more than 2 % of the offered rate; null for burst, closed loop"),
    Field("extrapolated", "share", "steps priced outside the cost profile's measured range; null without such a range"),
    Field("padded_fraction", "share", "computed tokens that were for nobody: padding, seats of ended requests"),
    Field("slo_attainment_by_target", "share", "each target alone: met over submitted; null without targets"),
    Field("offered_rate_per_s", "1/s", "arrivals over the time in which they came; null where `stable` is"),
    Field("served_rate_per_s", "1/s", "completions up to the last arrival, over the same time"),
    Field("mean_queue_ms", "ms", "mean time from arrival to the first step that schedules a request"),
    Field("censored_requests", "", "running and waiting at the end: their latencies are missing or too low"),
    Field(
        "shared_sub_block_tokens",
        "tokens",
        "tokens that prompts share with earlier ones, but not in whole blocks: no hit",
    ),
    Field("used_gpus", "", "GPUs of the replicas that ran a step at all"),
    Field("request_throughput_per_owned_gpu", "1/s", "request_throughput over gpus"),
    Field("request_throughput_per_used_gpu", "1/s", "request_throughput over used_gpus"),
    Field("output_throughput_per_owned_gpu", "tokens/s", "output_throughput over gpus"),
    Field("output_throughput_per_used_gpu", "tokens/s", "output_throughput over used_gpus"),
    Field("padded_tokens", "tokens", "computed for nobody: padding, seats of ended requests"),
    Field("recomputed_fraction", "share", "recomputed_tokens over all computed tokens"),
    Field("recomputed_tokens_per_s", "tokens/s", "recomputed_tokens over duration"),
    Field("preemptions_per_s", "1/s", "preemptions over duration"),
    Field("longest_wait_ms", "ms", "the longest time from arrival to admission; never admitted: until it left"),
    Field("mean_service_ms", "ms", "mean time with a seat of the completed, rests and lost work included"),
    Field("queue_share", "share", "time without a seat over all the time that requests spent in the system"),
    Field("jain_weighted_tokens", "", "Jain's index of tenants' service, an output token counting twice; 1 is even"),
    Field(
        "token_bound_fraction",
        "share",
        "steps that used up the token budget; null for static, dynamic, tgi, sglang, "
        "and vllm_v0 without a limit, whose steps have no budget to use up",
    ),
    Field("seat_bound_fraction", "share", "steps with all seats taken; null likewise"),
    Field(
        "kv_bound_fraction", "share", "steps in which somebody waited though seats and tokens were left; null likewise"
    ),
    Field("retries", "", "how often a router tried a further replica", "several replicas"),
    Field("groups", "", "a list: each group of a fleet with its own figures", "a fleet of several groups"),
    Field("phases", "ms", "the six phases of a request's time, with mean, percentiles, longest, n", "disaggregation"),
    Field("classes", "", "by class of traffic: the figures of its requests, see below", "several classes"),
    Field("tenants", "", "how evenly tenants were served, see below", _TENANTS),
    Field("window", "", "a part of the run: latency by request start, throughput by token time", "a window"),
    Field("warnings", "", "what makes a figure less than it looks, a sentence each, and what to do"),
    Field("scenario", "", "the scenario as run, defaults filled in"),
    Field("versions", "", "of batchsim, SimPy and numpy"),
)

CLASSES = (
    Field("submitted", "", "its requests that reached the server"),
    Field("completed", "", "those that got all their tokens"),
    Field("failed", "", "rejected + cancelled"),
    Field("request_throughput", "1/s", "completed over the run's duration"),
    Field("request_goodput", "1/s", "those that met all their targets, over duration; null without targets"),
    Field("output_throughput", "tokens/s", "tokens streamed to it over duration"),
    Field("slo_attainment", "share", "good over submitted; null without targets"),
    Field("slo_attainment_by_target", "share", "each target alone"),
    Field("preemptions", "", "evictions of its requests"),
    Field("preemptions_per_s", "1/s", "those over duration"),
    Field("recomputed_tokens", "tokens", "computed tokens that its requests lost, less those hit again"),
    Field("recomputed_tokens_per_s", "tokens/s", "those over duration"),
    Field("longest_wait_ms", "ms", "the longest time from arrival to admission; never admitted: until it left"),
    Field("mean_queue_ms", "ms", "mean time from arrival to the first step that schedules a request"),
    Field("mean_service_ms", "ms", "mean time with a seat of the completed, rests and lost work included"),
    Field("queue_share", "share", "time without a seat over all the time that its requests spent in the system"),
    Field(
        "jain_weighted_tokens", "", "Jain's index over the tenants that have requests in it; null for fewer than two"
    ),
)
"""A class of traffic in `summary.json`; the latencies come on top."""

TENANTS = (
    Field("jain_weighted_tokens", "", "Jain's index of the tenants' weighted tokens; 1 is even, 1/n is all to one"),
    Field("weighted_tokens", "tokens", "by tenant: prompt tokens with a first token + 2 · tokens streamed"),
    Field("jain_output_tokens", "", "Jain's index of the tokens streamed"),
    Field("output_tokens", "tokens", "by tenant: tokens streamed"),
    Field(
        "longest_wait_ms", "ms", "by tenant: the longest time from arrival to admission; never admitted: until it left"
    ),
)

_CAP = "`workload.max_concurrency` is set"
_APART = "disaggregation"
REQUESTS = (
    Field("id", "", "the request's name; r0, r1, … where the workload names none"),
    Field("tenant", "", "whose request it is"),
    Field("class", "", "its class of traffic"),
    Field("priority", "", "lower is more urgent"),
    Field("replica", "", "the replica that served it, counted from 0"),
    Field("status", "", "completed, rejected, cancelled, running, waiting, or unsent: beyond the horizon"),
    Field("reason", "", "why it was rejected or cancelled, else empty"),
    Field("arrival_s", "s", "when the server got it"),
    Field("admitted_s", "s", "start of the first step that scheduled it"),
    Field("first_token_s", "s", "end of the step that finished its prompt"),
    Field("finished_s", "s", "end of the step that gave its last token"),
    Field("prompt_tokens", "tokens", "length of its prompt"),
    Field("output_tokens", "tokens", "tokens that it got"),
    Field("queue_ms", "ms", "admitted − arrival"),
    Field("ttft_ms", "ms", "first token − arrival"),
    Field("tpot_ms", "ms", "(E2E − TTFT) / (output tokens − 1); empty for one token"),
    Field("e2e_ms", "ms", "last token − arrival"),
    Field("max_itl_ms", "ms", "longest gap between two of its tokens; empty for fewer than two"),
    Field("preemptions", "", "how often it was evicted"),
    Field("recomputed_tokens", "tokens", "computed tokens that it lost, less those hit again"),
    Field("prefix_hit_tokens", "tokens", "prompt tokens found in the prefix cache at its first admission"),
    Field("session", "", "the conversation that it belongs to", "the workload names sessions"),
    Field("client_queue_ms", "ms", "time in the client's own queue", _CAP),
    Field("from_schedule_ttft_ms", "ms", "TTFT from when the schedule would have sent it", _CAP),
    Field("from_schedule_e2e_ms", "ms", "E2E from when the schedule would have sent it", _CAP),
    Field("prefill_replica", "", "the replica that computed its prompt", _APART),
    Field("prefill_queue_ms", "ms", "until a step of the prefill side schedules it", _APART),
    Field("prefill_ms", "ms", "until its prompt is computed, evictions included", _APART),
    Field("memory_wait_ms", "ms", "until the decode side holds blocks for it", _APART),
    Field("transfer_ms", "ms", "until its KV is there, the wait for the link included", _APART),
    Field("decode_queue_ms", "ms", "until a step of the decode side schedules it", _APART),
    Field("decode_ms", "ms", "until its last token", _APART),
)

ITERATIONS = (
    Field("replica", "", "counted from 0"),
    Field("start_s", "s", "start of the row's first step"),
    Field("end_s", "s", "end of its last step"),
    Field("repeats", "steps", "equal decode steps in this row"),
    Field("prefill_tokens", "tokens", "prompt and recomputed tokens of one step, padding included"),
    Field("decode_seqs", "sequences", "sequences that decode, ended ones that hold a seat included"),
    Field("context_tokens", "tokens", "sum of their contexts in the first step, the tokens being computed included"),
    Field("running", "requests", "with a seat, after scheduling and before finishes, in the last repeat"),
    Field("waiting", "requests", "in the queue, likewise"),
    Field("kv_blocks_used", "blocks", "held by requests, likewise"),
    Field("preempted", "requests", "evicted when the row was scheduled"),
)

STEPS = (
    Field("step", "", "counts from 0, on each replica"),
    Field("replica", "", "counted from 0"),
    Field("start_s", "s", "start of the step"),
    Field("end_s", "s", "end of the step"),
    Field("sched", "", "[id, tokens, computed before] of each request, in scheduling order"),
    Field("preempted", "", "[id, computed tokens lost] of each request evicted"),
    Field("finished", "", "ids of those that got their last token"),
    Field("running", "", "ids of those with a seat after the step"),
    Field("waiting", "", "ids of the queue after the step"),
    Field("free_blocks", "blocks", "not held by a request after the step, idle cached ones included"),
)

TRACE = (
    Field("rows", "", "requests"),
    Field("skipped", "", "bad rows left out"),
    Field("unsorted", "", "rows that stood before an earlier one; they were sorted, ties in file order"),
    Field("format", "", "what the file was read as"),
    Field("span_s", "s", "first arrival to last"),
    Field("mean_rate_per_s", "1/s", "rows over span"),
    Field("slowest_minute_per_s", "1/s", "rate of the slowest whole minute"),
    Field("busiest_minute_per_s", "1/s", "rate of the busiest whole minute"),
    Field("gap_cv", "", "standard deviation of the gaps between arrivals over their mean; 1 for Poisson"),
    Field("dispersion", "", "variance of arrivals a minute over their mean; 1 for Poisson"),
    Field("prompt_tokens", "tokens", "mean, p50, p90, p99, max and total of the prompts' lengths"),
    Field("output_tokens", "tokens", "the same of the answers"),
    Field("prefix_share", "share", "prompt tokens, in full blocks, that an endless prefix cache would hit"),
    Field("prefix_block_tokens", "tokens", "length of those blocks"),
    Field("tenants", "", "how many there are"),
    Field("classes", "", "how many there are"),
    Field("sessions", "", "how many there are"),
    Field("minute_arrivals", "", "arrivals in each minute"),
    Field("notes", "", "what reading changed, a sentence each"),
)

PERFETTO = (
    Field("steps", "µs", "a slice a step or run of equal steps; arguments: its row of iterations.csv"),
    Field("requests", "µs", "a slice a request with its status and lengths; in it queued, prefill, decode, evicted"),
    Field("running, waiting, KV blocks", "", "counters as after scheduling; KV blocks rise over a run of equal steps"),
)
