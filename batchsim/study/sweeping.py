"""`sweep`: a grid of runs over seeds, resumable, to throughput–latency curves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchsim.errors import InvalidInput
from batchsim.scenario.check import plain_value
from batchsim.scenario.scenario import Scenario
from batchsim.simulation import versions
from batchsim.study import curves, grid
from batchsim.study.backends import compute
from batchsim.study.store import Store
from batchsim.study.work import UNFIT, Keys, Part, Row, Task, changed

if TYPE_CHECKING:
    import pandas as pd

    from batchsim.study.figures import SweepPlots

STORE = "runs.jsonl"
PART = Part()
Progress = Callable[[int, int], None]


class Sweep:
    """The rows of a sweep, one a run in the order of its grid, and the curves over seeds."""

    def __init__(
        self,
        scenario: Scenario,
        over: grid.Grid,
        seeds: Sequence[int],
        rows: Sequence[Row],
        interval: str,
        computed: int,
    ) -> None:
        self.scenario = scenario
        self.over = over
        self.seeds = list(seeds)
        self.rows = list(rows)
        self.interval = interval
        self.computed = computed  # runs that were not in the store already

    @property
    def keys(self) -> list[str]:
        """The swept keys, dotted."""
        return list(self.over)

    @cached_property
    def entries(self) -> list[Row]:
        """The curves: one entry a combination, means over seeds with `_low` and `_high`."""
        return curves.curve(self.rows, self.keys, self.interval)

    @property
    def x_key(self) -> str | None:
        """The swept key that curves run along."""
        return curves.x_key_of(grid.points(self.over))

    def table(self) -> pd.DataFrame:
        """results.csv as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=_columns(self.rows))

    def curve(self) -> pd.DataFrame:
        """curve.csv as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.entries, columns=_columns(self.entries))

    def knees(self, latency: str = "mean_e2el_ms") -> dict[str, Row | None]:
        """For each line of the curve the entry at its knee (`curves.knee`), None where the sweep does not show one."""
        if self.x_key is None:
            return {}
        lines = curves.lines(self.entries, self.keys, self.x_key)
        found = {name: curves.knee(line, latency) for name, line in lines.items()}
        return {name: None if entry is None else dict(entry) for name, entry in found.items()}

    @property
    def plot(self) -> SweepPlots:
        """Figures of the sweep, each a method that returns its Axes."""
        from batchsim.study.figures import SweepPlots

        return SweepPlots(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything that a report needs, as plain values."""
        x_key = self.x_key
        lines = curves.lines(self.entries, self.keys, x_key) if x_key is not None else {"": self.entries}
        return {
            "scenario": self.scenario.to_dict(),
            "over": self.over,
            "seeds": self.seeds,
            "interval": curves.note(len(self.seeds), self.interval),
            "x_key": x_key,
            "rows": self.rows,
            "curve": self.entries,
            "lines": lines,
            "knees": self.knees(),
            "warnings": self.warnings,
            "versions": versions(),
        }

    @property
    def warnings(self) -> list[str]:
        """What a person should know before they read a figure off."""
        found = list(self.scenario.warnings)
        growing = [entry for entry in self.entries if entry["stable"] is False]
        if growing:
            found.append(
                f"{len(growing)} of {len(self.entries)} points do not keep up with their rate (stable: false): "
                "their latencies grow with the length of the run"
            )
        unfit = [entry for entry in self.entries if entry.get(UNFIT)]
        if unfit:
            found.append(f"{len(unfit)} of {len(self.entries)} points have no figures: {unfit[0][UNFIT]}")
        if 1 < len(self.seeds) < curves.FEW_SEEDS:
            found.append(f"intervals from {len(self.seeds)} seeds: few samples; use --seeds {curves.FEW_SEEDS} or more")
        return found

    def write(self, folder: Path) -> list[Path]:
        """results.csv, curve.csv and curves.png; their paths."""
        from batchsim.report.files import make_folder
        from batchsim.report.plots import write_figure

        make_folder(folder)
        written = [write_csv(folder / "results.csv", self.rows), write_csv(folder / "curve.csv", self.entries)]
        if self.x_key is not None:
            written.append(write_figure(folder / "curves.png", self.plot.figure()))
        return written

    def _repr_html_(self) -> str:
        from batchsim.report.notebook import sweep_html

        return sweep_html(self)


def sweep(
    scenario: Scenario,
    over: Mapping[str, Sequence[Any]],
    *,
    seeds: int = 1,
    out: Path | str | None = None,
    jobs: int | None = None,
    backend: str = "processes",
    address: str = "",
    window: Part | None = PART,
    interval: str = "t",
    progress: Progress | None = None,
) -> Sweep:
    """Runs every combination of `over` (dotted keys to values) on `seeds` seeds, from the scenario's own on.

    Scenarios that describe the same requests get the same ones (common random numbers). out: a folder; runs that its
    store already holds are not run again, and results.csv, curve.csv and curves.png are written there.
    jobs, backend, address: where to compute (`batchsim.study.backends`).  window: the part of each run that the
    `window.` figures are of, None for none.  interval: t or bootstrap.  progress: called with (runs done, runs).
    Raises `InvalidInput` before the first run for a combination that is no valid scenario.
    """
    axes = grid.checked(over, "over")
    points, all_seeds = grid.points(axes), grid.seeds_of(scenario.settings.seed, seeds)
    curves.note(len(all_seeds), interval)
    tasks, keys, labels = _tasks(scenario, points, all_seeds, window)
    store = None if out is None else _store(Path(out))
    known = dict(store.rows()) if store is not None else {}
    missing = [place for place, key in enumerate(keys) if key not in known]
    done = len(keys) - len(missing)
    if progress is not None:
        progress(done, len(keys))
    todo = [tasks[place] for place in missing]
    for number, row in compute(todo, backend=backend, jobs=jobs, address=address) if todo else ():
        key = keys[missing[number]]
        if store is not None:
            store.add(key, row)
        known[key] = row
        done += 1
        if progress is not None:
            progress(done, len(keys))
    rows = [named | known[key] for named, key in zip(labels, keys, strict=True)]
    result = Sweep(scenario, axes, all_seeds, rows, interval, len(missing))
    if out is not None:
        result.write(Path(out))
    return result


def _tasks(
    scenario: Scenario, points: Sequence[grid.Point], seeds: Sequence[int], part: Part | None
) -> tuple[list[Task], list[str], list[Row]]:
    """(tasks, their keys in the store, the first columns of their rows), seeds changing fastest; all are checked."""
    text, folder, keys = json.dumps(plain_value(scenario.given)), str(scenario.folder.absolute()), Keys(part)
    plain_part = None if part is None else (part.start, part.end, part.name)
    tasks, found, labels = [], [], []
    for point in points:
        for seed in seeds:
            task = Task(text, folder, json.dumps(point), seed, plain_part)
            try:
                found.append(keys.of(changed(task)))
            except InvalidInput as error:
                raise type(error)(error.problems, grid.label(point)) from error
            tasks.append(task)
            labels.append({**point, "seed": seed})
    return tasks, found, labels


def _store(folder: Path) -> Store:
    from batchsim.report.files import make_folder

    make_folder(folder)
    return Store(folder / STORE)


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    """Rows as CSV: undefined is empty, true and false are words, lists and mappings JSON; floats with all digits."""
    import csv

    from batchsim.report.files import write_atomically

    columns = _columns(rows)

    def fill(stream: Any) -> None:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)

    return write_atomically(path, fill)


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, bool | dict | list) else value
