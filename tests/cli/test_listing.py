"""`batchsim list`: everything that a scenario can name is there, with its parameters, their defaults and meanings."""

from __future__ import annotations

import pytest

from batchsim.cli import listing
from batchsim.cli.commands.list import What
from batchsim.scenario import kinds
from batchsim.workload.traces import FORMATS


@pytest.mark.parametrize("what", list(What))
def test_every_entry_says_what_it_is(what: What) -> None:
    """Each list has entries; each entry has a line, each parameter a type, a default or none, and a meaning."""
    found = listing.entries(what.value)
    assert found
    for entry in found:
        assert entry.line, entry.name
        for parameter in entry.parameters:
            assert parameter.type, (entry.name, parameter.name)
            assert parameter.meaning, f"{what.value} {entry.name}.{parameter.name} has no description"


@pytest.mark.parametrize("what", list(What))
def test_the_text_names_all_and_fits_a_terminal(what: What) -> None:
    """The printed list names every entry and parameter and is at most 100 columns wide, long names apart."""
    found = listing.entries(what.value)
    text = listing.text(found)
    for entry in found:
        assert entry.name in text
        for parameter in entry.parameters:
            assert f"  {parameter.name} " in text
    for line in text.splitlines():
        assert len(line) <= listing.WIDTH or " " not in line.strip()


@pytest.mark.parametrize("section", list(kinds.PACKAGES))
def test_every_kind_of_a_section_is_listed(section: str) -> None:
    """What the loader takes for a section's kind is what the list shows."""
    what = next(name for name, listed in listing.SECTIONS.items() if listed == section)
    assert [entry.name for entry in listing.entries(what)] == kinds.available(section)


def test_the_trace_formats_are_listed() -> None:
    """Every format of a trace file, with its columns."""
    found = {entry.name: [parameter.name for parameter in entry.parameters] for entry in listing.entries("formats")}
    assert found == {name: list(form.wanted) for name, form in FORMATS.items()}
