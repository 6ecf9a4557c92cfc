"""Every statistic that is read off the decode clock, against the sample of all tokens written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.metrics import max_itl_ns, token_times_ns, tokens_between
from batchsim.metrics.itl import gaps_of, pooled_gaps, quantiles_ns, stats_ns
from batchsim.metrics.ticks import range_max
from tests.metrics.naive import One, Price, Rules, random_rows, run

SEEDS = st.integers(0, 10_000)
PRICES = st.sampled_from(
    [
        Price(),
        Price(context=0),
        Price(base=10**13, token=10**11, seq=10**12, context=0),
        Price(context=700),
        Price(3_300_000, 700_000, 450_000, 1_100),
    ]
)
RULES = st.builds(
    Rules,
    seats=st.integers(1, 5),
    mixed=st.booleans(),
    preempt=st.sampled_from([0.0, 0.1]),
    rest=st.sampled_from([0.0, 0.1]),
    collapse=st.booleans(),
    replicas=st.integers(1, 3),
    horizon_fs=st.sampled_from([None, 400 * 10**12]),
    price=PRICES,
)


def written_out(everyone: list[One]) -> np.ndarray:
    """All gaps of all requests, ns."""
    return np.array([gap for one in everyone for gap in np.diff(one.tokens).tolist()], dtype=np.int64)


@given(SEEDS, RULES)
@settings(max_examples=150, deadline=None)
def test_pooled_itl_is_the_sample_of_all_gaps(seed: int, rules: Rules) -> None:
    """Count, mean, spread, percentiles and maximum of ITL are numpy's on every gap written out, folded or not."""
    everyone, records = run(random_rows(seed, 25), rules, seed)
    gaps = written_out(everyone)
    for fold in (True, False):
        stats = stats_ns(pooled_gaps(records, fold=fold))
        assert stats.n == len(gaps)
        if len(gaps):
            assert stats.percentiles == tuple(np.quantile(gaps, [0.5, 0.9, 0.95, 0.99]).tolist())
            assert stats.mean == pytest.approx(gaps.mean(), rel=1e-12)
            assert stats.std == pytest.approx(gaps.std(), rel=1e-9, abs=1.0)
            assert stats.max == gaps.max()


@given(SEEDS, RULES, st.lists(st.floats(0, 99.99), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_percentile_of_itl_is_numpys(seed: int, rules: Rules, percents: list[float]) -> None:
    """The weighted percentile equals numpy's linear interpolation at any q."""
    everyone, records = run(random_rows(seed, 12), rules, seed)
    gaps = written_out(everyone)
    if len(gaps):
        found = quantiles_ns(pooled_gaps(records, fold=True), tuple(percents), len(gaps))
        assert found == pytest.approx([np.quantile(gaps, p / 100) for p in percents], rel=1e-14)


@given(SEEDS, RULES)
@settings(max_examples=100, deadline=None)
def test_longest_gap_of_every_request(seed: int, rules: Rules) -> None:
    """max_itl is the largest difference of a request's token times, preempted and unfinished ones too."""
    everyone, records = run(random_rows(seed, 25), rules, seed)
    expected = [int(np.diff(one.tokens).max()) if len(one.tokens) > 1 else -1 for one in everyone]
    assert max_itl_ns(records).tolist() == expected


@given(SEEDS, RULES)
@settings(max_examples=100, deadline=None)
def test_token_times_are_the_tokens(seed: int, rules: Rules) -> None:
    """TTFT + gaps = E2E: the times read off the clock are all tokens, preempted, resting and unfinished ones too."""
    everyone, records = run(random_rows(seed, 15), rules, seed)
    for one in everyone:
        assert token_times_ns(records, one.index).tolist() == one.tokens


@given(SEEDS, RULES, st.integers(0, 500), st.integers(1, 500))
@settings(max_examples=100, deadline=None)
def test_tokens_of_a_window(seed: int, rules: Rules, start_ms: int, length_ms: int) -> None:
    """A window counts the tokens after its start up to and with its end."""
    everyone, records = run(random_rows(seed, 15), rules, seed)
    start, end = start_ms * 10**6, (start_ms + length_ms) * 10**6
    expected = sum(start < token <= end for one in everyone for token in one.tokens)
    assert tokens_between(records, start, end) == expected
    assert tokens_between(records, -1, records.end_ns) == sum(len(one.tokens) for one in everyone)


@given(SEEDS, RULES, st.integers(2, 4))
@settings(max_examples=80, deadline=None)
def test_gaps_of_some_requests(seed: int, rules: Rules, every: int) -> None:
    """The ITL sample of a class of requests is theirs alone, preempted and resting ones too."""
    everyone, records = run(random_rows(seed, 15), rules, seed)
    members = np.arange(len(everyone)) % every == 0
    stats = stats_ns(gaps_of(records, members))
    expected = written_out([one for one in everyone if members[one.index]])
    assert stats.n == len(expected)
    if len(expected):
        assert stats.percentiles == tuple(np.quantile(expected, [0.5, 0.9, 0.95, 0.99]).tolist())


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=400), st.data())
@settings(max_examples=100, deadline=None)
def test_range_max(values: list[int], data: st.DataObject) -> None:
    """The block-decomposed range maximum is Python's max of the slice, for every length of range and block."""
    bound = st.integers(0, len(values))
    pairs = [sorted(pair) for pair in data.draw(st.lists(st.tuples(bound, bound), min_size=1, max_size=40))]
    start, end = np.array(pairs).T
    found = range_max(np.array(values), start, end, block=data.draw(st.sampled_from([1, 2, 4, 32])))
    assert found.tolist() == [max(values[a:b], default=0) for a, b in pairs]
