"""The scenarios that come with the package, found by name wherever batchsim is installed."""

from __future__ import annotations

from pathlib import Path

from batchsim.errors import InvalidInput, Problem
from batchsim.scenario.check import nearest

_PACKAGE = Path(__file__).resolve().parents[1]
_SUFFIXES = (".yaml", ".yml", ".json")


def folder() -> Path:
    """Where they lie: inside the installed package, or beside it in a source tree."""
    inside = _PACKAGE / "scenarios"
    return inside if inside.is_dir() else _PACKAGE.parent / "scenarios"


def names() -> list[str]:
    """The names of the shipped scenarios."""
    return sorted(file.stem for file in folder().glob("*.yaml"))


def locate(path: str | Path) -> Path:
    """The file that is meant: `path` itself, else the shipped scenario of that name (`quickstart`,
    `scenarios/quickstart.yaml`).

    Raises `InvalidInput` where there is neither.
    """
    given = Path(path)
    try:
        if given.is_file():
            return given
        if given.exists():
            raise InvalidInput(
                [Problem(str(path), "is a folder, not a scenario file" if given.is_dir() else "is no file")]
            )
    except (OSError, ValueError) as error:  # a name too long, or with a zero byte in it
        raise InvalidInput([Problem(repr(str(path))[:80], f"is no file name: {error}")]) from error
    named = given.stem if given.suffix in _SUFFIXES else given.name
    if given.parent in (Path(), Path("scenarios")) and named in names():
        return folder() / f"{named}.yaml"
    raise InvalidInput([Problem(str(path), f"no such file, and no shipped scenario{nearest(named, names())}")])
