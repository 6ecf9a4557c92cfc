"""Pages of the documentation that are held to what their commands print and their scripts compute.

`BATCHSIM_WRITE_DOCS=1 pytest -n 0 tests/docs` (with `-m slow` for the long ones) writes them anew.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from batchsim.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITE = bool(os.environ.get("BATCHSIM_WRITE_DOCS"))
SHOWN = re.compile(r"```sh\n(batchsim (?:[^`]|\\\n)*?)\n```\n\n```text\n(.*?)```", re.DOTALL)
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
VARIES = re.compile(r"(?:simulated|planned) +.*(?:\n {6,}.*)*")
NUMBER = re.compile(r"(?<![\w.,/-])\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w-]*[A-Za-z_]\d)")


def held(path: Path, wanted: str) -> None:
    """The file must say this; it is written where that is asked for."""
    if WRITE:
        path.write_text(wanted, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == wanted


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, stderr first; the times that it took are left out."""
    with pytest.raises(SystemExit):
        main(command.replace("\\\n", " ").split()[1:])
    out = capsys.readouterr()
    text = VARIES.sub("", out.err + out.out)
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def shows_what_is_printed(
    page: Path, capsys: pytest.CaptureFixture[str], wanted: Callable[[str], bool] = lambda command: True
) -> int:
    """Runs the page's commands, or those wanted, in this folder, and holds their outputs; how many there were."""
    ran = 0

    def again(part: re.Match[str]) -> str:
        nonlocal ran
        if not wanted(part[1]):
            return part[0]
        ran += 1
        return f"```sh\n{part[1]}\n```\n\n```text\n{printed(part[1], capsys)}```"

    held(page, SHOWN.sub(again, page.read_text(encoding="utf-8")))
    return ran


def script_of(page: Path, name: str) -> ModuleType:
    """The script beside a page, which offers `TABLES`: functions that compute its tables, by name."""
    return module_at(page.with_name(f"{name}.py"))


def module_at(path: Path) -> ModuleType:
    """A script of the documentation as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{path.parent.name}_{path.stem}".replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def shows_what_is_computed(page: Path, script: ModuleType, names: list[str]) -> None:
    """The page's tables of these names are what the script computes."""
    text = page.read_text(encoding="utf-8")
    assert set(names) <= {part[2] for part in TABLE.finditer(text)}
    held(
        page,
        TABLE.sub(lambda part: part[1] + script.TABLES[part[2]]() + part[4] if part[2] in names else part[0], text),
    )


def loose_figures(page: Path, given: set[str]) -> set[str]:
    """Numbers of a page's prose that none of its commands, outputs, files and computed tables shows, and that are not
    among those given; whole numbers to ten are words."""
    text = page.read_text(encoding="utf-8")
    sources = [part[0] for pattern in (SHOWN, FILE, TABLE) for part in pattern.finditer(text)]
    prose = TABLE.sub("", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)|^#.*$", " ", prose, flags=re.MULTILINE)
    known = {_plain(number) for source in sources for number in NUMBER.findall(source)}
    return {
        number
        for number in NUMBER.findall(prose)
        if _plain(number) not in known | {_plain(one) for one in given} and not (number.isdigit() and int(number) <= 10)
    }


def _plain(number: str) -> float:
    return float(number.replace(",", ""))
