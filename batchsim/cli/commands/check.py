"""`batchsim check`: CI regression of scheduler policies against a stored baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from batchsim.cli import options


def command(
    baseline: Annotated[
        Path, typer.Argument(metavar="BASELINE", help="A file with scenario, cases, seeds and gates; or a scenario.")
    ],
    update: Annotated[bool, typer.Option("--update", help="Store what this version gives as the baseline.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Hold policies to a stored baseline. Same seeds on both sides; exit code 1 where a gate fails."""
    from batchsim.study import checking

    if update:
        file = checking.update(baseline)
        if not quiet:
            print(f"stored in {file}")
        return 0
    result = checking.check(baseline)
    if junit is not None:
        from batchsim.report.files import make_folder, write_atomically

        make_folder(junit.parent)
        write_atomically(junit, lambda stream: stream.write(result.junit()))
    if json:
        options.print_json(result.to_dict())
    else:
        from batchsim.report import check_text

        options.show(check_text.check_table(result))
    return 0 if result.passed else 1
