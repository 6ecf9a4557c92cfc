"""batchsim's own traces: CSV or JSONL with arrival_s, prompt_tokens, output_tokens, and what else a request can say."""

from __future__ import annotations

from batchsim.workload.traces.cells import limit, priority, seconds, tokens
from batchsim.workload.traces.formats import Column, Format

FORMAT = Format(
    name="batchsim",
    summary="CSV or JSONL: arrival_s, prompt_tokens, output_tokens (id, max_tokens, priority, tenant, session)",
    columns=(
        Column("arrival_s", "arrival_ns", seconds),
        Column("prompt_tokens", "prompt_tokens", tokens),
        Column("output_tokens", "output_tokens", tokens),
        Column("max_tokens", "max_tokens", limit, required=False),
        Column("priority", "priority", priority, required=False),
    ),
    texts=(("id", "id"), ("tenant", "tenant"), ("session", "session")),
)
