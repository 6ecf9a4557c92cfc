"""The errors batchsim raises on purpose; the command line turns each into a message and an exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class BatchsimError(Exception):
    """Base of every error that batchsim raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: where it stands, what stands there, and the rule that it breaks.

    `path` is the dotted place in the scenario (`scheduler.max_num_seqs`) or `file:line: column` in a table;
    `value` is what was found, already formatted, or empty where there is none (a missing key).
    """

    path: str
    rule: str
    value: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.path, self.value, self.rule) if part)


class InvalidInput(BatchsimError):
    """An input was refused; `problems` lists everything found wrong with it, `note` says where it came from."""

    def __init__(self, problems: list[Problem], note: str = "") -> None:
        self.problems = problems
        self.note = note
        super().__init__("\n".join([*map(str, problems), *([note] if note else [])]))


class DoesNotFit(InvalidInput):
    """The model's weights leave no room for a KV cache on this GPU."""


class RuleBroken(BatchsimError):
    """A scheduler asked for something that the engine's rules forbid: names the scheduler, the rule and the request."""

    def __init__(self, scheduler: str, rule: str, detail: str) -> None:
        self.scheduler, self.rule = scheduler, rule
        super().__init__(f"scheduler {scheduler!r} broke the rule {rule!r}: {detail}")


class NoProgress(BatchsimError):
    """The run went on without time, tokens or requests moving."""


def problem(path: str, value: Any, rule: str) -> Problem:
    """A `Problem` with its value written as a person would type it."""
    return Problem(path, rule, "" if value is None else str(value))
