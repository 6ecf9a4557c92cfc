"""How-to pages and explanations show what their commands print and their scripts compute: no figure is typed in.

`BATCHSIM_WRITE_DOCS=1 pytest -m 'slow or not slow' -n 0 tests/docs/test_outputs.py` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pinned import DOCS, loose_figures, script_of, shows_what_is_computed, shows_what_is_printed

HOW_TO = DOCS / "how-to"
THREE = DOCS / "explanation" / "static-dynamic-continuous.md"


@pytest.mark.slow
@pytest.mark.parametrize(("page", "commands"), [("plan", 3), ("sweep", 1), ("compare", 1)])
def test_the_page_shows_what_its_commands_print(
    page: str, commands: int, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of the page, run as it stands; only the time that it took may differ."""
    monkeypatch.chdir(tmp_path)
    assert shows_what_is_printed(HOW_TO / f"{page}.md", capsys) == commands


@pytest.mark.slow
@pytest.mark.parametrize("page", ["sweep", "fleets"])
def test_the_page_shows_what_its_script_computes(page: str) -> None:
    """Saturation by length of the run; routers on one fleet."""
    script = script_of(HOW_TO / f"{page}.md", page)
    shows_what_is_computed(HOW_TO / f"{page}.md", script, list(script.TABLES))


@pytest.mark.slow
def test_the_three_batchings_are_what_the_script_computes(data: Path) -> None:
    """Both traces, whole, through every scheduler of the page."""
    assert data.is_dir()
    script = script_of(THREE, "static_dynamic_continuous")
    shows_what_is_computed(THREE, script, list(script.TABLES))


GIVEN = {
    "how-to/plan.md": {"20,000", "400,000", "20", "99", "100"},
    "how-to/sweep.md": {"20", "25", "95", "125"},  # a rate of the grid, 500 requests at its ends, the usual level
    "how-to/compare.md": set(),
    "how-to/fleets.md": {"60", "4,000"},  # the traffic of the example
    "how-to/plan-azure-conversation.md": {
        *("2023", "1,155", "211", "601", "4,000", "2,000", "95"),  # the trace's shape and the scenario's requests
        *("150", "200"),  # a reader's pace
    },
    "explanation/static-dynamic-continuous.md": {"2023", "128", "32", "512"},
}
"""Numbers of a page's prose that are no results."""


@pytest.mark.parametrize("page", GIVEN)
def test_figures_of_prose_stand_in_what_is_computed(page: str) -> None:
    """A number in a sentence is one that an output, a file or a computed table of the page shows, or an assumption."""
    assert loose_figures(DOCS / page, GIVEN[page]) == set()
