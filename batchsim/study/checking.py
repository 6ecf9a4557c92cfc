"""`check`: scheduler policies held to a stored baseline, for CI.

The same seeds run on both sides, so identical code differs by exactly 0. Completion is compared first: where it fell,
latencies are those of the survivors and are not compared. Percentiles count what did not complete as infinitely late,
and a tail read from too few samples is refused, with n.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from batchsim.errors import InvalidInput, Problem
from batchsim.metrics.latency import NS_PER_MS, completed, e2e_ns, submitted, tpot_ns, ttft_ns
from batchsim.metrics.percentiles import samples_needed
from batchsim.scenario import load
from batchsim.scenario.check import build, plain_value
from batchsim.scenario.scenario import Scenario
from batchsim.scenario.text import read
from batchsim.simulation import Run, simulate, versions
from batchsim.study import grid
from batchsim.study.targets import percentile
from batchsim.study.work import drawn

if TYPE_CHECKING:
    import pandas as pd

LATENCIES = ("ttft", "tpot", "e2el")
QUANTILES = (50, 90, 95, 99)
HIGHER = ("request_throughput", "request_goodput", "output_throughput", "slo_attainment", "completed_fraction")
LOWER = (
    "preemptions", "recomputed_tokens", "iterations", "kv_peak_fraction", "mean_waiting", "padded_fraction",
    *(f"{q}_{name}_ms" for name in LATENCIES for q in ("mean", *(f"p{q}" for q in QUANTILES))),
)  # fmt: skip
DEFAULT_GATES = {"p99_ttft_ms": 0.0, "p99_tpot_ms": 0.0, "mean_e2el_ms": 0.0, "output_throughput": 0.0}
Tolerance = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Spec:
    """The keys of a baseline file."""

    scenario: Annotated[str, Field(min_length=1, description="scenario file, relative to this one, or a shipped name")]
    cases: Annotated[
        dict[str, dict[str, Any]], Field(min_length=1, description="by name the keys to change, dotted; {} for none")
    ] = field(default_factory=lambda: {"as_is": {}})
    seeds: Annotated[int, Field(ge=1, le=1000, description="from the scenario's own on; the same on both sides")] = 3
    gates: Annotated[
        dict[str, Tolerance], Field(min_length=1, description="by figure how much worse it may be: 0.02 is 2 per cent")
    ] = field(default_factory=lambda: dict(DEFAULT_GATES))
    completion_tolerance: Annotated[
        float, Field(ge=0, le=1, description="by how much the completed share may differ, or nothing is compared")
    ] = 0.01

    def __post_init__(self) -> None:
        unknown = [name for name in self.gates if name not in HIGHER and name not in LOWER]
        if unknown:
            rule = f"unknown figure; there are {', '.join((*HIGHER, *LOWER))}"
            raise InvalidInput([Problem("gates", rule, name) for name in unknown])


Verdict = Literal["same", "better", "worse", "within", "refused"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure of one case against the baseline: means over the same seeds, and the mean of the paired differences.

    verdict: same · better · within (worse, as far as the gate allows) · worse · refused (no comparison made).
    None: infinitely late, or undefined.  n: samples of the smallest run.
    """

    case: str
    figure: str
    verdict: Verdict
    baseline: float | None
    candidate: float | None
    difference: float | None
    n: int
    message: str

    @property
    def failed(self) -> bool:
        """Whether it fails the check."""
        return self.verdict in ("worse", "refused")


@dataclass(frozen=True, slots=True)
class Check:
    """Every gate of a baseline, completion first in each case."""

    findings: tuple[Finding, ...]
    seeds: tuple[int, ...]

    @property
    def passed(self) -> bool:
        """Whether no gate failed."""
        return not any(finding.failed for finding in self.findings)

    def table(self) -> pd.DataFrame:
        """One row a gate."""
        import pandas as pd

        return pd.DataFrame([asdict(finding) for finding in self.findings])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {"passed": self.passed, "seeds": list(self.seeds), "findings": [asdict(one) for one in self.findings]}

    def junit(self) -> str:
        """JUnit XML: a test suite a case, a test case a gate."""
        from xml.etree import ElementTree

        root = ElementTree.Element("testsuites", name="batchsim check")
        for case in dict.fromkeys(finding.case for finding in self.findings):
            mine = [finding for finding in self.findings if finding.case == case]
            failures = sum(finding.failed for finding in mine)
            suite = ElementTree.SubElement(root, "testsuite", name=case, tests=str(len(mine)), failures=str(failures))
            for finding in mine:
                test = ElementTree.SubElement(suite, "testcase", classname=f"batchsim.{case}", name=finding.figure)
                if finding.failed:
                    ElementTree.SubElement(test, "failure", message=finding.message, type=finding.verdict)
        ElementTree.indent(root)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def results_file(baseline: Path) -> Path:
    """Where the stored figures of a baseline file are: beside it, `NAME.results.json`."""
    return baseline.with_name(f"{baseline.stem}.results.json")


