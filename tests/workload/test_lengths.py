"""Lengths: bounds, means, the fit of a lognormal to its percentile, redraws."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from batchsim.errors import InvalidInput
from batchsim.workload.lengths import Lognormal, Uniform
from tests.workload.inputs import drawn

MEANS = st.floats(2, 5000)
KINDS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("uniform"), "mean": MEANS, "range_ratio": st.floats(0, 1)}),
    st.fixed_dictionaries({"kind": st.just("lognormal"), "mean": MEANS, "sigma": st.floats(0, 2)}),
    st.fixed_dictionaries({"kind": st.just("exponential"), "mean": MEANS}),
    st.fixed_dictionaries({"kind": st.just("geometric"), "mean": MEANS}),
)


def prompt_tokens(count: int, seed: int = 0, base_dir: Path = Path(), **lengths: Any) -> np.ndarray[Any, Any]:
    """Drawn prompt lengths."""
    return drawn(seed, base_dir, requests=count, arrivals={"kind": "burst"}, prompt_tokens=lengths).prompt_tokens


@given(KINDS, st.integers(1, 200), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_lengths_are_whole_and_at_least_one(lengths: dict[str, Any], count: int, seed: int) -> None:
    """Every kind yields as many int64 lengths as asked for, none below 1."""
    tokens = prompt_tokens(count, seed, **lengths)
    assert tokens.dtype == np.int64
    assert len(tokens) == count
    assert tokens.min() >= 1


@given(KINDS, st.integers(1, 100), st.integers(1, 300), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_more_requests_keep_the_first_lengths(lengths: dict[str, Any], count: int, more: int, seed: int) -> None:
    """A longer run begins with the shorter one's lengths, redraws included."""
    low = int(lengths["mean"] * 0.9)
    bounds = {"min": max(low, 1)}
    few = prompt_tokens(count, seed, **lengths, **bounds)
    assert (prompt_tokens(count + more, seed, **lengths, **bounds)[:count] == few).all()


