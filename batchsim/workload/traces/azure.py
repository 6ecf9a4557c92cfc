"""Azure LLM inference traces: CSV with TIMESTAMP (UTC date and time, 100 ns ticks), ContextTokens, GeneratedTokens."""

from __future__ import annotations

from batchsim.workload.traces.cells import date_times, tokens
from batchsim.workload.traces.formats import Column, Format

FORMAT = Format(
    name="azure",
    summary="CSV: TIMESTAMP (date and time), ContextTokens, GeneratedTokens",
    columns=(
        Column("TIMESTAMP", "arrival_ns", date_times),
        Column("ContextTokens", "prompt_tokens", tokens),
        Column("GeneratedTokens", "output_tokens", tokens),
    ),
)
