"""Batches formed from whole requests, which run until their last member ends: what `static` and `dynamic` share."""

from __future__ import annotations

from batchsim.batch import Batch
from batchsim.request import Request
from batchsim.scheduler import DEAF, ONCE, Verdict


def reservation(request: Request, b: Batch, reserve: str) -> int:
    """Tokens of KV memory that a member holds from its first step to its last."""
    if reserve == "max_model_len":
        return b.max_model_len
    return request.prompt_tokens + b.declared_tokens(request)


def gather(b: Batch, size: int, reserve: str) -> tuple[list[Request], bool]:
    """The longest prefix of the queue, up to `size`, whose reservations fit; and whether the next one does not fit.

    A prompt beyond max_model_len, which only a replay lets through to here, is turned away.
    """
    free, no_more = b.free, False
    members: list[Request] = []
    too_long: list[Request] = []
    for request in b.waiting.values():
        if request.prompt_tokens > b.max_model_len:
            too_long.append(request)
            continue
        if len(members) == size:
            break
        free -= b.blocks_for(reservation(request, b, reserve))
        if free < 0:
            no_more = True
            break
        members.append(request)
    for request in too_long:
        b.reject(request, f"prompt of {request.prompt_tokens} tokens exceeds max_model_len {b.max_model_len}")
    return members, no_more


def send(b: Batch, members: list[Request], *, run_to: str, pad_prompts: bool, reserve: str) -> Verdict:
    """Admit the members: their whole prompts in one step."""
    for request in members:
        if not b.admit(request, request.remaining_tokens, hold_tokens=reservation(request, b, reserve)):
            raise AssertionError("gather admits only what fits")
    if pad_prompts:
        b.pad_prompts()
    if run_to == "limit":
        b.hold_until(max(b.declared_tokens(request) for request in members))
    return ONCE


def run_on(b: Batch) -> Verdict:
    """A batch under way: everyone decodes, and arrivals change nothing."""
    if b.decode():
        return DEAF
    raise AssertionError("members have their blocks reserved")


def refusal(request: Request, b: Batch, reserve: str) -> str | None:
    """A reason to reject a request whose reservation the whole pool cannot hold."""
    tokens = reservation(request, b, reserve)
    need = b.blocks_for(tokens)
    if need > b.pool.total:
        return f"reserves {tokens} tokens: {need} blocks, the pool has {b.pool.total}"
    return None
