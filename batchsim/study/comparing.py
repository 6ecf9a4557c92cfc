"""`compare`: the same requests through several scenarios, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchsim.errors import InvalidInput, Problem
from batchsim.scenario.scenario import Scenario
from batchsim.simulation import Run, simulate, versions
from batchsim.study.work import drawn

if TYPE_CHECKING:
    import pandas as pd

    from batchsim.study.figures import ComparePlots


class Comparison(Mapping[str, Run]):
    """Runs by name, in the order given."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self.runs = dict(runs)

    def __getitem__(self, name: str) -> Run:
        return self.runs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def same_requests(self) -> bool:
        """Whether every run got the very same requests; where not, differences are partly those of the requests."""
        return len({id(run.records.workload) for run in self.runs.values()}) == 1

    @property
    def warnings(self) -> list[str]:
        """Each run's, with its name in front, and whether the requests differ."""
        found = [f"{name}: {warning}" for name, run in self.runs.items() for warning in run.summary["warnings"]]
        if not self.same_requests:
            found.append("the runs differ in their requests too, not only in how they are served")
        return found

    def table(self) -> pd.DataFrame:
        """One row a figure of the side-by-side table, one column a run."""
        import pandas as pd

        from batchsim.report.comparison import ROWS

        return pd.DataFrame(
            {name: [run.summary.get(row.key) for row in ROWS] for name, run in self.runs.items()},
            index=[row.key for row in ROWS],
        )

    @property
    def plot(self) -> ComparePlots:
        """Figures of all runs together, each a method that returns its Axes."""
        from batchsim.study.figures import ComparePlots

        return ComparePlots(self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Everything that a report needs, as plain values."""
        from batchsim.report.comparison import dominant

        return {
            "runs": {name: dict(run.summary) for name, run in self.runs.items()},
            "dominant": {name: dominant(run.summary) for name, run in self.runs.items()},
            "same_requests": self.same_requests,
            "warnings": self.warnings,
            "versions": versions(),
        }

    def write(self, folder: Path, *, format: str = "csv") -> list[Path]:  # noqa: A002 - the option's name
        """The files of every run, each in a folder of its name; their paths."""
        places = folders(self.runs)
        return [path for name, run in self.runs.items() for path in run.write(folder / places[name], format=format)]

    def _repr_html_(self) -> str:
        from batchsim.report.notebook import comparison_html

        return comparison_html(self)


def compare(
    scenarios: Mapping[str, Scenario] | Scenario, schedulers: Sequence[str] | None = None, *, step_log: bool = False
) -> Comparison:
    """Runs scenarios by name, or one scenario under several kinds of scheduler, on the same requests.

    Scenarios that describe the same workload and seed share their requests: drawn once, equal to the last byte.
    Raises `InvalidInput`.
    """
    if isinstance(scenarios, Scenario):
        named = _by_kind(scenarios, schedulers)
    elif schedulers is not None:
        raise InvalidInput([Problem("schedulers", "go with one scenario, not with several")])
    else:
        named = dict(scenarios)
    if not named:
        raise InvalidInput([Problem("compare", "needs at least one scenario")])
    folders(named)
    return Comparison({name: simulate(one, workload=drawn(one), step_log=step_log) for name, one in named.items()})


def _by_kind(scenario: Scenario, kinds: Sequence[str] | None) -> dict[str, Scenario]:
    if not kinds or len(set(kinds)) < len(kinds) or not all(kinds):
        rule = "must be different kinds, with commas between"
        raise InvalidInput([Problem("--schedulers", rule, repr(",".join(kinds or ())))])
    return {kind: scenario.replace({"scheduler.kind": kind}) for kind in kinds}


def folders(named: Mapping[str, Any]) -> dict[str, str]:
    """A folder's name for each run: letters, digits and a few signs. Raises `InvalidInput` where two meet."""
    found: dict[str, str] = {}
    for name in named:
        place = "".join(sign if sign.isalnum() or sign in "._=-" else "-" for sign in name).strip(".-") or "run"
        if place in found.values():
            raise InvalidInput([Problem("compare", "two runs would share a folder; name them apart", repr(name))])
        found[name] = place
    return found
