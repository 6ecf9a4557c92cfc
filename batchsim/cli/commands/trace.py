"""`batchsim trace`: what a trace holds, without simulating."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from batchsim.cli import options
from batchsim.errors import InvalidInput, Problem

Formats = Literal["auto", "azure", "mooncake", "burstgpt", "vllm", "batchsim"]


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace file, plain or gzip.")],
    format: Annotated[Formats, typer.Option("--format", help="auto: told by its columns.")] = "auto",
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Read only so many rows.")] = None,
    skip_invalid: Annotated[bool, typer.Option("--skip-invalid", help="Leave bad rows out and count them.")] = False,
    out: options.Out = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Describe a trace file. Rows, span, rate, lengths, burstiness, sharing; nothing is simulated.

    Under DIR: trace-summary.json, the same figures, and trace.png, the rate over time and the lengths.
    """
    folder = options.folder(out)
    from batchsim.cli import tracing
    from batchsim.workload import traces
    from batchsim.workload.describe import describe

    try:
        trace = traces.read(file, format=format, limit=limit, skip_invalid=skip_invalid, where="trace")
    except InvalidInput as error:
        note = error.note.replace("set trace.skip_invalid: true", "give --skip-invalid")
        raise InvalidInput([_as_option(found) for found in error.problems], note) from error
    described = describe(trace)
    options.warn(described.notes, quiet, label="note")
    if folder is not None:
        from batchsim.report.files import write_json
        from batchsim.report.trace_plots import write_trace_figure

        write_json(folder / "trace-summary.json", described.to_dict())
        write_trace_figure(folder / "trace.png", trace.workload)
    if json:
        options.print_json(described.to_dict())
    else:
        options.show(tracing.text(file.name, described))
        if folder is not None:
            options.show(f"\n files     trace-summary.json, trace.png in {folder}")


def _as_option(found: Problem) -> Problem:
    """The reader speaks of keys of a scenario; here they are options."""
    words = {"trace.path": "file", "trace.format": "--format", "trace.skip_invalid": "--skip-invalid"}
    path, rule = found.path, found.rule
    for key, option in words.items():
        path, rule = path.replace(key, option), rule.replace(key, option)
    return replace(found, path=path, rule=rule)
