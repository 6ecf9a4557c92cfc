"""Drawn workloads: classes, limits, shared prompts, and streams that do not disturb each other."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.errors import InvalidInput
from batchsim.workload.columns import ABSENT, Prefixes, Workload
from tests.workload.inputs import drawn, fixed, same

EXPONENTIAL = {"kind": "exponential", "mean": 300}
GEOMETRIC = {"kind": "geometric", "mean": 40}


def traffic(name: str, share: float, **more: Any) -> dict[str, Any]:
    """A class of a mix."""
    return {"name": name, "share": share, "prompt_tokens": EXPONENTIAL, "output_tokens": GEOMETRIC} | more


def of_class(work: Workload, name: str) -> dict[str, list[int]]:
    """Lengths and limits of a class's requests, in order."""
    rows = work.traffic_class == work.classes.index(name)
    columns = {"prompt": work.prompt_tokens, "output": work.output_tokens, "limit": work.max_tokens}
    return {key: column[rows].tolist() for key, column in columns.items()}


def segments(prefixes: Prefixes | None, row: int) -> list[tuple[int, int]]:
    """A row's (segment, tokens)."""
    assert prefixes is not None
    part = slice(prefixes.offset[row], prefixes.offset[row + 1])
    return list(zip(prefixes.segment[part].tolist(), prefixes.tokens[part].tolist(), strict=True))


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_the_seed_decides_everything(seed: int) -> None:
    """Same seed, same bytes; another seed, other bytes."""
    keys: dict[str, Any] = {"requests": 50, "mix": [traffic("a", 0.5), traffic("b", 0.5, max_tokens=GEOMETRIC)]}
    assert same(drawn(seed, **keys), drawn(seed, **keys))
    assert not same(drawn(seed, **keys), drawn(seed + 1, **keys))


@pytest.mark.parametrize("hash_seed", ["0", "random"])
def test_a11_the_same_bytes_in_every_process(hash_seed: str) -> None:
    """A11: no set or hash order reaches a column."""
    program = (
        "import hashlib; from tests.workload.inputs import drawn; from tests.workload.test_draw import traffic\n"
        "w = drawn(42, requests=300, mix=[traffic(n, 0.25, tenant=n) for n in 'abcd'])\n"
        "print(hashlib.sha256(b''.join(c.tobytes() for c in (w.arrival_ns, w.prompt_tokens, w.tenant))).hexdigest())"
    )
    work = drawn(42, requests=300, mix=[traffic(name, 0.25, tenant=name) for name in "abcd"])
    here = b"".join(column.tobytes() for column in (work.arrival_ns, work.prompt_tokens, work.tenant))
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    root = Path(__file__).parents[2]
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=root, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == hashlib.sha256(here).hexdigest()


@given(st.integers(0, 2**32), st.floats(0.1, 0.8))
@settings(max_examples=30, deadline=None)
def test_adding_a_class_moves_no_other_stream(seed: int, share: float) -> None:
    """A class's k-th request and the arrival times stay the same when another class joins the mix."""
    alone = drawn(seed, requests=100, mix=[traffic("chat", 1.0, max_tokens=GEOMETRIC)])
    joined = drawn(
        seed,
        requests=100,
        mix=[traffic("batch", 1 - share, tenant="b", priority=5), traffic("chat", share, max_tokens=GEOMETRIC)],
    )
    assert (alone.arrival_ns == joined.arrival_ns).all()
    before, after = of_class(alone, "chat"), of_class(joined, "chat")
    for column, values in after.items():
        assert values == before[column][: len(values)]


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_options_move_no_stream(seed: int) -> None:
    """Limits, shared prefixes, priorities, patience, another length kind: arrivals and the other lengths stay."""
    keys: dict[str, Any] = {"requests": 60, "prompt_tokens": EXPONENTIAL, "output_tokens": GEOMETRIC}
    plain = drawn(seed, **keys)
    loaded = drawn(seed, **keys, max_tokens=fixed(10**6), shared_prefix_tokens=64, priority=3, cancel_ms=5.5)
    assert (plain.arrival_ns == loaded.arrival_ns).all()
    assert (plain.prompt_tokens == loaded.prompt_tokens).all()
    assert (plain.output_tokens == loaded.output_tokens).all()
    other = drawn(seed, **(keys | {"prompt_tokens": fixed(7)}))
    assert (plain.output_tokens == other.output_tokens).all()
    assert (loaded.cancel_ns == 5_500_000).all()


def test_every_source_has_a_stream_of_its_own() -> None:
    """Classes of the same kind draw different lengths, and so do prompts, answers and limits of one class."""
    lengths = {"prompt_tokens": EXPONENTIAL, "output_tokens": EXPONENTIAL, "max_tokens": EXPONENTIAL | {"min": 1}}
    work = drawn(5, requests=100, mix=[traffic("a", 0.5, **lengths), traffic("b", 0.5, **lengths)])
    columns = [of_class(work, name)[key] for name in "ab" for key in ("prompt", "limit")]
    shortest = min(map(len, columns))
    assert len({tuple(column[:shortest]) for column in columns}) == 4
    free = drawn(5, requests=50, prompt_tokens=EXPONENTIAL, output_tokens=EXPONENTIAL)
    assert (free.prompt_tokens != free.output_tokens).any()


