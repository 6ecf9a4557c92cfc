"""The documentation hangs together: the index has every page, links lead somewhere, the tutorial shows real outputs.

`BATCHSIM_WRITE_DOCS=1 pytest tests/docs/test_pages.py` writes the index's lists and the tutorial's outputs anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pinned import DOCS, ROOT, held, shows_what_is_printed

LISTS = re.compile(r"(<!-- pages: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def titled(folder: str) -> str:
    """A line for each page of a folder, by its heading."""
    lines = []
    for page in sorted((DOCS / folder).glob("*.md")):
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}]({folder}/{page.name})\n")
    return "".join(lines)


def test_the_index_has_every_page() -> None:
    """Each folder of docs has a list in the index, and each list has the folder's pages by their headings."""
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    held(DOCS / "index.md", LISTS.sub(lambda part: part[1] + titled(part[2]) + part[4], text))
    listed = {part[2] for part in LISTS.finditer(text)}
    assert listed == {page.parent.name for page in DOCS.glob("*/*.md")}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link and picture of a page is a file."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


def test_the_tutorial_shows_what_its_commands_print(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of the first ten minutes, run as it stands; only the time that it took may differ."""
    page = DOCS / "tutorial" / "first-run.md"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    assert shows_what_is_printed(page, capsys) == 7
