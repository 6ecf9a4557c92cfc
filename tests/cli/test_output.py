"""The output side: a full disk, a folder that cannot be written, a closed pipe. One line, and nothing half-written."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from batchsim.errors import InvalidInput
from batchsim.report.files import write_atomically
from batchsim.scenario import load
from batchsim.simulation import Run, simulate

RUN = [sys.executable, "-c", "from batchsim.cli import main; main()"]
SMALL = ["--set", "workload.requests=40", "--quiet"]


@pytest.fixture(scope="module")
def small() -> Run:
    """A run of forty requests."""
    return simulate(load("quickstart", ["workload.requests=40"]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "quickstart", *SMALL, "--json"],
        ["run", "quickstart", *SMALL, "--format", "parquet"],
        ["run", "quickstart", *SMALL, "--step-log", "--trace"],
        ["compare", "quickstart", *SMALL, "--schedulers", "vllm,static"],
    ],
)
@pytest.mark.parametrize("room", [0, 9000])
def test_a_file_that_does_not_fit_is_one_line_and_no_file(tmp_path: Path, arguments: list[str], room: int) -> None:
    """With room for so many bytes a file: exit 2, one line with file and reason, no traceback, whole files only."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    out = tmp_path / "out"
    done = subprocess.run(
        [*RUN, *arguments, "--out", str(out)], capture_output=True, text=True, preexec_fn=limit, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: --out: ")
    assert "cannot be written: File too large" in done.stderr
    for file in (entry for entry in out.rglob("*") if entry.is_file()):
        assert not file.name.startswith(".")
        assert 0 < file.stat().st_size <= room


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Run) -> None:
    """ENOSPC at whichever write: a refusal that names the file, and no file of any name is left of it."""
    opened = Path.open
    budget = 0

    class Full:
        """A file on a disk with room for `budget` more writes."""

        def __init__(self, file: IO[Any]) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, data: Any) -> int:
            nonlocal budget
            budget -= 1
            if budget < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self._file.write(data)

        def writelines(self, lines: Any) -> None:
            for line in lines:
                self.write(line)

    monkeypatch.setattr(Path, "open", lambda path, *a, **k: Full(opened(path, *a, **k)))
    for room in range(5):
        budget = room
        folder = tmp_path / str(room)
        with pytest.raises(InvalidInput, match="cannot be written: No space left on device") as refused:
            small.write(folder)
        assert len(refused.value.problems) == 1
        assert all(not entry.name.startswith(".") for entry in folder.iterdir())
        assert len(list(folder.iterdir())) < 5


def test_an_interrupt_while_writing_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a file leaves neither the file nor a temporary one, and an older one as it was."""
    (tmp_path / "old.csv").write_text("whole")

    def fill(stream: IO[Any]) -> None:
        stream.write("half")
        raise KeyboardInterrupt

    for name in ("new.csv", "old.csv"):
        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / name, fill)
    assert [entry.name for entry in tmp_path.iterdir()] == ["old.csv"]
    assert (tmp_path / "old.csv").read_text() == "whole"


@pytest.mark.parametrize("arguments", [["run", "quickstart"], ["trace", "t.csv"]])
def test_an_out_that_is_a_file_is_refused_before_the_work(tmp_path: Path, arguments: list[str]) -> None:
    """--out names a file: one line and exit 2, before anything is simulated."""
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    done = subprocess.run(
        [*RUN, *arguments, "--out", "t.csv"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == ["error: --out: t.csv: cannot be written: File exists"]


@pytest.mark.parametrize("arguments", [["list", "models"], ["schema"], ["run", "quickstart", *SMALL, "--json"]])
def test_a_closed_pipe_is_no_error(arguments: list[str]) -> None:
    """A reader that goes away (`| head -1`) ends the command quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*RUN, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["list", "models"], ["run", "quickstart", *SMALL, "--json"]])
def test_a_full_disk_behind_stdout_is_one_line(arguments: list[str]) -> None:
    """`> file` on a full disk: exit 2 and one line."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*RUN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: output: No space left on device"]
