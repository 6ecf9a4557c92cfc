"""Putting the commands together, and turning every error that batchsim raises on purpose into lines on stderr and
an exit code."""

from __future__ import annotations

import functools
import os
import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from batchsim.cli import commands
from batchsim.errors import BatchsimError, InvalidInput

OK, CHECK_FAILED, INVALID, NOTHING_COMPLETED, NO_PLAN, INTERRUPTED = 0, 1, 2, 3, 4, 130


def main(arguments: list[str] | None = None) -> None:
    """The `batchsim` command. Always leaves through `SystemExit`."""
    try:
        app()(arguments, prog_name="batchsim")
    except KeyboardInterrupt:
        raise SystemExit(_interrupted()) from None


def app() -> typer.Typer:
    """The command line, a command for each module of `batchsim.cli.commands`, in the order of their names."""
    made = typer.Typer(
        name="batchsim",
        help="Simulate LLM inference serving: which scheduler, which GPU, how many of them.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    made.callback()(_options)
    for module in pkgutil.iter_modules(commands.__path__):
        command = import_module(f"{commands.__name__}.{module.name}").command
        made.command(module.name)(guarded(command))
    return made


def guarded(command: Callable[..., int | None]) -> Callable[..., None]:
    """A command that ends in an exit code: what it returns, or that of the error it raised."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            code = command(*arguments, **options) or OK
            sys.stdout.flush()
        except KeyboardInterrupt:
            code = _interrupted()
        except BrokenPipeError:  # `batchsim list models | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = OK
        except BatchsimError as error:
            code = _refused(error)
        except OSError as error:
            print(f"error: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
            code = INVALID
        raise typer.Exit(code)

    return run


def _refused(error: BatchsimError) -> int:
    lines = [str(found) for found in error.problems] if isinstance(error, InvalidInput) else str(error).splitlines()
    for line in lines:
        print(f"error: {line}", file=sys.stderr)
    if isinstance(error, InvalidInput) and error.note:
        print("\n".join(f"       {line}" for line in error.note.splitlines()), file=sys.stderr)
    return INVALID


def _interrupted() -> int:
    print("interrupted", file=sys.stderr)
    return INTERRUPTED


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"batchsim {_version()}")
        raise typer.Exit


def _version() -> str:
    from importlib import metadata  # slow to import, and seldom wanted

    try:
        return metadata.version("batchsim")
    except metadata.PackageNotFoundError:
        return "(not installed: run from its source tree)"


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass
