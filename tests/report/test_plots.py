"""Figures: the data they draw is the records', they carry units and findings, and draw for any run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from batchsim.metrics import Slo, SummaryContext, e2e_ns, summary, ttft_ns
from batchsim.metrics.itl import pooled_gaps
from batchsim.records import Records
from batchsim.report import plots, trace_plots
from batchsim.study.work import drawn
from batchsim.workload import traces
from tests.metrics.naive import Rules, random_rows, run
from tests.study.given import small

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _closed():
    """No figure outlives its test."""
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def a_run(**rules: float | bool) -> Records:
    """A small run under pressure."""
    return run(random_rows(3, 80), Rules(seats=3, **rules), 3)[1]  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", ["ttft", "tpot", "itl", "e2e"])
def test_cdf_is_the_distribution(metric: str) -> None:
    """The curve ends at 1 and the axis names the metric and its unit."""
    ax = plots.latency_cdf(a_run(), metric)
    line = ax.get_lines()[0]
    assert line.get_ydata()[-1] == pytest.approx(1.0)
    assert np.all(np.diff(line.get_xdata()) >= 0)
    assert ax.get_xlabel() == f"{metric.upper()} (ms)"


def test_cdf_title_counts_the_target() -> None:
    """The title says which share is within the target, equality passing."""
    records = a_run()
    values = np.sort(ttft_ns(records.requests)) / 1e6
    ax = plots.latency_cdf(records, "ttft", slo_ms=float(values[59]))
    assert ax.get_title(loc="left").startswith("TTFT: 75 % within")


@pytest.mark.parametrize("metric", ["ttft", "tpot", "itl"])
def test_cdf_marks_are_the_summarys_percentiles(metric: str) -> None:
    """p50 and p99 in the title are the summary's, interpolated alike."""
    records = a_run()
    figures = summary(records, SummaryContext())
    told = ", ".join(f"p{q} {plots.duration(figures[f'p{q}_{metric}_ms'])}" for q in (50, 99))
    assert plots.latency_cdf(records, metric).get_title(loc="left") == f"{metric.upper()}: {told}"


def test_cdf_of_folded_steps_is_the_exact_one_within_a_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long run the ITL curve comes from bins a thousandth wide: nowhere further than that from the exact curve."""
    records = a_run()
    exact = plots.latency_cdf(records, "itl").get_lines()[0]
    monkeypatch.setattr(plots, "pooled_gaps", lambda records: pooled_gaps(records, fold=True))
    assert plots.pooled_gaps(records).runs is not None
    binned = plots.latency_cdf(records, "itl").get_lines()[0]
    for value, share in zip(binned.get_xdata(), binned.get_ydata(), strict=True):
        low, high = np.searchsorted(exact.get_xdata(), [value * 0.998, value * 1.002], side="right")
        shares = np.concatenate([[0.0], exact.get_ydata()])
        assert shares[low] - 1e-12 <= share <= shares[high] + 1e-12


def test_batch_size_of_a_stretch_is_that_of_the_run() -> None:
    """A stretch of the stair has the run's values at the run's times, and the step that leads into it."""
    records = a_run()
    whole = plots.batch_size(records).get_lines()[0]
    some = plots.batch_size(records, start_s=0.5, end_s=1.0).get_lines()[0]
    points = set(zip(whole.get_xdata().tolist(), whole.get_ydata().tolist(), strict=True))
    assert set(zip(some.get_xdata().tolist(), some.get_ydata().tolist(), strict=True)) < points
    assert some.get_xdata()[0] <= 0.5
    assert some.get_xdata()[-1] >= 1.0


@pytest.mark.parametrize("rows", [1, 2, 400])
def test_a_traces_picture_is_its_rate_and_lengths(tmp_path: Path, rows: int) -> None:
    """The bars of the rate add up to the requests that they cover; the picture comes out for one row and for many."""
    file = tmp_path / "t.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i * 0.5},{i + 1},7\n" for i in range(rows)))
    work = traces.read(file).workload
    assert trace_plots.write_trace_figure(tmp_path / "trace.png", work).read_bytes().startswith(b"\x89PNG")
    bars = trace_plots.arrival_rate(work).patches[0].get_data()
    assert float((bars.values * np.diff(bars.edges)).sum()) == pytest.approx(rows)
    assert f"≤ {(rows + 1) / 2:,.0f} tokens in, ≤ 7 out" in trace_plots.length_cdf(work).get_title(loc="left")


def test_unknown_metric_is_refused() -> None:
    """Another metric is refused with those there are."""
    with pytest.raises(ValueError, match="ttft, tpot, itl, e2e"):
        plots.latency_cdf(a_run(), "latency")


def test_timeline_bars_fill_every_stay() -> None:
    """Waiting, prefill and decode of all requests add up to their E2E; evictions are there when anyone was evicted."""
    records = a_run(preempt=0.05)
    ax = plots.timeline(records)
    lengths = {}
    for bars in ax.collections:
        corners = [path.vertices for path in bars.get_paths()]
        lengths[bars.get_label()] = sum(float(c[:, 0].max() - c[:, 0].min()) for c in corners)
    stay = float(e2e_ns(records.requests).sum()) / 1e9
    assert lengths["waiting"] + lengths["prefill"] + lengths["decode"] == pytest.approx(stay)
    evicted = records.evictions
    assert len(evicted.index)
    assert lengths["evicted"] == pytest.approx(float((evicted.resumed_ns - evicted.evicted_ns).sum()) / 1e9)
    assert plots.timeline(records, 0.5, 1.0).get_xlim() == (0.5, 1.0)
    assert "(first 10 of 80)" in plots.timeline(records, limit=10).get_title(loc="left")


def test_batch_and_kv_titles_carry_the_figures() -> None:
    """KV occupancy and batch size say peak and means that the records give."""
    records = a_run()
    peak = records.iterations.kv_blocks_used.max() / records.kv_blocks_total
    assert f"at most {100 * peak:.0f} % of 100 blocks" in plots.kv_occupancy(records).get_title(loc="left")
    span = records.requests.finished_ns.max() - records.requests.arrival_ns.min()
    title = f"{records.requests.ran_ns.sum() / span:.1f} running, {records.requests.waited_ns.sum() / span:.1f} waiting"
    assert plots.batch_size(records).get_title(loc="left").startswith(title)


def test_spikes_show_the_longest_tick() -> None:
    """The tallest spike is the longest gap that a stream had at a tick."""
    records = a_run(mixed=False)
    ax = plots.itl_spikes(records, slo_ms=20)
    tops = [segment[1][1] for segment in ax.collections[0].get_segments()]
    assert f"longest gap {plots.duration(max(tops))}" in ax.get_title(loc="left")


@pytest.mark.parametrize("count", [0, 1, 300])
def test_figures_are_written_for_any_run(tmp_path: Path, count: int) -> None:
    """timeline.png and latency.png come out whole for no, one and many requests, on several replicas."""
    records = run(random_rows(1, count), Rules(replicas=2, preempt=0.05))[1]
    for path in plots.write_figures(tmp_path, records, {"default": Slo(ttft_ms=50)}):
        assert path.read_bytes().startswith(b"\x89PNG")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["latency.png", "timeline.png"]


def test_the_queue_is_seen_while_a_batch_fills() -> None:
    """Requests that wait on an idle replica stand in the batch figure: its mean queue is the waits' share of time."""
    records = a_run()
    ax = plots.batch_size(records)
    times, values = ax.get_lines()[1].get_data()
    area = float((np.asarray(values)[:-1] * np.diff(times)).sum())
    assert area == pytest.approx(records.requests.waited_ns.sum() / 1e9)
    assert area > 0


@pytest.mark.parametrize(
    ("last_s", "edges", "rates"),
    [(2.75, [0, 1, 2, 2.75], [1, 1, 2 / 0.75]), (2.25, [0, 1, 2.25], [1, 3 / 1.25]), (0.5, [0, 1], [3])],
)
def test_the_last_stretch_of_a_trace_is_drawn(last_s: float, edges: list[float], rates: list[float]) -> None:
    """Every arrival is in a bar: a rest of half a stretch or more is one of its own, a shorter one joins the one before."""
    starts = [0.5, 1.5] if last_s > 1 else [0.0]
    arrivals = [*starts, last_s, last_s]
    listed = [{"arrival_ms": 1000 * at, "prompt_tokens": 5, "output_tokens": 2} for at in arrivals]
    work = drawn(small(workload={"kind": "list", "requests": listed}))
    bars = trace_plots.arrival_rate(work).patches[0].get_data()
    assert bars.edges.tolist() == edges
    assert bars.values.tolist() == pytest.approx(rates)
    assert sum(bars.values * np.diff(bars.edges)) == pytest.approx(len(arrivals))
