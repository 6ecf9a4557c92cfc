"""`batchsim list`: what there is, with a line each and the parameters, read off the classes and the catalogue."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from batchsim.cli import options


class What(StrEnum):
    """The lists there are."""

    SCHEDULERS = "schedulers"
    GPUS = "gpus"
    MODELS = "models"
    PROFILES = "profiles"
    ENGINES = "engines"
    ROUTERS = "routers"
    ARRIVALS = "arrivals"
    LENGTHS = "lengths"
    COST_MODELS = "cost-models"
    FORMATS = "formats"
    SCENARIOS = "scenarios"


def command(
    what: Annotated[What, typer.Argument(metavar="WHAT", help="Which list.")],
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what there is. Kinds with their parameters, entries of the catalogue with their figures."""
    from batchsim.cli import listing

    entries = listing.entries(what.value)
    if json:
        options.print_json([entry.to_dict() for entry in entries])
    else:
        options.show(listing.text(entries))
