"""What `batchsim trace` prints of a trace."""

from __future__ import annotations

from collections.abc import Sequence

from batchsim.workload.describe import Description, LengthSummary

COLUMNS = 60
BARS = "▁▂▃▄▅▆▇█"


def text(name: str, trace: Description) -> str:
    """The description as a table for a terminal."""
    lines = [
        f"{name} · {trace.format} · {trace.rows:,} requests over {trace.span_s:,.1f} s",
        "",
        f" {'tokens':<8}" + "".join(f"{column:>10}" for column in ("mean", "p50", "p90", "p99", "max")),
        _lengths("prompt", trace.prompt_tokens),
        _lengths("output", trace.output_tokens),
        "",
        f" rate      {_rate(trace)}",
    ]
    if len(trace.minute_arrivals) > 2:
        lines.append(f" by time   {_sparkline(trace.minute_arrivals)} {_stretch(trace.minute_arrivals)}")
    if trace.gap_cv is not None:
        lines.append(f" gaps      coefficient of variation {trace.gap_cv:.2f} (1: Poisson; above: burstier)")
    lines.append(f" sharing   {_sharing(trace)}")
    if trace.skipped or trace.unsorted:
        lines.append(f" rows      {trace.skipped:,} bad ones left out, {trace.unsorted:,} out of order")
    counts = {"tenants": trace.tenants, "classes": trace.classes, "sessions": trace.sessions}
    told = [f"{count:,} {what}" for what, count in counts.items() if count > 1]
    return "\n".join([*lines, *([f" groups    {', '.join(told)}"] if told else [])])


def _lengths(label: str, lengths: LengthSummary) -> str:
    whole = "".join(f"{value:>10,.0f}" for value in (lengths.p50, lengths.p90, lengths.p99, lengths.max))
    return f" {label:<8}{lengths.mean:>10,.1f}{whole}"


def _rate(trace: Description) -> str:
    if trace.mean_rate_per_s is None:
        return "undefined: all arrive at once"
    mean = f"{_number(trace.mean_rate_per_s)} requests/s"
    if trace.slowest_minute_per_s is None or trace.busiest_minute_per_s is None:
        return mean
    slowest, busiest = _number(trace.slowest_minute_per_s), _number(trace.busiest_minute_per_s)
    return f"{mean}; slowest minute {slowest}, busiest {busiest}"


def _number(rate: float) -> str:
    """Two decimals, three significant digits below 1: a wrong unit shows."""
    return f"{rate:.2f}" if rate >= 1 or rate == 0 else f"{rate:.3g}"


def _sharing(trace: Description) -> str:
    if trace.prefix_share is None:
        return "not told by this trace"
    return (
        f"{trace.prefix_share:.1%} of prompt tokens repeat an earlier prefix ({trace.prefix_block_tokens}-token blocks)"
    )


def _per_column(minutes: Sequence[int]) -> int:
    return -(-len(minutes) // COLUMNS)


def _stretch(minutes: Sequence[int]) -> str:
    each = _per_column(minutes)
    return "a minute each" if each == 1 else f"{each} minutes each"


def _sparkline(minutes: Sequence[int]) -> str:
    """Requests over time as bars from nothing to the busiest stretch."""
    each = _per_column(minutes)
    parts = [minutes[start : start + each] for start in range(0, len(minutes), each)]
    rates = [sum(part) / len(part) for part in parts]
    return "".join(BARS[round(rate / max(rates) * (len(BARS) - 1))] for rate in rates)
