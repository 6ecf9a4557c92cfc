"""`batchsim replay`: play recordings of a real scheduler, print the first difference side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from batchsim.cli import options
from batchsim.errors import InvalidInput, Problem


def command(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="RECORDING…", help="JSON files: config, requests, steps.")
    ],
    quiet: options.Quiet = False,
) -> int:
    """Check against recordings. Plays those of a real scheduler, prints the first difference side by side."""
    from batchsim.cli import replaying

    differ, refused = 0, []
    for file in recordings:
        try:
            recording = replaying.read(file)
            difference = replaying.first_difference(recording)
        except InvalidInput as error:
            refused += [Problem(f"{file.name}: {found.path}", found.rule, found.value) for found in error.problems]
            continue
        differ += difference is not None
        if difference is not None:
            options.show(f"{file.name}: {difference}")
        elif not quiet:
            options.show(f"{file.name}: {len(recording['steps'])} steps agree")
    if refused:
        raise InvalidInput(refused, f"{len(recordings)} recordings: {differ} differ")
    return 1 if differ else 0
