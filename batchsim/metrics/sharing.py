"""What prompts share beyond what a prefix cache of whole blocks can use."""

from __future__ import annotations

import numpy as np

from batchsim.kv.content import Contents
from batchsim.kv.prefix import PrefixCache
from batchsim.records import Records
from batchsim.request import Request

ENDLESS = 1 << 60


def shared_sub_block_tokens(records: Records) -> int:
    """Tokens at the head of admitted prompts that an earlier one had too, but not in whole blocks, so that no cache hits them.

    The comparison is with all requests admitted before, evicted from the cache since or not; a prompt's last token, which is
    always computed, does not count. 0 hits with a large number here: the shared part is shorter than a block.
    """
    workload, requests = records.workload, records.requests
    if workload.prefixes is None:
        return 0
    tokens = PrefixCache(ENDLESS, 1, Contents(workload.prefixes))  # blocks of one token, and never an eviction
    lost = 0
    admitted = np.flatnonzero(requests.admitted_ns >= 0)
    for index in admitted[np.argsort(requests.admitted_ns[admitted], kind="stable")].tolist():
        prompt = int(workload.prompt_tokens[index])
        request = Request(index, "", 0, prompt, 1, 1)
        shared, _ = tokens.lookup(request)
        lost += shared % records.block_size
        if tokens.contents.shares(index):
            tokens.release(request, 0, prompt + int(requests.emitted_tokens[index]))
    return lost
