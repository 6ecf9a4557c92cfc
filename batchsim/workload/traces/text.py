"""Text files in blocks of lines: plain or gzip, UTF-8 with or without a byte order mark, any common line end."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from batchsim.errors import InvalidInput, Problem, problem

_BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 24
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


class Block(NamedTuple):
    """Whole lines without their ends; `first_line` counts from 1."""

    first_line: int
    text: str

    @property
    def lines(self) -> list[str]:
        """The lines, one by one."""
        lines = self.text.split("\n")
        if not lines[-1]:
            lines.pop()
        return lines


def blocks(path: Path, where: str) -> Iterator[Block]:
    """The file's lines, about a megabyte at a time.

    Raises InvalidInput, at the scenario key `where`, for a file that is missing, unreadable, cut off, or not text.
    """
    try:
        with _opened(path) as file:
            yield from _blocks(file, path.name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput([problem(where, path.name, f"is a damaged or cut-off gzip file ({error})")]) from error
    except FileNotFoundError as error:
        raise InvalidInput([problem(where, path, "no such file")]) from error
    except IsADirectoryError as error:
        raise InvalidInput([problem(where, path, "is a folder, not a file")]) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        raise InvalidInput([problem(where, path, f"cannot be read ({error})")]) from error


def _opened(path: Path) -> BinaryIO:
    file = path.open("rb")
    magic = file.read(2)
    file.seek(0)
    if magic != _GZIP:
        return file
    file.close()
    return cast(BinaryIO, gzip.open(path, "rb"))


def _blocks(file: BinaryIO, name: str) -> Iterator[Block]:
    line = 1
    while data := file.read(_BLOCK_BYTES):
        if not data.endswith(b"\n"):
            data += file.readline(_LONGEST_LINE)
        if line == 1 and data.startswith(_BOM):
            data = data[len(_BOM) :]
        text = _decoded(data, name, line)
        ended = text.count("\n")
        if not text.endswith("\n") and len(text) - text.rfind("\n") > _LONGEST_LINE:
            raise InvalidInput([Problem(f"{name}:{line + ended}", f"a line is longer than {_LONGEST_LINE} bytes")])
        yield Block(line, text)
        line += ended


def _decoded(data: bytes, name: str, line: int) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        at = line + data.count(b"\n", 0, error.start)
        raise InvalidInput([Problem(f"{name}:{at}", "is not UTF-8 text")]) from error
    if "\0" in text:
        at = line + text.count("\n", 0, text.index("\0"))
        raise InvalidInput([Problem(f"{name}:{at}", "holds a NUL character: not a text file")])
    return text.replace("\r\n", "\n") if "\r" in text else text
