"""The results of runs on disk, one line a run under the digest of what was run: safe to kill, to resume and to share.

A line is written whole, in one call, to the end of the file and under a lock. A line that a kill cut short is left
where it is and skipped when the file is read; whoever writes next starts on a fresh line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchsim.errors import InvalidInput, Problem

Row = dict[str, Any]


class Store:
    """Rows by key in one file of JSON lines. Several processes may read and append at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0  # lines cut short by a kill
        self._read_to = 0
        self._rows: dict[str, Row] = {}

    def rows(self) -> dict[str, Row]:
        """Every row there is, those that other processes have added since the last call included."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._read_to)
                fresh = stream.read()
        except FileNotFoundError:
            return self._rows
        except OSError as error:
            raise _refused(self.path, error) from error
        whole = fresh.rfind(b"\n") + 1  # another process may be in the middle of the last line
        for line in fresh[:whole].splitlines():
            entry = _entry(line)
            if entry is None:
                self.damaged += bool(line.strip())
            else:
                self._rows.setdefault(*entry)
        self._read_to += whole
        return self._rows

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """Append a row. ValueError for a number that is not finite."""
        line = json.dumps({"key": key, "row": row}, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        try:
            with _appending(self.path) as stream:
                if _is_cut(stream):
                    line = b"\n" + line
                written = os.write(stream, line)
        except OSError as error:
            raise _refused(self.path, error) from error
        if written != len(line):
            raise InvalidInput([Problem("--out", "the disk is full: a row was cut short", str(self.path))])


def _is_cut(stream: int) -> bool:
    """Whether the file ends in the middle of a line."""
    if os.fstat(stream).st_size == 0:
        return False
    os.lseek(stream, -1, os.SEEK_END)
    return os.read(stream, 1) != b"\n"


def _entry(line: bytes) -> tuple[str, Row] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    if isinstance(value, dict) and isinstance(value.get("key"), str) and isinstance(value.get("row"), dict):
        return value["key"], value["row"]
    return None


@contextmanager
def _appending(path: Path) -> Iterator[int]:
    """The file, open to append and read, locked against other writers where the system has such locks."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        try:
            import fcntl
        except ImportError:  # no such locks on this system: one runner at a time
            yield handle
            return
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)  # and with it the lock


def _refused(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput([Problem("--out", f"cannot be read or written: {error.strerror or error}", str(path))])