def measure(baseline: Path) -> dict[str, Any]:
    """What the baseline file describes, run by this version. Raises `InvalidInput`."""
    spec, scenario = read_spec(baseline)
    seeds = grid.seeds_of(scenario.settings.seed, spec.seeds)
    cases = {name: scenario.replace(changes) if changes else scenario for name, changes in spec.cases.items()}
    measured: dict[str, Any] = {}
    for name, one in cases.items():
        runs = {}
        for seed in seeds:
            seeded = one.replace({"seed": seed})
            runs[str(seed)] = figures(simulate(seeded, workload=drawn(seeded)), spec.gates)
        measured[name] = {"scenario": one.digest(), "runs": runs}
    return {"cases": measured, "versions": versions()}


def read_spec(baseline: Path) -> tuple[Spec, Scenario]:
    """A baseline file: a `Spec`, or a scenario itself, with every default. Raises `InvalidInput`."""
    given = read(baseline)
    if not isinstance(given, Mapping):
        raise InvalidInput([Problem(str(baseline), "must be a mapping with the key scenario")])
    if "workload" in given and "scenario" not in given:
        return Spec(scenario=str(baseline)), load(baseline)
    values = dict(given)
    if isinstance(schedulers := values.pop("schedulers", None), list) and "cases" not in values:
        values["cases"] = {str(kind): {"scheduler.kind": kind} for kind in schedulers}
    spec = build(Spec, plain_value(values), "")
    beside = baseline.parent / spec.scenario
    return spec, load(beside if beside.is_file() else spec.scenario)


