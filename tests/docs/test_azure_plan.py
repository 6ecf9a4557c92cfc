"""The worked plan of the Azure trace shows what its commands print and what its script computes.

`BATCHSIM_WRITE_DOCS=1 pytest -m slow -n 0 tests/docs/test_azure_plan.py` writes the outputs and tables anew; the
script beside the page draws its figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pinned import DOCS, FILE, script_of, shows_what_is_computed, shows_what_is_printed

PAGE = DOCS / "how-to" / "plan-azure-conversation.md"
TRACE = "AzureLLMInferenceTrace_conv.csv"


def needs_the_trace(command: str) -> bool:
    """Whether a command of the page reads the trace file."""
    return any(name in command for name in ("azure.yaml", TRACE))


@pytest.mark.slow
def test_the_plans_are_what_the_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    """Every plan of the page that needs no trace file, run as it stands."""
    assert shows_what_is_printed(PAGE, capsys, lambda command: not needs_the_trace(command)) == 5


@pytest.mark.slow
def test_the_plans_of_the_trace_are_what_the_commands_print(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    """Every command of the page that needs the trace file, run beside it with the page's own scenario."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / TRACE).symlink_to(data / "data" / "traces" / TRACE)
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert shows_what_is_printed(PAGE, capsys, needs_the_trace) == 3


@pytest.mark.parametrize(
    "name", ["shape", "floor", *(pytest.param(name, marks=pytest.mark.slow) for name in ("doubt", "sensitivity"))]
)
def test_a_table_is_what_the_script_computes(name: str) -> None:
    """The drawn lengths, TPOT on an idle GPU; replicas under other step times and other traffic."""
    shows_what_is_computed(PAGE, script_of(PAGE, "azure_plan"), [name])


@pytest.mark.slow
def test_the_tables_of_the_trace_are_what_the_script_computes(data: Path) -> None:
    """Lengths of the busiest window, and what each change between the drawn shape and it does to p99 TPOT."""
    assert data.is_dir()
    script = script_of(PAGE, "azure_plan")
    shows_what_is_computed(PAGE, script, list(script.OF_THE_TRACE))


def test_every_table_is_computed() -> None:
    """The page has the tables of its script and no others."""
    from tests.docs.pinned import TABLE

    tables = {part[2] for part in TABLE.finditer(PAGE.read_text(encoding="utf-8"))}
    assert tables == set(script_of(PAGE, "azure_plan").TABLES)


def test_figures_are_small() -> None:
    """Both figures are there, each under 80 kB."""
    for name in ("azure-costs", "azure-rates"):
        assert 0 < (PAGE.parent / "images" / f"{name}.png").stat().st_size < 80_000