@given(KINDS, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_bounds_hold_and_do_not_pile_up(lengths: dict[str, Any], seed: int) -> None:
    """A draw outside min and max is drawn again, not clipped: the result is the unbounded sequence, filtered."""
    low, high = max(int(lengths["mean"] * 0.5), 1), math.ceil(lengths["mean"] * 1.5)
    bounded = prompt_tokens(100, seed, **lengths, min=low, max=high)
    free = prompt_tokens(3000, seed, **lengths)
    kept = free[(free >= low) & (free <= high)][:100]
    assert (bounded[: len(kept)] == kept).all()
    assert bounded.min() >= low
    assert bounded.max() <= high


@pytest.mark.parametrize(
    ("lengths", "deviation"),
    [
        ({"kind": "fixed", "tokens": 300}, 0),
        ({"kind": "uniform", "mean": 300, "range_ratio": 0.5}, 300 * 0.5 / math.sqrt(3)),
        ({"kind": "lognormal", "mean": 300, "sigma": 0.5}, 300 * math.sqrt(math.exp(0.25) - 1)),
        ({"kind": "exponential", "mean": 300}, 300),
        ({"kind": "geometric", "mean": 300}, 300),
    ],
)
def test_means_are_as_asked(lengths: dict[str, Any], deviation: float) -> None:
    """The sample mean lies within five standard errors (and half a token of rounding) of `mean`."""
    count = 40_000
    assert prompt_tokens(count, 5, **lengths).mean() == pytest.approx(300, abs=5 * deviation / math.sqrt(count) + 0.2)


def test_lognormal_hits_its_percentile() -> None:
    """Mean 1155 and p99 4142 (the Azure conversation trace): both come out within 3 %."""
    tokens = prompt_tokens(200_000, 1, kind="lognormal", mean=1155, p99=4142)
    assert tokens.mean() == pytest.approx(1155, rel=0.03)
    assert np.percentile(tokens, 99) == pytest.approx(4142, rel=0.03)


@given(st.floats(1, 1e5), st.floats(1.0001, 14.9))
def test_lognormal_sigma_solves_for_p99_and_is_the_smaller_root(mean: float, ratio: float) -> None:
    """mean * exp(z sigma - sigma²/2) = p99, with sigma below z = 2.326, where the other root lies above."""
    sigma = Lognormal(kind="lognormal", mean=mean, p99=mean * ratio).shape
    z = 2.3263478740408408
    assert mean * math.exp(z * sigma - sigma**2 / 2) == pytest.approx(mean * ratio, rel=1e-9)
    assert 0 < sigma <= z


@pytest.mark.parametrize(
    ("lengths", "rule"),
    [
        ({"kind": "lognormal", "mean": 100, "p99": 99}, "a lognormal allows 1 to 14.97 times"),
        ({"kind": "lognormal", "mean": 100, "p99": 1500}, "a lognormal allows 1 to 14.97 times"),
        ({"kind": "lognormal", "mean": 100}, "exactly one of p99 and sigma"),
        ({"kind": "lognormal", "mean": 100, "p99": 200, "sigma": 1}, "exactly one of p99 and sigma"),
        ({"kind": "fixed", "tokens": 10, "max": 9}, "no length from 10 to 10"),
        ({"kind": "uniform", "mean": 100, "range_ratio": 0.1, "min": 111}, "no length from 90 to 110"),
        ({"kind": "exponential", "mean": 10, "min": 5, "max": 4}, "min 5 is above max 4"),
        ({"kind": "geometric", "mean": 0.5}, "greater than or equal to 1"),
        ({"kind": "exponential", "mean": math.nan}, "finite"),
        ({"kind": "exponential", "mean": math.inf}, "finite|less than"),
        ({"kind": "fixed", "tokens": 0}, "greater than or equal to 1"),
        ({"kind": "fixed", "tokens": True}, "valid integer"),
        ({"kind": "fixed", "tokens": "3"}, "valid integer"),
        ({"kind": "fixed", "tokens": 3.0}, "valid integer"),
        ({"kind": "fixed", "tokens": 10**30}, "less than or equal to"),
        ({"kind": "fixed", "tokens": 3, "tokns": 4}, "Unexpected keyword"),
        ({"kind": "gaussian", "mean": 3}, "does not match any of the expected tags"),
    ],
)
def test_lengths_that_make_no_sense_are_refused(lengths: dict[str, Any], rule: str) -> None:
    """Each with its rule, before anything is drawn."""
    with pytest.raises(ValidationError, match=rule):
        prompt_tokens(3, **lengths)


def test_hopeless_bounds_are_refused_rather_than_tried_for_ever() -> None:
    """An exponential of mean 1 never reaches 100,000 tokens."""
    with pytest.raises(InvalidInput, match=r"workload\.prompt_tokens: 0 of \d+ draws lie between min 100000"):
        prompt_tokens(3, kind="exponential", mean=1.0, min=100_000)


def test_uniform_bounds_are_exact_in_decimals() -> None:
    """100 with ratio 0.1 is 90 to 110, where floats would say ceil(110.00000000000001) = 111; all values occur."""
    assert Uniform(kind="uniform", mean=100, range_ratio=0.1).bounds == (90, 110)
    assert Uniform(kind="uniform", mean=100, range_ratio=0.9).bounds == (10, 190)
    assert Uniform(kind="uniform", mean=3, range_ratio=1).bounds == (1, 6)
    assert set(prompt_tokens(2000, kind="uniform", mean=100, range_ratio=0.1).tolist()) == set(range(90, 111))


def test_empirical_draws_from_the_column(tmp_path: Path) -> None:
    """Only values of the column come out, all of them, as often as they stand there."""
    (tmp_path / "lengths.csv").write_text("other,tokens\n1,10\n2,20\n3,20\n4,70\n")
    tokens = prompt_tokens(4000, 2, tmp_path, kind="empirical", path="lengths.csv", column="tokens")
    assert set(tokens.tolist()) == {10, 20, 70}
    assert (tokens == 20).mean() == pytest.approx(0.5, abs=0.05)
    bounded = prompt_tokens(50, 2, tmp_path, kind="empirical", path="lengths.csv", column="tokens", min=30)
    assert set(bounded.tolist()) == {70}


def test_empirical_names_bad_rows(tmp_path: Path) -> None:
    """File, line, column, value and rule; the scenario key of the class in front."""
    (tmp_path / "lengths.csv").write_text("tokens,x\n10,1\nmany,1\n0,1\n")
    with pytest.raises(InvalidInput) as refused:
        prompt_tokens(5, 2, tmp_path, kind="empirical", path="lengths.csv", column="tokens")
    assert str(refused.value).splitlines() == [
        "workload.prompt_tokens.path: lengths.csv has 2 bad rows (of 3)",
        "lengths.csv:3: tokens: 'many' is not a whole number",
        "lengths.csv:4: tokens: 0: must be at least 1",
    ]