def check(baseline: Path) -> Check:
    """Runs the baseline's cases and compares them with what is stored. Raises `InvalidInput`, also where nothing is."""
    spec, scenario = read_spec(baseline)
    file = results_file(baseline)
    if not file.is_file():
        rule = "there is no stored baseline yet: run `batchsim check --update` and commit the file"
        raise InvalidInput([Problem(str(file), rule)])
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))["cases"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput([Problem(str(file), "is damaged: run `batchsim check --update`")]) from error
    fresh = measure(baseline)["cases"]
    if problems := _changed(file, stored, fresh):
        raise InvalidInput(problems)
    findings = [
        found for case in fresh for found in compare_case(case, stored[case]["runs"], fresh[case]["runs"], spec)
    ]
    return Check(tuple(findings), tuple(grid.seeds_of(scenario.settings.seed, spec.seeds)))


def _changed(file: Path, stored: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[Problem]:
    """What makes the two sides no pair: other cases, other scenarios, other seeds."""
    again = "run `batchsim check --update`"
    problems = []
    for case in dict.fromkeys((*stored, *fresh)):
        old, new = stored.get(case), fresh.get(case)
        if old is None or new is None:
            problems.append(Problem(str(file), f"case {case} is on one side only: {again}"))
        elif old["scenario"] != new["scenario"]:
            problems.append(Problem(str(file), f"case {case} has another scenario than the stored one: {again}"))
        elif list(old["runs"]) != list(new["runs"]):
            problems.append(Problem(str(file), f"case {case} has other seeds than the stored one: {again}"))
    return problems


def update(baseline: Path) -> Path:
    """Stores what this version gives as the baseline, and returns the file."""
    from batchsim.report.files import write_atomically

    text = json.dumps(measure(baseline), indent=1, allow_nan=False, sort_keys=True) + "\n"
    return write_atomically(results_file(baseline), lambda stream: stream.write(text))


def figures(run: Run, names: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """The gated figures of a run, null where infinitely late or undefined, with the counts that they rest on."""
    requests = run.records.requests
    sent, done = submitted(requests), completed(requests)
    columns = {"ttft": ttft_ns(requests), "tpot": tpot_ns(requests), "e2el": e2e_ns(requests)}
    found: dict[str, Any] = {"submitted": int(sent.sum()), "completed": int(done.sum())}
    gaps = run.records.workload.output_tokens > 1
    for name in names:
        if name == "completed_fraction":
            found[name] = found["completed"] / found["submitted"] if found["submitted"] else None
        elif (key := _latency(name)) is None:
            found[name] = run.summary.get(name)
        else:
            who = sent & gaps if key == "tpot" else sent
            values = np.where(done, columns[key].astype(np.float64), np.inf)[who]
            found[name] = _adjusted(values, name)
    return found


def _latency(name: str) -> str | None:
    """The latency that a figure is of, if it is one."""
    return next((key for key in LATENCIES if name.endswith(f"_{key}_ms")), None)


def _adjusted(values: np.ndarray[Any, np.dtype[np.float64]], name: str) -> float | None:
    """A mean or percentile in ms in which what did not complete counts as infinitely late; null where it is."""
    if not len(values):
        return None
    value = float(values.mean()) if name.startswith("mean_") else percentile(values, float(name[1:3]))
    return None if value is None or not np.isfinite(value) else value / NS_PER_MS


def compare_case(case: str, stored: Mapping[str, Any], fresh: Mapping[str, Any], spec: Spec) -> list[Finding]:
    """The findings of a case, completion first; where that differs beyond tolerance, it is the only comparison made."""
    before, after = _share(stored), _share(fresh)
    counts = [run["submitted"] for run in fresh.values()]
    difference = after - before
    told = f"{after:.4g} of the requests completed, {before:.4g} in the baseline"
    if abs(difference) > spec.completion_tolerance:
        verdict: Verdict = "worse" if difference < 0 else "refused"
        first = Finding(case, "completed_fraction", verdict, before, after, difference, min(counts), told)
        why = f"not compared: {told}; latencies would be those of the survivors"
        rest = [
            Finding(case, name, "refused", _mean(stored, name), _mean(fresh, name), None, min(counts), why)
            for name in spec.gates
            if name != "completed_fraction"
        ]
        return [first, *rest]
    verdict = "same" if difference == 0 else "better" if difference > 0 else "within"
    first = Finding(case, "completed_fraction", verdict, before, after, difference, min(counts), told)
    gates = {name: gate for name, gate in spec.gates.items() if name != "completed_fraction"}
    return [first, *(_gate(case, name, gate, stored, fresh, min(counts)) for name, gate in gates.items())]


def _gate(case: str, name: str, gate: float, stored: Mapping[str, Any], fresh: Mapping[str, Any], n: int) -> Finding:
    before, after = _mean(stored, name), _mean(fresh, name)
    needed = _needed(name)
    if n < needed:
        why = f"{name} from n = {n} samples says nothing: a gate on it needs at least {needed} (workload.requests)"
        return Finding(case, name, "refused", before, after, None, n, why)
    if name not in next(iter(stored.values())):
        why = f"{name} is not in the stored baseline: run `batchsim check --update`"
        return Finding(case, name, "refused", None, after, None, n, why)
    if before is None or after is None:
        verdict: Verdict = "same" if before == after else "worse" if after is None else "better"
        return Finding(
            case,
            name,
            verdict,
            before,
            after,
            0.0 if before == after else None,
            n,
            f"{name}: {before} before, {after} now",
        )
    pairs = [fresh[seed][name] - stored[seed][name] for seed in fresh]
    difference = float(np.mean(pairs))
    worse = difference if name in LOWER else -difference
    allowed = gate * abs(before)
    verdict = "same" if not any(pairs) else "better" if worse <= 0 else "within" if worse <= allowed else "worse"
    told = (
        f"{name}: {before:.6g} before, {after:.6g} now, paired difference {difference:+.4g} over {len(pairs)} seeds "
        f"(allowed {allowed:.4g}), n = {n}"
    )
    return Finding(case, name, verdict, before, after, difference, n, told)


def _share(runs: Mapping[str, Any]) -> float:
    sent = sum(run["submitted"] for run in runs.values())
    return float(sum(run["completed"] for run in runs.values()) / sent) if sent else 0.0


def _mean(runs: Mapping[str, Any], name: str) -> float | None:
    """Over seeds; null where one seed has none."""
    values = [run.get(name) for run in runs.values()]
    return None if None in values else float(np.mean(values))


def _needed(name: str) -> int:
    return (
        samples_needed(float(name[1:3])) if _latency(name) is not None and name[0] == "p" and name[1:3].isdigit() else 1
    )
