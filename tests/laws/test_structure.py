"""The layers of docs/explanation/design.md: a module imports only what stands in its own row or above it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "batchsim"
ENTRY = {"__init__", "__main__"}  # imports lazily, by name


def layers() -> dict[str, int]:
    """Row of each module in the table of the design page."""
    page = (ROOT / "docs/explanation/design.md").read_text()
    table = re.search(r"\| module \|.*?\n\n", page, re.S)
    assert table is not None
    rows = [line.split("|")[1] for line in table[0].splitlines()[2:] if line]
    return {name.strip("/"): row for row, cell in enumerate(rows) for name in re.findall(r"`([a-z_]+/?)`", cell)}


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> set[str]:
    """The parts of the package that a file imports when it is imported; what stands in functions or TYPE_CHECKING is left out."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "batchsim":
            names = [node.module] if node.module != "batchsim" else [f"batchsim.{alias.name}" for alias in node.names]
            found |= {name.split(".")[1] for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("batchsim.")}
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def test_every_module_has_a_row() -> None:
    """A stranger finds each part of the package in the table, and the table names nothing else."""
    assert {part_of(path) for path in FILES} - ENTRY == set(layers())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_up(path: Path) -> None:
    """No file imports a part that stands below its own."""
    rows = layers()
    part = part_of(path)
    if part in ENTRY:
        return
    below = {name for name in imports(path) if rows.get(name, 0) > rows[part]}
    assert not below, f"{path.relative_to(ROOT)} imports {sorted(below)}, which stand below it"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_small(path: Path) -> None:
    """Under 500 lines a file; the longest is the calls of a scheduler, `batch.py`, which are better read together."""
    assert path.read_text().count("\n") < 500
