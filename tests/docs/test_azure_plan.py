"""The worked plan of the Azure trace shows what its commands print and what its script computes.

`BATCHSIM_WRITE_DOCS=1 pytest -m slow -n 0 tests/docs/test_azure_plan.py` writes the outputs anew.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.test_pages import DOCS, held, printed

PAGE = DOCS / "how-to" / "plan-azure-conversation.md"
SCRIPT = PAGE.with_name("azure_plan.py")
SHOWN = re.compile(r"```sh\n(batchsim (?:[^`]|\\\n)*?)\n```\n\n```text\n(.*?)```", re.DOTALL)
FILE = re.compile(r"<!-- file: (\S+) -->\n```yaml\n(.*?)```", re.DOTALL)
TRACE = "AzureLLMInferenceTrace_conv.csv"
OF_THE_TRACE = ("azure.yaml", TRACE)


def script() -> ModuleType:
    """The script beside the page."""
    spec = importlib.util.spec_from_file_location("azure_plan", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shows_what_is_printed(capsys: pytest.CaptureFixture[str], *, of_the_trace: bool) -> int:
    """Runs the page's commands that need the trace, or the others, in this folder; how many there were."""
    ran = 0

    def again(part: re.Match[str]) -> str:
        nonlocal ran
        if any(name in part[1] for name in OF_THE_TRACE) != of_the_trace:
            return part[0]
        ran += 1
        return f"```sh\n{part[1]}\n```\n\n```text\n{printed(part[1].replace(chr(92), ' '), capsys)}```"

    held(PAGE, SHOWN.sub(again, PAGE.read_text(encoding="utf-8")))
    return ran


@pytest.mark.slow
def test_the_plans_are_what_the_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    """Every plan of the page that needs no trace file, run as it stands."""
    assert shows_what_is_printed(capsys, of_the_trace=False) == 5


@pytest.mark.slow
def test_the_plans_of_the_trace_are_what_the_commands_print(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    """Every command of the page that needs the trace file, run beside it with the page's own scenario."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / TRACE).symlink_to(data / "data" / "traces" / TRACE)
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert shows_what_is_printed(capsys, of_the_trace=True) == 3


@pytest.mark.parametrize("name", ["shape", pytest.param("doubt", marks=pytest.mark.slow)])
def test_a_table_is_what_the_script_computes(name: str) -> None:
    """The drawn lengths, and the replicas under other step times."""
    module = script()
    tables = {part[2]: part[3] for part in module.BLOCK.finditer(PAGE.read_text(encoding="utf-8"))}
    assert set(tables) == set(module.TABLES)
    assert tables[name] == module.TABLES[name]()


@pytest.mark.slow
def test_the_way_from_the_shape_to_the_trace(data: Path) -> None:
    """What each change between the drawn shape and the busiest window does to p99 TPOT."""
    assert data.is_dir()
    module = script()
    tables = {part[2]: part[3] for part in module.BLOCK.finditer(PAGE.read_text(encoding="utf-8"))}
    assert tables["between"] == module.between_table()


def test_figures_are_small() -> None:
    """Both figures are there, each under 80 kB."""
    for name in ("azure-costs", "azure-rates"):
        assert 0 < (PAGE.parent / "images" / f"{name}.png").stat().st_size < 80_000
