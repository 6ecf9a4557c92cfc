"""Comparisons: the same requests, by name, with tables and figures."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import batchsim as bs
from batchsim.cli import main
from batchsim.errors import InvalidInput
from batchsim.study import compare
from tests.study.given import given, small


def test_schedulers_get_the_very_same_requests() -> None:
    """One draw serves all runs: the same object, not only equal numbers."""
    found = compare(small(), ["vllm", "static"])
    assert list(found) == ["vllm", "static"]
    assert found["vllm"].records.workload is found["static"].records.workload
    assert found.same_requests
    assert found["vllm"].summary["mean_ttft_ms"] < found["static"].summary["mean_ttft_ms"]


def test_scenarios_by_name_share_requests_where_they_describe_the_same() -> None:
    """A changed budget leaves the requests alone; a changed rate is said."""
    base = small()
    same = bs.compare({"budget 512": base.replace("scheduler.max_num_batched_tokens=512"), "base": base})
    other = bs.compare({"slow": base.replace("workload.arrivals.rate_per_s=1"), "base": base})
    assert same.same_requests
    assert not other.same_requests
    assert any("differ in their requests" in warning for warning in other.warnings)


def test_the_table_has_a_column_a_run_and_the_plots_return_axes() -> None:
    """A DataFrame of the figures, Axes with a line a run, and plain values for a report."""
    found = compare(small(), ["vllm", "static"])
    assert list(found.table().columns) == ["vllm", "static"]
    assert found.table().loc["completed"].tolist() == [300, 300]
    assert len(found.plot.latency_cdf("ttft").get_lines()) >= 2
    assert found.plot.bars("p99_e2el_ms").get_xlabel() == "p99 e2el ms"
    assert set(found.to_dict()["runs"]) == {"vllm", "static"}


@pytest.mark.parametrize("kinds", [[], ["vllm", "vllm"], ["vllm", ""], ["nonsense"]])
def test_wrong_kinds_are_refused(kinds: list[str]) -> None:
    """None, twice, empty, unknown."""
    with pytest.raises(InvalidInput):
        compare(small(), kinds)


def test_two_names_of_one_folder_are_refused() -> None:
    """Results of two runs would overwrite each other."""
    with pytest.raises(InvalidInput, match="share a folder"):
        compare({"a b": small(), "a/b": small()})


def test_the_command_writes_a_folder_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--out DIR has one subfolder for each scheduler, with the files of a run."""
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(given()))
    with pytest.raises(SystemExit) as left:
        main(
            [
                "compare",
                str(tmp_path / "s.yaml"),
                "--schedulers",
                "vllm,static",
                "--out",
                str(tmp_path / "o"),
                "--quiet",
            ]
        )
    assert left.value.code in (0, None)
    assert "best of the row" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "o").iterdir() if path.is_dir()) == ["static", "vllm"]
    assert (tmp_path / "o/vllm/summary.json").exists()
