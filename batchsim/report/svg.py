"""A figure as SVG that lives inside a page: its text is text in the page's font, its colours are the page's own.

Colours become CSS variables with the original as fallback, so that one drawing serves light and dark screens. Nothing
in it refers to anything outside, and the same data give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VARIABLES = {
    "#000000": "ink", "#ffffff": "paper", "#0072b2": "blue", "#e69f00": "orange", "#009e73": "green", "#d55e00": "red",
    "#bbbbbb": "grey", "#cc79a7": "pink", "#56b4e9": "sky", "#999999": "mid", "#777777": "mid", "#808080": "mid",
}  # fmt: skip
STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "font.size": 9.0, "axes.titlesize": 9.0, "axes.labelsize": 9.0, "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5, "legend.fontsize": 8.5, "axes.linewidth": 0.6, "xtick.major.width": 0.6,
    "ytick.major.width": 0.6, "axes.grid": True, "grid.linewidth": 0.5, "grid.alpha": 0.25, "grid.color": "#808080",
    "axes.axisbelow": True, "savefig.transparent": True,
}  # fmt: skip
SIZE = (4.7, 3.0)
"""Inches of a figure: as wide as a phone, so that its text can be read there; a laptop shows two side by side."""
WIDE, TALL = (9.6, 3.4), (4.7, 4.2)


class Drawing(NamedTuple):
    """A figure's message, and the picture without it."""

    title: str
    svg: str


def drawing(draw: Callable[..., Axes], *, wide: bool = False, tall: bool = False, name: str = "") -> Drawing:
    """What `draw` paints on its Axes. name: tells the parts of one page's figures apart."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {**STYLE, "svg.hashsalt": name or "batchsim"}
    with mpl.rc_context(style):
        figure = Figure(figsize=WIDE if wide else TALL if tall else SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        ax = draw(ax=figure.add_subplot())
        title = ax.get_title(loc="left") or ax.get_title()
        ax.set_title("", loc="left")
        ax.set_title("")
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    return Drawing(title, inline(stream.getvalue(), title, name))


def inline(text: str, title: str, name: str = "") -> str:
    """An SVG file's text -> an element for a page: no header, no metadata, colours of the page, ids of its own."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(?:xmlns(?::xlink)?|version|width|height)="[^"]*"', "", text.split(">", 1)[0]) + (
        ">" + text.split(">", 1)[1]
    )
    text = re.sub(r"#[0-9a-fA-F]{6}\b", _variable, text)
    text = re.sub(r"(font: [^;\"]*?px )[^;\"]*", r"\1var(--sans)", text)
    text = re.sub(r"(\.\d\d)\d+", r"\1", text)  # hundredths of a point
    text = _own_ids(text, name)
    text = re.sub(r"\n\s*", "\n", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{_attribute(title)}"', 1).strip()


def _variable(found: re.Match[str]) -> str:
    name = VARIABLES.get(found.group().lower())
    return f"var(--{name}, {found.group()})" if name else found.group()


def _own_ids(text: str, name: str) -> str:
    """Ids that something refers to get a prefix of this figure's; the others go."""
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    prefix = "f" + hashlib.sha256(name.encode()).hexdigest()[:6]
    text = re.sub(r'\sid="([^"]*)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'(href="#|url\(#)([^")]+)', rf"\g<1>{prefix}-\g<2>", text)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
