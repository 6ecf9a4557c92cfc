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
    from batchsim.scenario import resolve
    from batchsim.simulation import simulate

    workload = resolve(base).draw()
    runs = {kind: simulate(changed, workload=workload) for kind, changed in scenarios.items()}
    for kind, run in runs.items():
        options.warn((f"{kind}: {warning}" for warning in run.summary["warnings"]), quiet)
        if folder is not None:
            run.write(folder / kind, format=format)
    if json:
        options.print_json({kind: run.summary for kind, run in runs.items()})
    else:
        from batchsim.cli import printing

        printing.compare_table(runs)
    return 0 if any(run.summary["completed"] for run in runs.values()) else 3
