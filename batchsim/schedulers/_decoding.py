"""Decoding where memory may run short: how the original vLLM and Sarathi-Serve make room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchsim.batch import Batch
from batchsim.request import Request

Badness = Callable[[Request], Any]


def decode_all(b: Batch, *, always_one: bool, worst: Badness | None = None) -> None:
    """One token for everyone past the prompt, in order; the last running request is evicted until all fit.

    always_one: nobody decodes while no block at all is free, even if its last block still has room.
    worst: a key of the order; None: order of admission.
    """
    while not _all_fit(b, always_one, worst):
        b.preempt(b.newest() if worst is None else max(b.running.values(), key=worst))
    if not b.decode():
        raise AssertionError("evictions have made room")


def _all_fit(b: Batch, always_one: bool, worst: Badness | None) -> bool:
    if not b.decoding:
        return True
    due, free = b.blocks_due(), b.free
    if due == free and always_one:  # the last to decode finds a free block only if it is the one that takes it
        return b.blocks_due(_last(b, worst)) == 1
    return due <= free


def _last(b: Batch, worst: Badness | None) -> Request:
    decoding = [request for request in b.running.values() if request.index not in b.prefilling]
    if worst is None:
        return decoding[-1]
    return max(decoding, key=worst)
