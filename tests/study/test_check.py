"""`check`: case B26, exact zeros, refusals, the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from batchsim.cli import main
from batchsim.errors import InvalidInput
from batchsim.simulation import simulate
from batchsim.study.checking import Finding, Spec, check, compare_case, figures, results_file, update
from tests.study.given import given

SPEC = Spec(scenario="x", gates={"p99_ttft_ms": 0.0, "mean_e2el_ms": 0.02})


def run_of(completed: int, submitted: int, **values: Any) -> dict[str, Any]:
    """A stored run."""
    return {"completed": completed, "submitted": submitted, **values}


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """A baseline file of two policies on a small scenario, nothing stored yet."""
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(given()))
    file = tmp_path / "policies.yaml"
    gates = {"p99_ttft_ms": 0.0, "output_throughput": 0.0, "preemptions": 0.0}
    file.write_text(
        yaml.safe_dump({"scenario": "s.yaml", "schedulers": ["vllm", "static"], "seeds": 2, "gates": gates})
    )
    return file


def test_b26_the_survivors_are_not_compared() -> None:
    """100 of 100 at 1,000 ms against 1 of 100 at 10 ms: completion 1 % is reported first and fails, latencies are
    refused, not ten times better."""
    before = {"1": run_of(100, 100, p99_ttft_ms=500.0, mean_e2el_ms=1000.0)}
    after = {"1": run_of(1, 100, p99_ttft_ms=None, mean_e2el_ms=None)}
    found = compare_case("c", before, after, SPEC)
    assert (found[0].figure, found[0].candidate, found[0].verdict) == ("completed_fraction", 0.01, "worse")
    assert [finding.verdict for finding in found[1:]] == ["refused", "refused"]
    assert all(finding.failed for finding in found)


def test_b26_percentiles_count_the_rejected_as_infinitely_late() -> None:
    """Requests longer than max_model_len are rejected: p99 of TTFT is null, not that of those served."""
    values = given(max_model_len=1000)
    values["workload"]["prompt_tokens"] = {"kind": "exponential", "mean": 400}
    from batchsim.scenario import scenario

    run = simulate(scenario(values))
    found = figures(run, ["p99_ttft_ms", "p50_ttft_ms", "mean_e2el_ms"])
    assert 0 < found["completed"] < found["submitted"]
    assert run.summary["p99_ttft_ms"] is not None
    assert (found["p99_ttft_ms"], found["mean_e2el_ms"]) == (None, None)
    assert found["p50_ttft_ms"] > 0


@pytest.mark.parametrize(("n", "refused"), [(9, True), (19, True), (20, False)])
def test_b26_a_tail_of_too_few_samples_is_refused(n: int, refused: bool) -> None:
    """p95 from 9 fails one run in five by chance: refused below 20, with n."""
    spec = Spec(scenario="x", gates={"p95_ttft_ms": 0.0})
    runs = {"1": run_of(n, n, p95_ttft_ms=5.0)}
    finding = compare_case("c", runs, runs, spec)[1]
    assert (finding.verdict == "refused") is refused
    assert finding.n == n
    assert not refused or f"n = {n}" in finding.message


@pytest.mark.parametrize(
    ("after", "verdict"), [(1000.0, "same"), (999.0, "better"), (1019.9, "within"), (1020.1, "worse")]
)
def test_a_gate_allows_what_it_says(after: float, verdict: str) -> None:
    """mean E2E 1,000 ms with 2 %: up to 1,020."""
    before = {"1": run_of(200, 200, p99_ttft_ms=1.0, mean_e2el_ms=1000.0)}
    now = {"1": run_of(200, 200, p99_ttft_ms=1.0, mean_e2el_ms=after)}
    assert compare_case("c", before, now, SPEC)[2].verdict == verdict


def test_differences_are_paired_by_seed() -> None:
    """Two seeds that swap their figures have equal means and a difference of 0, and are not called the same."""
    spec = Spec(scenario="x", gates={"mean_e2el_ms": 0.0})
    before = {"1": run_of(9, 9, mean_e2el_ms=1.0), "2": run_of(9, 9, mean_e2el_ms=2.0)}
    after = {"1": run_of(9, 9, mean_e2el_ms=2.0), "2": run_of(9, 9, mean_e2el_ms=1.0)}
    finding = compare_case("c", before, after, spec)[1]
    assert (finding.difference, finding.verdict) == (0.0, "better")


def test_identical_code_differs_by_exactly_nothing(baseline: Path) -> None:
    """Stored and checked by the same version: every difference is 0, not nearly."""
    update(baseline)
    result = check(baseline)
    assert result.passed
    assert [finding.difference for finding in result.findings] == [0.0] * 8
    assert {finding.verdict for finding in result.findings} == {"same"}
    assert len(result.table()) == 8


def test_a_worse_policy_fails_in_the_exit_code_and_in_junit(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stored p99 that was 1 ms better fails that gate alone: exit code 1, one failure in the XML."""
    update(baseline)
    stored = json.loads(results_file(baseline).read_text())
    for run in stored["cases"]["vllm"]["runs"].values():
        run["p99_ttft_ms"] -= 1
    results_file(baseline).write_text(json.dumps(stored))
    junit = baseline.parent / "out" / "junit.xml"
    with pytest.raises(SystemExit) as left:
        main(["check", str(baseline), "--junit", str(junit)])
    assert left.value.code == 1
    assert "1 of 8 gates fail" in capsys.readouterr().out
    tree = ElementTree.parse(junit).getroot()  # noqa: S314 - our own file
    assert [(suite.get("name"), suite.get("failures")) for suite in tree] == [("vllm", "1"), ("static", "0")]
    assert [case.get("name") for case in tree.iter("testcase") if case.find("failure") is not None] == ["p99_ttft_ms"]


def test_a_scenario_by_itself_is_a_baseline(tmp_path: Path) -> None:
    """Given a scenario file, its own scheduler is checked with the default gates."""
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(given()))
    update(file)
    assert check(file).passed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gates": {"p99_ttft": 0}}, "unknown figure"),
        ({"gates": {"p99_ttft_ms": -1}}, "at least 0"),
        ({"seeds": 0}, "seeds"),
        ({"scenarios": "x"}, "did you mean 'scenario'"),
    ],
)
def test_a_wrong_baseline_file_is_refused(baseline: Path, change: dict[str, Any], said: str) -> None:
    """Unknown figures, negative tolerances and misspelt keys, each with its place."""
    values = yaml.safe_load(baseline.read_text()) | change
    baseline.write_text(yaml.safe_dump(values))
    with pytest.raises(InvalidInput, match=said):
        update(baseline)


def test_without_a_stored_baseline_or_with_another_scenario_nothing_is_compared(baseline: Path) -> None:
    """Both are invalid input that says what to do."""
    with pytest.raises(InvalidInput, match="--update"):
        check(baseline)
    update(baseline)
    values = given()
    values["workload"]["requests"] = 301
    (baseline.parent / "s.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(InvalidInput, match="another scenario"):
        check(baseline)


def test_a_finding_says_whether_it_fails() -> None:
    """Worse and refused fail; the others do not."""
    verdicts = {"same": False, "better": False, "within": False, "worse": True, "refused": True}
    for verdict, fails in verdicts.items():
        assert Finding("c", "f", verdict, 1.0, 1.0, 0.0, 1, "").failed is fails  # type: ignore[arg-type]
