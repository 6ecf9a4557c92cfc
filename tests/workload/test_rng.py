"""Named streams: each a matter of the seed and its name alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsim.rng import stream

NAMES = st.lists(st.text(max_size=5), max_size=3).map(tuple)


@given(st.integers(0, 2**63 - 1), NAMES, NAMES)
def test_streams_differ_exactly_when_their_names_do(seed: int, one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """Two names give the same numbers only if they are equal part by part."""
    same = stream(seed, *one).bytes(16) == stream(seed, *other).bytes(16)
    assert same == (one == other)


def test_seeds_differ() -> None:
    """The same name under another seed gives other numbers."""
    assert stream(0, "a").bytes(16) != stream(1, "a").bytes(16)


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_a_stream_is_the_same_in_every_process(hash_seed: str) -> None:
    """Python's hash seed does not reach the numbers."""
    program = "from batchsim.rng import stream; print(stream(42, 'workload', 'arrivals').bytes(8).hex())"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == stream(42, "workload", "arrivals").bytes(8).hex()
