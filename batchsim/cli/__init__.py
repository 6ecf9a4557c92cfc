"""The command line: parses, calls the library, prints, exits. Each command is one file of `commands`."""

from __future__ import annotations

from batchsim.cli.app import main

__all__ = ["main"]
