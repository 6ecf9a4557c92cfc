"""The documentation hangs together: the index has every page, links lead somewhere, the tutorial shows real outputs.

`BATCHSIM_WRITE_DOCS=1 pytest tests/docs/test_pages.py` writes the index's lists and the tutorial's outputs anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from batchsim.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITE = bool(os.environ.get("BATCHSIM_WRITE_DOCS"))
LISTS = re.compile(r"(<!-- pages: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
SHOWN = re.compile(r"```sh\n(batchsim [^\n]*)\n```\n\n```text\n(.*?)```", re.DOTALL)
VARIES = re.compile(r"(?:simulated|planned) +.*(?:\n {6,}.*)*")


def held(path: Path, wanted: str) -> None:
    """The file must say this; it is written where that is asked for."""
    if WRITE:
        path.write_text(wanted, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == wanted


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


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, stderr first; the times that it took are left out."""
    with pytest.raises(SystemExit):
        main(command.split()[1:])
    out = capsys.readouterr()
    text = VARIES.sub("", out.err + out.out)
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def test_the_tutorial_shows_what_its_commands_print(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of the first ten minutes, run as it stands; only the time that it took may differ."""
    page = DOCS / "tutorial" / "first-run.md"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    text = page.read_text(encoding="utf-8")
    assert len(SHOWN.findall(text)) == 7

    def again(part: re.Match[str]) -> str:
        return f"```sh\n{part[1]}\n```\n\n```text\n{printed(part[1], capsys)}```"

    held(page, SHOWN.sub(again, text))
