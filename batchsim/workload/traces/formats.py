"""What a trace format is: the columns it reads, under which names, and into what."""

from __future__ import annotations

from dataclasses import dataclass

from batchsim.workload.traces.cells import Parse


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers: `name` in the file, the workload's `field` that it becomes, and how its cells are read."""

    name: str
    field: str
    parse: Parse
    required: bool = True


@dataclass(frozen=True, slots=True)
class Format:
    """One format of trace files.

    `texts`: the workload's field (id, tenant, session, traffic_class) and the column that names it, never required.
    `blocks`: the column of hash ids, or none; `block_tokens`: prompt tokens that one of them stands for.
    """

    name: str
    summary: str
    columns: tuple[Column, ...]
    texts: tuple[tuple[str, str], ...] = ()
    blocks: str = ""
    block_tokens: int = 0

    @property
    def wanted(self) -> dict[str, bool]:
        """Every column that the format reads, and whether a file must have it."""
        names = {column.name: column.required for column in self.columns}
        names.update({name: False for _, name in self.texts})
        return names | ({self.blocks: False} if self.blocks else {})
