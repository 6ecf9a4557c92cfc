"""`batchsim sweep`: a grid of runs, resumable, to throughput–latency curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from batchsim.cli import options
from batchsim.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from batchsim.study import Part


def command(
    scenario: options.ScenarioFile,
    over: Annotated[
        list[str], typer.Option("--over", metavar="K=V", help="A key and its values: K=1:20:1 (both ends) or K=A,B,….")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Results; the same command again resumes there.")],
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Seeds a point, from the scenario's own on.")] = 1,
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", help="Worker processes; one a core.")] = None,
    backend: Annotated[
        Literal["processes", "dask", "ray"], typer.Option("--backend", help="Where runs are computed.")
    ] = "processes",
    address: Annotated[
        str, typer.Option("--address", metavar="URL", help="Of a running Dask scheduler or Ray cluster.")
    ] = "",
    window: Annotated[
        str, typer.Option("--window", metavar="A:B", help="Part of the arrivals that `window.` figures are of; `none`.")
    ] = "0.1:1",
    interval: Annotated[Literal["t", "bootstrap"], typer.Option("--interval", help="Over seeds.")] = "t",
    saturation: Annotated[
        bool, typer.Option("--saturation", help="Also bisect each line's saturation rate to 1 %.")
    ] = False,
    set_: options.Set = None,
    seed: options.Seed = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """A grid of runs over seeds. Curves and a report under DIR; killed, it resumes."""
    from batchsim.study import grid

    axes = grid.axes(over)
    base = options.load(scenario, set_, seed)
    folder = options.folder(out)
    assert folder is not None
    from batchsim.cli import progress
    from batchsim.study import sweep

    with progress.bar("runs", quiet) as report:
        result = sweep(
            base, axes, seeds=seeds, out=folder, jobs=jobs, backend=backend, address=address, window=_part(window),
            interval=interval, progress=report,
        )  # fmt: skip
    whole = result.to_dict()
    options.warn(whole["warnings"], quiet)
    rates = {}
    if saturation:
        from batchsim.study.saturating import saturations

        rates = saturations(result)
        whole["saturation"] = {name: found.to_dict() for name, found in rates.items()}
    from batchsim.report import pages

    options.report(folder, pages.sweep_page(result, command=options.command_line(), saturation=rates))
    if json:
        options.print_json(whole)
    else:
        from batchsim.report import study_text

        options.show(study_text.sweep_table(whole, computed=result.computed, out=str(folder)))
    return 0 if any(row.get("completed") for row in result.rows) else 3


def _part(text: str) -> Part | None:
    """The named part of `--window`; None for `none`."""
    from batchsim.study import Part

    if text == "none":
        return None
    start, _, end = text.partition(":")
    try:
        return Part(float(start), float(end))
    except ValueError as error:
        raise InvalidInput(
            [Problem("--window", "must be START:END, shares of the arrivals, or none", repr(text))]
        ) from error
