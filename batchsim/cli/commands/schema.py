"""`batchsim schema`: the JSON Schema of a scenario, for editors."""

from __future__ import annotations

from batchsim.cli import options


def command(quiet: options.Quiet = False) -> None:
    """Print a scenario's JSON Schema. Editors complete and check with it."""
    from batchsim.scenario import json_schema

    options.print_json(json_schema())
