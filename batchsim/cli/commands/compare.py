"""`batchsim compare`: the same requests through several schedulers, side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from batchsim.cli import options
from batchsim.errors import InvalidInput, Problem


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
    if len(set(kinds)) < len(kinds) or not all(kinds):
        raise InvalidInput([Problem("--schedulers", "must be different kinds, with commas between", repr(schedulers))])
    base = options.load(scenario, set_, seed)
    folder = options.folder(out)
    scenarios = {kind: base.replace({"scheduler.kind": kind}) for kind in kinds}
    from batchsim.study import compare

    runs = compare(scenarios)
    warnings = {f"{kind}: {warning}": None for kind in kinds for warning in runs[kind].summary["warnings"]}
    options.warn(warnings, quiet)
    if folder is not None:
        runs.write(folder, format=format)
    if json:
        options.print_json({kind: runs[kind].summary for kind in kinds})
    else:
        options.show(runs.render())
    return 0 if any(runs[kind].summary["completed"] for kind in kinds) else 3
