"""The how-to pages of inputs: what they show is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchsim.scenario import load
from batchsim.simulation import simulate
from batchsim.workload.traces import FORMATS, detect

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("input-*.md"))
FENCE = re.compile(r"<!-- (file: (?P<file>\S+)|run) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_what_the_page_shows_runs(page: Path, tmp_path: Path) -> None:
    """Files of the page are written, its scenarios run on them to the end, and a trace is recognised by its columns."""
    ran = 0
    for block in FENCE.finditer(page.read_text(encoding="utf-8")):
        name = block["file"] or f"scenario-{ran}.yaml"
        (tmp_path / name).write_text(block["text"])
        if block["file"]:
            assert detect(tmp_path / name)[0].name in page.stem.replace("own-trace", "batchsim")
            continue
        summary = simulate(load(str(tmp_path / name))).summary
        assert summary["completed"] > 0
        assert summary["completed"] + summary["cancelled"] == summary["submitted"]
        ran += 1
    assert ran


def test_every_format_has_its_page() -> None:
    """No format of trace files is without a how-to."""
    shown = {page.stem.removeprefix("input-").replace("own-trace", "batchsim") for page in PAGES}
    assert set(FORMATS) <= shown
    assert {"list", "mix", "closed-loop"} <= shown
