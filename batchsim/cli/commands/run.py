"""`batchsim run`: one run, a table on stdout, files under DIR."""

from __future__ import annotations

from typing import Annotated

import typer

from batchsim.cli import options


def command(
    scenario: options.ScenarioFile,
    out: options.Out = None,
    set_: options.Set = None,
    seed: options.Seed = None,
    json: options.Json = False,
    step_log: Annotated[
        bool, typer.Option("--step-log", help="Also write steps.jsonl: every step, every request.")
    ] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Also write trace.json, for Perfetto.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Also write report.html, one file.")] = False,
    format: options.Format = "csv",  # the option's name
    quiet: options.Quiet = False,
) -> int:
    """Simulate a scenario. A table on stdout (--json: the summary), files under DIR."""
    wanted = {"--step-log": step_log, "--trace": trace, "--report": report}
    options.refuse_unbuilt({"--trace": trace, "--report": report})
    checked = options.load(scenario, set_, seed)
    folder = options.folder(out, [option for option, on in wanted.items() if on])
    from batchsim.simulation import simulate

    run = simulate(checked, step_log=step_log)
    options.warn(run.summary["warnings"], quiet)
    if folder is not None:
        run.write(folder, format=format)
    if json:
        options.print_json(run.summary)
    else:
        from batchsim.cli import printing

        printing.run_table(run, folder)
    return 0 if run.summary["completed"] else 3
