"""`batchsim run`: one run, a table on stdout, files under DIR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from batchsim.cli import options
from batchsim.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from batchsim.report.perfetto import Window


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
    trace_window: Annotated[
        str | None, typer.Option("--trace-window", metavar="START:END", help="The part for --trace, seconds: 10:20.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Also write report.html, one file, and report.md.")] = False,
    format: options.Format = "csv",  # the option's name
    quiet: options.Quiet = False,
) -> int:
    """Simulate a scenario. A table on stdout (--json: the summary), files under DIR."""
    wanted = {"--step-log": step_log, "--trace": trace, "--report": report}
    window = _window(trace, trace_window)
    checked = options.load(scenario, set_, seed)
    folder = options.folder(out, [option for option, on in wanted.items() if on])
    from batchsim.simulation import simulate

    run = simulate(checked, step_log=step_log)
    options.warn(run.summary["warnings"], quiet)
    if folder is not None:
        run.write(folder, format=format)
        if trace:
            from batchsim.report import perfetto

            _, note = perfetto.write_trace(folder / "trace.json", run.records, window)
            options.warn([note] if note else [], quiet)
        if report:
            from batchsim.report import pages

            options.report(folder, pages.run_page(run, command=options.command_line()))
    if json:
        options.print_json(run.summary)
    else:
        from batchsim.cli import printing

        printing.run_table(run, folder)
    return 0 if run.summary["completed"] else 3


def _window(trace: bool, text: str | None) -> Window | None:
    if text is None:
        return None
    if not trace:
        raise InvalidInput([Problem("--trace-window", "needs --trace", text)])
    from batchsim.report.perfetto import Window

    return Window.parse(text)
