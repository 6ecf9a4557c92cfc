"""vLLM's timed traces: JSONL with Mooncake's keys, timestamp in ms, and 16-token blocks unless said otherwise."""

from __future__ import annotations

from dataclasses import replace

from batchsim.workload.traces import mooncake

FORMAT = replace(
    mooncake.FORMAT,
    name="vllm",
    summary="JSONL: timestamp (ms), input_length, output_length, hash_ids (16-token blocks, or `hash_block_tokens`)",
    block_tokens=16,
)
