"""Named streams of random numbers: every source of randomness has its own, so that adding one moves no other."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence

_WORDS = 4  # 128 bits of a name's digest: no two names meet by chance


def stream(seed: int, *name: str) -> Generator:
    """The generator of one source, e.g. `stream(seed, "workload", "prompt_tokens", "chat")`.

    It depends on `seed` (at least 0) and on the name alone: not on the process, the hash seed, or which other
    streams exist or were used. Names are told apart part by part: ("a", "b") is not ("ab",).
    """
    digest = blake2b(digest_size=4 * _WORDS)
    for part in name:
        text = part.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    key = np.frombuffer(digest.digest(), dtype="<u4")
    return Generator(PCG64(SeedSequence(seed, spawn_key=tuple(int(word) for word in key))))
