"""The notebooks run from top to bottom, and are stored without their outputs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_is_stored_without_outputs(book: Path) -> None:
    """No output and no count: a diff shows what a person changed, and the file stays small."""
    cells = json.loads(book.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert book.stat().st_size < 20_000


@pytest.mark.slow
@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_runs(book: Path) -> None:
    """Every cell runs; BATCHSIM_SHOTS names a folder for the pages as they came out."""
    client, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    read = nbformat.read(book, as_version=4)
    client.NotebookClient(read, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    code = [cell for cell in read.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code if cell.source.strip())
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]
    shots = os.environ.get("BATCHSIM_SHOTS")
    if shots:
        page, _ = pytest.importorskip("nbconvert").HTMLExporter().from_notebook_node(read)
        (Path(shots) / f"{book.stem}.html").write_text(page, encoding="utf-8")
