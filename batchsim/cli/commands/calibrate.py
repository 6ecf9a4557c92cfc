"""`batchsim calibrate`: a cost profile from measured kernel timings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchsim.cli import options
from batchsim.errors import InvalidInput, problem

if TYPE_CHECKING:
    from batchsim.calibrate.calibration import Calibration
    from batchsim.calibrate.schema import Row


def command(
    gpu: Annotated[str, typer.Option(help="the GPU that was measured, by its catalogue name")],
    measurements: Annotated[Path | None, typer.Argument(help="CSV of timings; see `batchsim profile`")] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="aiconfigurator: read the installed package instead")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write the profile here (YAML), for cost_model.profile")] = None,
    table: Annotated[Path | None, typer.Option(help="write the thinned measurements here (CSV)")] = None,
    plot: Annotated[Path | None, typer.Option(help="write measured against predicted here (PNG)")] = None,
    quiet: options.Quiet = False,
) -> None:
    """Fit a cost profile to measured kernels."""
    from batchsim.calibrate import aiconfigurator, schema
    from batchsim.calibrate.calibration import calibrate, write

    rows = _rows(measurements, source, gpu)
    if table is not None:
        schema.write(table, rows, aiconfigurator.notice(gpu) if source else ())
    found = calibrate(rows, gpu)
    options.show(_report(found))
    if out is not None:
        write(found, out)
    if plot is not None:
        from matplotlib.figure import Figure

        from batchsim.calibrate.plot import measured_against_predicted

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        measured_against_predicted(found, figure.add_subplot())
        figure.savefig(plot, dpi=150)


def _rows(measurements: Path | None, source: str | None, gpu: str) -> list[Row]:
    from batchsim.calibrate import aiconfigurator, schema

    if source not in (None, "aiconfigurator"):
        raise InvalidInput([problem("--from", source, "must be aiconfigurator")])
    if (source is None) == (measurements is None):
        raise InvalidInput([problem("measurements", None, "give a CSV of timings, or --from aiconfigurator")])
    if measurements is None:
        return aiconfigurator.shipped(gpu)
    try:
        return schema.read(measurements)
    except OSError as error:
        raise InvalidInput([problem("measurements", measurements, f"cannot be read: {error.strerror}")]) from error


def _report(found: Calibration) -> str:
    """Parameters, held-out errors, and what the data cannot say."""
    profile = found.profile
    lines = [f"{profile.gpu} · {len(found.data)} settings, {sum(len(m) for _, m in found.data):,} iterations", ""]
    lines += [f" {'held out':32}{'mean':>8}{'p95':>8}{'n':>8}"]
    for name, e in [*found.held_out.items(), *([("fp8, random", found.fp8)] if found.fp8 else [])]:
        lines.append(f" {name:32}{e.mape:>7.1f}%{e.p95:>7.1f}%{e.count:>8,}")
    lines.append("")
    for name, value in profile.model_dump(exclude_none=True, exclude_defaults=True).items():
        if isinstance(value, float) and not name.endswith("percent"):
            lines.append(f" {name:32}{value:>10.4g}")
    if found.unidentified:
        lines += ["", f" not identified by these data: {', '.join(found.unidentified)}"]
    if found.flagged:
        lines += ["", f" {len(found.flagged)} rows are faster than memory allows (served by a cache?), the first:"]
        lines += [f"   {flag}" for flag in found.flagged[:3]]
    return "\n".join(lines)
