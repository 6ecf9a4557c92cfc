"""The how-to pages of studies: the Python that they show runs, on small workloads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import batchsim as bs
from batchsim.study.checking import Spec, read_spec

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["compare", "sweep", "plan"])
def test_the_python_of_the_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every python block, line by line as it stands, with 200 requests in place of 2,000."""
    load = bs.load

    def small(name: str) -> Any:
        return load(name).replace({"workload.requests": 200})

    monkeypatch.setattr(bs, "load", small, raising=False)
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {"bs": bs})  # noqa: S102 - the page's own code


def test_the_baseline_of_the_page_is_one(tmp_path: Path) -> None:
    """The YAML of ci-regression.md is a valid baseline file with three cases."""
    text = (PAGES / "ci-regression.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "policies.yaml").write_text(block)
    spec, scenario = read_spec(tmp_path / "policies.yaml")
    assert isinstance(spec, Spec)
    assert list(spec.cases) == list(yaml.safe_load(block)["cases"])
    assert scenario.settings.name == "quickstart"
