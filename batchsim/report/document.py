"""What a report says, apart from how it looks: `html` and `markdown` render the same page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tone = Literal["good", "warn", "bad", "plain"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry of a table. sort: what orders its column, None for the text itself.  mark: best of its row."""

    text: str
    sort: float | None = None
    tone: Tone = "plain"
    mark: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns; the first `stubs` columns name the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    stubs: int = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, drawn on `ax=` only where one is shown: its message stands above it as text.

    wide: over the whole page.  tall: with room for many rows.
    """

    draw: Callable[..., Axes]
    caption: str = ""
    wide: bool = False
    tall: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels and what is said of each."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Prose:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Code:
    """Text to copy, under a line that says what it is. folded: shown when asked for."""

    text: str
    title: str = ""
    folded: bool = False


Block = Table | Figure | Facts | Prose | Items | Code


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure that the answer rests on. tone: how it stands to its target."""

    label: str
    value: str
    note: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, its finding in a sentence, and what shows it."""

    title: str
    blocks: Sequence[Block]
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A report. answer: the sentence that a reader came for; tone: whether it is good news."""

    title: str
    kicker: str
    answer: str
    tone: Tone
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    hero: Sequence[Figure] = ()
    warnings: Sequence[str] = field(default=())
    foot: str = ""


def cell(text: str, sort: float | None = None, *, tone: Tone = "plain", mark: bool = False) -> Cell:
    """A table's entry."""
    return Cell(text, sort, tone, mark)
