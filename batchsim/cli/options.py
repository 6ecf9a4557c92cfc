"""Options that several commands share, and what they mean."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from batchsim.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from batchsim.scenario import Scenario

ScenarioFile = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write the files there; without it nothing is written.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="K=V", help="Override a key: scheduler.max_num_seqs=64. May be repeated."),
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Override the seed.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No warnings and no progress.")]
Format = Annotated[Literal["csv", "parquet"], typer.Option("--format", help="Of the tables in DIR.")]


def load(file: str, changes: list[str] | None = None, seed: int | None = None) -> Scenario:
    """The scenario of the command line."""
    from batchsim.scenario import load as load_scenario

    seeds = [] if seed is None else [f"seed={seed}"]
    return load_scenario(file, [*(changes or []), *seeds])


def refuse_unbuilt(asked: Mapping[str, bool]) -> None:
    """Options that are promised and not built yet are refused, never ignored."""
    problems = [Problem(option, "not available in this version") for option, on in asked.items() if on]
    if problems:
        raise InvalidInput(problems)


def folder(out: Path | None, needed_by: Iterable[str] = ()) -> Path | None:
    """The folder of `--out`, made and found writable before the work begins. `needed_by`: options that make no
    sense without."""
    if out is None:
        problems = [Problem(option, "needs --out DIR") for option in needed_by]
        if problems:
            raise InvalidInput(problems)
        return None
    import tempfile

    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InvalidInput([Problem("--out", f"cannot be written: {error.strerror or error}", str(out))]) from error
    return out


def warn(warnings: Iterable[str], quiet: bool, *, label: str = "warning") -> None:
    """Warnings, or notes, a line each on stderr."""
    if not quiet:
        for warning in warnings:
            print(f"{label}: {warning}", file=sys.stderr)


def command_line() -> str | None:
    """What was typed, for a report; None where the command line was called from Python."""
    import shlex

    program = Path(sys.argv[0])  # `python -m batchsim` puts the package's own __main__.py there
    ours = program.name.startswith("batchsim") or (program.name, program.parent.name) == ("__main__.py", "batchsim")
    return shlex.join(["batchsim", *sys.argv[1:]]) if ours else None


def report(folder: Path, page: Any) -> None:
    """report.html and report.md in the folder of `--out`."""
    from batchsim.report import html

    html.write(folder, page)


def print_json(value: Any) -> None:
    """JSON on stdout."""
    import json

    print(json.dumps(value, indent=2, allow_nan=False))


def show(what: Any) -> None:
    """A text, or something that rich can render, on stdout: as wide as the terminal, 100 columns where there is
    none."""
    if isinstance(what, str):
        print(what)
        return
    from rich.console import Console

    width = None if sys.stdout.isatty() else 100
    Console(width=width, highlight=False, soft_wrap=False).print(what)
