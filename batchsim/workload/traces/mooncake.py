"""Mooncake traces: JSONL with timestamp (ms), lengths, and hash_ids, one a 512-token block; equal ids, equal prefix."""

from __future__ import annotations

from batchsim.workload.traces.cells import milliseconds, tokens
from batchsim.workload.traces.formats import Column, Format

FORMAT = Format(
    name="mooncake",
    summary="JSONL: timestamp (ms), input_length, output_length, hash_ids (512-token blocks)",
    columns=(
        Column("timestamp", "arrival_ns", milliseconds),
        Column("input_length", "prompt_tokens", tokens),
        Column("output_length", "output_tokens", tokens),
    ),
    blocks="hash_ids",
    block_tokens=512,
)
