"""Arrivals: order, counts, bounds, rates, and burstiness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsim.errors import InvalidInput
from tests.workload.inputs import drawn

RATES = st.floats(0.01, 1000)
SEGMENTS = st.lists(
    st.fixed_dictionaries({"duration_s": st.floats(0.1, 50), "rate_per_s": st.floats(0, 20)}), min_size=1, max_size=4
).filter(lambda found: any(segment["rate_per_s"] > 0 for segment in found))
OPEN = st.one_of(
    st.fixed_dictionaries({"kind": st.just("poisson"), "rate_per_s": RATES}),
    st.fixed_dictionaries({"kind": st.just("constant"), "rate_per_s": RATES}),
    st.fixed_dictionaries(
        {"kind": st.just("gamma"), "rate_per_s": RATES, "burstiness": st.one_of(st.floats(0.01, 50), st.just(math.inf))}
    ),
)


@given(OPEN, st.integers(1, 300), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_count_gives_that_many_arrivals_in_order(arrivals: dict[str, Any], count: int, seed: int) -> None:
    """`requests: N` gives N times, none negative, none before the one before it."""
    times = drawn(seed, arrivals=arrivals, requests=count).arrival_ns
    assert len(times) == count
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()


@given(OPEN, st.integers(2, 200), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_duration_takes_the_arrivals_before_it(arrivals: dict[str, Any], count: int, seed: int) -> None:
    """`duration_s` gives the first arrivals that `requests` gives, up to the first at or after the duration."""
    times = drawn(seed, arrivals=arrivals, requests=count + 200).arrival_ns
    duration_s = float(times[count - 1]) / 1e9 + 1e-6
    cut = drawn(seed, arrivals=arrivals, duration_s=duration_s).arrival_ns
    assert len(cut) >= count
    assert cut[-1] / 1e9 <= duration_s + 1e-9
    both = min(len(cut), len(times))
    assert (cut[:both] == times[:both]).all()
    if len(cut) < len(times):
        assert times[len(cut)] / 1e9 >= duration_s - 1e-9


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_gamma_gaps_vary_by_one_over_the_root_of_the_shape(shape: float) -> None:
    """CV = 1/sqrt(burstiness), within 3 %, and the mean gap is 1/rate, within five standard errors."""
    count = 60_000
    times = drawn(7, arrivals={"kind": "gamma", "rate_per_s": 5, "burstiness": shape}, requests=count).arrival_ns / 1e9
    gaps = np.diff(times, prepend=0)
    assert gaps.std() / gaps.mean() == pytest.approx(1 / math.sqrt(shape), rel=0.03)
    assert gaps.mean() == pytest.approx(0.2, abs=5 * 0.2 / math.sqrt(shape * count))


def test_poisson_gaps_are_exponential() -> None:
    """Mean 1/rate and CV 1; the share of gaps above the mean is 1/e."""
    gaps = (
        np.diff(drawn(3, arrivals={"kind": "poisson", "rate_per_s": 20}, requests=60_000).arrival_ns, prepend=0) / 1e9
    )
    assert gaps.mean() == pytest.approx(0.05, rel=0.02)
    assert gaps.std() == pytest.approx(0.05, rel=0.02)
    assert (gaps > 0.05).mean() == pytest.approx(1 / math.e, abs=0.01)


def test_first_arrivals() -> None:
    """Constant starts at 0; even Gamma after its first gap; Poisson after a gap that is not 0."""
    constant = drawn(arrivals={"kind": "constant", "rate_per_s": 4}, requests=3).arrival_ns
    even = drawn(arrivals={"kind": "gamma", "rate_per_s": 4, "burstiness": math.inf}, requests=3).arrival_ns
    assert constant.tolist() == [0, 250_000_000, 500_000_000]
    assert even.tolist() == [250_000_000, 500_000_000, 750_000_000]
    assert drawn(requests=1).arrival_ns[0] > 0


def test_constant_excludes_an_arrival_at_the_duration() -> None:
    """Four a second for one second: 0, 0.25, 0.5, 0.75, and not 1."""
    times = drawn(arrivals={"kind": "constant", "rate_per_s": 4}, duration_s=1.0).arrival_ns
    assert times.tolist() == [0, 250_000_000, 500_000_000, 750_000_000]


@pytest.mark.parametrize("kind", ["poisson", "gamma", "constant"])
def test_a18_an_infinite_rate_with_a_count_is_a_burst(kind: str) -> None:
    """A18: rate_per_s .inf with 50 requests puts 50 arrivals at 0, as `burst` does, and carries no rate."""
    work = drawn(arrivals={"kind": kind, "rate_per_s": math.inf}, requests=50)
    assert work.arrival_ns.tolist() == [0] * 50
    assert not work.open_loop
    assert drawn(arrivals={"kind": "burst"}, requests=50).arrival_ns.tolist() == [0] * 50


@pytest.mark.parametrize("extra", [{}, {"duration_s": 10}])
def test_a18_an_infinite_rate_without_a_count_is_refused(extra: dict[str, Any]) -> None:
    """A18: nothing bounds the number of requests, so the rate is named, with its value."""
    with pytest.raises(InvalidInput, match=r"workload\.arrivals\.rate_per_s: inf: .*workload\.requests"):
        drawn(arrivals={"kind": "constant", "rate_per_s": math.inf}, **extra)


@given(SEGMENTS, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_piecewise_arrivals_fall_where_the_rate_is_not_zero(segments: list[dict[str, float]], seed: int) -> None:
    """No arrival in a pause or after the last segment, to a nanosecond."""
    try:
        times_s = drawn(seed, arrivals={"kind": "piecewise", "segments": segments}).arrival_ns / 1e9
    except InvalidInput as refused:
        assert "no request arrives" in str(refused)  # noqa: PT017  an empty draw is refused, and says so
        return
    assert (np.diff(times_s) >= 0).all()
    edges = np.cumsum([0.0, *(segment["duration_s"] for segment in segments)])
    assert times_s[-1] <= edges[-1] + 1e-6
    for segment, start, end in zip(segments, edges, edges[1:], strict=False):
        if segment["rate_per_s"] == 0:
            assert not ((times_s > start + 1e-6) & (times_s < end - 1e-6)).any()


def test_piecewise_counts_follow_the_rates() -> None:
    """1000 s at 2/s and 1000 s at 8/s: 2,000 and 8,000 arrivals, within five standard deviations."""
    segments = [{"duration_s": 1000, "rate_per_s": 2}, {"duration_s": 1000, "rate_per_s": 8}]
    times = drawn(arrivals={"kind": "piecewise", "segments": segments}).arrival_ns / 1e9
    first = int((times < 1000).sum())
    assert abs(first - 2000) < 5 * math.sqrt(2000)
    assert abs(len(times) - first - 8000) < 5 * math.sqrt(8000)


def test_piecewise_refuses_more_requests_than_arrive() -> None:
    """After the last segment nothing arrives: 1,000 requests do not fit into about ten arrivals."""
    arrivals = {"kind": "piecewise", "segments": [{"duration_s": 10, "rate_per_s": 1}]}
    with pytest.raises(InvalidInput, match=r"workload\.requests: 1000: only \d+ arrivals fall in the 10 s"):
        drawn(arrivals=arrivals, requests=1000)


def test_closed_loop_has_clients_and_no_rate() -> None:
    """All times are 0 until the run decides; concurrency and think time travel along."""
    work = drawn(arrivals={"kind": "closed", "concurrency": 3, "think_s": 0.5}, requests=7)
    assert work.clients is not None
    assert (work.clients.concurrency, work.clients.think_ns) == (3, 500_000_000)
    assert not work.open_loop
    assert work.arrival_ns.tolist() == [0] * 7


def test_a_rate_too_small_for_the_clock_is_refused() -> None:
    """A gap of 1e300 seconds does not wrap around in integer nanoseconds."""
    with pytest.raises(InvalidInput, match="the last request would arrive at"):
        drawn(arrivals={"kind": "constant", "rate_per_s": 1e-300}, requests=2)


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"requests": 5, "duration_s": 5}, "workload.duration_s: 5"),
        ({}, "workload.requests: missing"),
        ({"arrivals": {"kind": "closed", "concurrency": 2}, "duration_s": 5}, "workload.requests: missing"),
        ({"arrivals": {"kind": "burst"}, "duration_s": 5}, "workload.arrivals: burst"),
        ({"arrivals": {"kind": "poisson", "rate_per_s": 1e9}, "duration_s": 1e6}, "workload.duration_s: 1000000"),
        ({"arrivals": {"kind": "poisson", "rate_per_s": 1e-9}, "duration_s": 1}, "workload.duration_s: 1"),
        ({"arrivals": {"kind": "closed", "concurrency": 2}, "requests": 5, "max_concurrency": 2}, "workload.max_conc"),
    ],
)
def test_counts_and_durations_that_make_no_sense_are_refused(keys: dict[str, Any], place: str) -> None:
    """The refusal names the key."""
    with pytest.raises(InvalidInput) as refused:
        drawn(**keys)
    assert place in str(refused.value)
