"""Reserving for the declared limit: what `orca`, `tgi` and `tensorrt_llm` share."""

from __future__ import annotations

from batchsim.batch import Batch
from batchsim.request import Request


def limit_tokens(request: Request, b: Batch) -> int:
    """Prompt and longest answer that the request may have, tokens.

    Without a declared limit that is what max_model_len leaves, cut to the pool.
    """
    tokens = request.prompt_tokens + request.max_tokens
    return tokens if request.declared else min(tokens, b.pool.total * b.block)


def over_pool(tokens: int, blocks: int, total: int) -> str | None:
    """A reason to reject a reservation that the whole pool cannot hold."""
    return f"reserves {tokens} tokens: {blocks} blocks, the pool has {total}" if blocks > total else None
