"""Recordings of sarathi-serve: which of our schedulers each of its policies is, and how it writes a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchsim.scheduler import Scheduler
from batchsim.schedulers.orca import Orca
from batchsim.schedulers.sarathi import Sarathi
from batchsim.schedulers.static import Static
from batchsim.schedulers.vllm_v0 import VllmV0
from batchsim.step import Entry, Step

POLICIES = ("sarathi", "vllm", "orca", "faster_transformer")


def scheduler(config: Mapping[str, Any]) -> Scheduler:
    """Our scheduler for the recording's `config.policy`, one of POLICIES."""
    policy, seats = config["policy"], config["max_num_seqs"]
    if policy == "sarathi":
        real = Sarathi(chunk_size=config["chunk_size"], max_num_seqs=seats)
        real.stands_still = True
        return real
    if policy == "vllm":
        budget = config.get("max_batched_tokens") or config["max_model_len"]
        return VllmV0(max_num_seqs=seats, max_num_batched_tokens=budget, early_release=True)
    if policy == "orca":
        return Orca(max_num_seqs=seats, reserve="max")
    return Static(batch_size=seats, run_to="leave", pad_prompts=False, reserve="max_model_len", max_wait_ms=0)


def scheduled(step: Step) -> list[list[Any]]:
    """Who computed: [id, tokens, "P" or "D"], prompts before decodes."""
    entries = sorted((step.entries or {}).values(), key=_decodes)
    return [[entry.request.id, entry.tokens, "D" if entry.decode else "P"] for entry in entries]


def _decodes(entry: Entry) -> bool:
    return entry.decode