def test_one_class_is_a_mix_of_one() -> None:
    """A plain drawn workload equals the mix of the single class `default`."""
    plain = drawn(9, requests=40, prompt_tokens=EXPONENTIAL, output_tokens=GEOMETRIC)
    assert same(plain, drawn(9, requests=40, mix=[traffic("default", 1)]))


def test_shares_are_met() -> None:
    """70 and 30 % of 20,000 requests, within five standard deviations; tenant and priority follow the class."""
    work = drawn(3, requests=20_000, mix=[traffic("a", 0.7), traffic("b", 0.3, tenant="x", priority=-2)])
    rows = work.traffic_class == 0
    assert rows.sum() == pytest.approx(14_000, abs=5 * (20_000 * 0.21) ** 0.5)
    assert set(work.priority[~rows].tolist()) == {-2}
    assert {work.tenants[at] for at in work.tenant[~rows]} == {"x"}
    assert {work.tenants[at] for at in work.tenant[rows]} == {"default"}


def test_an_answer_longer_than_its_limit_is_cut_to_it() -> None:
    """Drawn outputs never exceed the declared limit, and those below it keep their length."""
    free = drawn(4, requests=500, output_tokens=GEOMETRIC)
    work = drawn(4, requests=500, output_tokens=GEOMETRIC, max_tokens=30)
    assert set(work.max_tokens.tolist()) == {30}
    assert (work.output_tokens == np.minimum(free.output_tokens, 30)).all()
    assert set(free.max_tokens.tolist()) == {ABSENT}


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_distinct_prompts_cycle(pool: int, count: int, seed: int) -> None:
    """Prompt i is the same tokens as prompt i mod N, its length too, and shares nothing with the others."""
    work = drawn(seed, requests=count, prompt_tokens=EXPONENTIAL, distinct_prompts=pool)
    for row in range(count):
        assert work.prompt_tokens[row] == work.prompt_tokens[row % pool]
        assert segments(work.prefixes, row) == segments(work.prefixes, row % pool)
        assert sum(tokens for _, tokens in segments(work.prefixes, row)) == work.prompt_tokens[row]
    assert len({segments(work.prefixes, row)[0][0] for row in range(count)}) == min(pool, count)


def test_shared_prefix_is_of_the_class_and_cut_to_the_prompt() -> None:
    """Two classes with a shared prefix each: their segments differ; a shorter prompt takes what it has."""
    work = drawn(
        1, requests=60, mix=[traffic("a", 0.5, shared_prefix_tokens=100), traffic("b", 0.5, shared_prefix_tokens=100)]
    )
    for row in range(60):
        assert segments(work.prefixes, row) == [
            (int(work.traffic_class[row]), min(100, int(work.prompt_tokens[row]))),
        ]
    assert (work.prompt_tokens < 100).any()


def test_shared_prefix_stands_before_the_pool() -> None:
    """With both, a prompt is the shared tokens, then its pool entry's own."""
    work = drawn(1, requests=4, prompt_tokens=fixed(50), shared_prefix_tokens=20, distinct_prompts=2)
    assert [segments(work.prefixes, row) for row in range(4)] == [
        [(0, 20), (1, 30)],
        [(0, 20), (2, 30)],
        [(0, 20), (1, 30)],
        [(0, 20), (2, 30)],
    ]


@pytest.mark.parametrize(
    ("shares", "names", "message"),
    [
        ([0.7, 0.5], "ab", "workload.mix: shares add up to 1.2: must add up to 1"),
        ([0.5, 0.5], "aa", "workload.mix[1].name: a: every class needs a name of its own"),
    ],
)
def test_mixes_that_make_no_sense_are_refused(shares: list[float], names: str, message: str) -> None:
    """Shares that do not add up, names that repeat."""
    with pytest.raises(InvalidInput) as refused:
        drawn(requests=5, mix=[traffic(name, share) for name, share in zip(names, shares, strict=True)])
    assert message in str(refused.value).splitlines()


def test_arrivals_of_a_trace_with_drawn_lengths(tmp_path: Path) -> None:
    """The trace's times, all or the first N, and not more than it has."""
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n5,1,1\n5.5,1,1\n7,1,1\n")
    arrivals = {"kind": "trace", "path": "t.csv"}
    assert drawn(0, tmp_path, arrivals=arrivals).arrival_ns.tolist() == [0, 500_000_000, 2_000_000_000]
    assert len(drawn(0, tmp_path, arrivals=arrivals, requests=2)) == 2
    assert len(drawn(0, tmp_path, arrivals=arrivals, duration_s=2)) == 2
    with pytest.raises(InvalidInput, match=r"workload\.requests: 4: t\.csv has only 3 arrivals"):
        drawn(0, tmp_path, arrivals=arrivals, requests=4)
