"""`batchsim compare`: the same requests through several schedulers, side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from batchsim.cli import options


def command(
    scenario: options.ScenarioFile,
    schedulers: Annotated[
        str, typer.Option("--schedulers", metavar="A,B,…", help="Kinds, as `batchsim list schedulers`.")
    ],
    out: options.Out = None,
    set_: options.Set = None,
    seed: options.Seed = None,
    json: options.Json = False,
    format: options.Format = "csv",  # the option's name
    quiet: options.Quiet = False,
) -> int:
    """Several schedulers side by side. All get the same requests."""
    kinds = [kind.strip() for kind in schedulers.split(",")]
    base = options.load(scenario, set_, seed)
    folder = options.folder(out)
    from batchsim.study import compare

    result = compare(base, kinds)
    options.warn(result.warnings, quiet)
    if folder is not None:
        result.write(folder, format=format)
        from batchsim.report import pages

        options.report(folder, pages.compare_page(result, command=options.command_line()))
    if json:
        options.print_json({kind: run.summary for kind, run in result.items()})
    else:
        from batchsim.cli import printing

        printing.compare_table(result)
    return 0 if any(run.summary["completed"] for run in result.values()) else 3
