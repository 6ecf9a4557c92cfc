"""The pages of schedulers: one for every kind, with what it takes from the code up to date."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from batchsim.scenario import kinds
from tests.docs.pinned import module_at

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "schedulers"
KINDS = kinds.available("scheduler")
SECTIONS = ("## The rule", "## Timeline", "## Parameters", "## When it wins", "## When it breaks")


@cache
def script(name: str) -> ModuleType:
    """A script of docs/schedulers as a module."""
    return module_at(PAGES / f"{name}.py")


@pytest.mark.parametrize("kind", KINDS)
def test_every_scheduler_has_its_page(kind: str) -> None:
    """Rule, timeline, parameters, when it wins and when it breaks; the rule in about ten lines."""
    text = (PAGES / f"{kind}.md").read_text(encoding="utf-8")
    places = [text.find(f"\n{heading}\n") for heading in SECTIONS]
    if kind in script("make_pages").BY_HAND:
        places.remove(places[SECTIONS.index("## Timeline")])
    assert -1 not in places
    assert places == sorted(places)
    rules = text.split("## The rule")[1].split("\n## ")[0].strip().splitlines()
    assert 5 <= sum(line[0].isdigit() for line in rules if line) <= 11


@pytest.mark.parametrize("kind", KINDS)
def test_its_parameters_are_those_of_the_code(kind: str) -> None:
    """The table is what `python docs/schedulers/make_pages.py` makes; a page written by hand names every key."""
    make = script("make_pages")
    text = (PAGES / f"{kind}.md").read_text(encoding="utf-8")
    if kind in make.BY_HAND:
        assert [each.name for each in make.BY_KIND[kind].parameters if f"| `{each.name}` |" not in text] == []
    else:
        assert make.with_parameters(text, make.BY_KIND[kind]) == text


def test_the_table_of_all_is_up_to_date() -> None:
    """docs/reference/schedulers.md is what the script makes of the code, and of running it."""
    make = script("make_pages")
    assert make.REFERENCE.read_text(encoding="utf-8") == make.reference()


def test_every_number_has_a_unit() -> None:
    """A parameter that is a number says what it counts, also one that a page written by hand explains."""
    make = script("make_pages")
    assert all(make.unit(each) for entry in make.BY_KIND.values() for each in entry.parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_its_timeline_is_what_it_does(kind: str) -> None:
    """The figure's data: fourteen requests are served to the end; the picture is there, and small."""
    records = script("plot_timelines").run(kind)
    assert len(records.requests) == 14
    assert np.all(records.requests.finished_ns > 0)
    assert 5_000 < (PAGES / "images" / f"{kind}.png").stat().st_size < 60_000


def test_a_stale_page_is_noticed() -> None:
    """A table that lost a row, or a page without markers, does not pass."""
    make = script("make_pages")
    entry = make.BY_KIND["static"]
    text = (PAGES / "static.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `batch_size`"))
    assert make.with_parameters(text.replace(row + "\n", ""), entry) == text
    with pytest.raises(ValueError, match="0 pairs of markers"):
        make.with_parameters("# no table", entry)


def test_links_between_the_pages_lead_somewhere() -> None:
    """Files and headings that the pages of schedulers and the comparisons name exist."""
    pages = [
        *PAGES.glob("*.md"),
        DOCS / "reference" / "schedulers.md",
        DOCS / "explanation" / "published-comparisons.md",
    ]
    for page in pages:
        for target in _links(page.read_text(encoding="utf-8")):
            path, _, heading = target.partition("#")
            found = page.parent / path
            assert found.exists(), f"{page.name}: {target}"
            assert not heading or heading in _headings(found), f"{page.name}: {target}"


def _links(text: str) -> list[str]:
    return [part.split(")")[0] for part in text.split("](")[1:] if not part.startswith("http")]


def _headings(page: Path) -> set[str]:
    lines = [line.lstrip("#").strip() for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return {"".join(c for c in line.lower().replace(" ", "-") if c.isalnum() or c in "-_") for line in lines}
