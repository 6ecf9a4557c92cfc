"""What notebooks show: small tables, and Axes from every result."""

from __future__ import annotations

import itertools

import pytest

from batchsim import compare, plan, simulate, sweep
from batchsim.report import curve_plots, study_plots
from tests.study.given import one_at_a_time, small

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
RATE = "workload.arrivals.rate_per_s"


@pytest.fixture(autouse=True)
def _closed():
    """No figure outlives its test."""
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def test_results_show_a_small_table() -> None:
    """Run, comparison, sweep and plan are shown as a sentence and a table, shorter than a screen."""
    base = small(slo={"ttft_ms": 200})
    shown = [
        simulate(base)._repr_html_(),
        compare(base, ["static", "vllm"])._repr_html_(),
        sweep(base, {RATE: list(range(1, 21))}, jobs=1)._repr_html_(),
        plan(one_at_a_time(requests=200, rate_per_s=2.0), seeds=1)._repr_html_(),
    ]
    for text in shown:
        assert text.startswith("<div><p>")
        assert 0 < text.count("<tr>") <= 45
        assert "<b>" in text
    assert "… and 8 more" in shown[2]


def test_plots_hang_on_results() -> None:
    """`run.plot.latency_cdf("ttft")` and its like return the Axes that they were given."""
    import matplotlib.pyplot as plt

    run = simulate(small())
    _, ax = plt.subplots()
    assert run.plot.latency_cdf("ttft", ax=ax) is ax
    for draw in (run.plot.timeline, run.plot.kv_occupancy, run.plot.batch_size, run.plot.itl_spikes):
        assert draw().get_xlabel()
    assert run.plot.tenant_service().get_title(loc="left").startswith("one tenant")


def test_tenants_end_at_what_they_were_served() -> None:
    """Each tenant's line ends at its weighted tokens: prompt once, output twice."""
    lengths = {"prompt_tokens": {"kind": "fixed", "tokens": 100}, "output_tokens": {"kind": "fixed", "tokens": 10}}
    mix = [{"name": name, "share": share, "tenant": name, **lengths} for name, share in (("a", 0.75), ("b", 0.25))]
    work = {"mix": mix, "requests": 80, "arrivals": {"kind": "poisson", "rate_per_s": 4}}
    run = simulate(small(workload=work))
    ends = [line.get_ydata()[-1] for line in run.plot.tenant_service().get_lines()]
    counts = run.requests.groupby("tenant").size()
    assert ends == pytest.approx([counts["a"] * 0.12, counts["b"] * 0.12])


def test_measured_against_predicted_says_how_far_off() -> None:
    """The title has the mean and the largest relative error; values that are not above 0 are refused."""
    ax = study_plots.measured_predicted([10.0, 100.0], [11.0, 95.0], what="step")
    assert "7.5 % on average, 10 % at most" in ax.get_title(loc="left")
    with pytest.raises(ValueError, match="above 0"):
        study_plots.measured_predicted([1.0], [0.0])


def test_labels_at_the_edge_keep_apart() -> None:
    """Names of lines that end together are pushed apart, in order; others stay where they are."""
    moved = curve_plots._apart([0.1, 0.5, 0.5, 0.9], 0.1)
    assert moved == pytest.approx([0.1, 0.45, 0.55, 0.9])
    assert all(after - before >= 0.0999 for before, after in itertools.pairwise(moved))


def test_an_interval_below_zero_leaves_the_log_axis_whole() -> None:
    """A band whose lower end is negative is cut, so that the axis still spans the means."""
    line = [
        {"x": x, "p99_ttft_ms": y, "p99_ttft_ms_low": y - 3 * y, "p99_ttft_ms_high": 4 * y}
        for x, y in ((1, 10.0), (2, 100.0), (3, 1000.0))
    ]
    ax = curve_plots.latency({"": line}, "x", "ttft")
    assert ax.get_yscale() == "log"
    assert 1 < ax.get_ylim()[0] < 10
    assert ax.get_ylim()[1] > 1000


def test_a_plan_of_slower_steps_is_the_plan_at_a_higher_rate() -> None:
    """Sensitivity to step times: the figures of steps 10 % slower are those of a cost model 10 % slower, run."""
    from batchsim.study import sensitivity

    found = plan(one_at_a_time(requests=300, rate_per_s=3.0, ttft_ms=3000.0), seeds=1, longer=1).best
    slow = one_at_a_time(requests=300, rate_per_s=3.0, ttft_ms=3000.0).replace({"cost_model.base_ms": 11.0})
    assert found.replicas is not None
    run = simulate(slow.replace({"replicas": found.replicas}))
    variant = next(one for one in sensitivity.variants(found) if one.name == "steps 10 % slower")
    assert variant.figures[0].value == pytest.approx(run.summary["p99_ttft_ms"], rel=1e-6)
