"""A page as one HTML file: styles, script and figures inside, nothing fetched; light and dark, phone, laptop, paper."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

from batchsim.report.document import Block, Figure, Page
from batchsim.report.files import write_atomically
from batchsim.report.svg import drawing


def render(page: Page) -> str:
    """The text of the file."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    folder = resources.files("batchsim.report") / "templates"
    environment = Environment(
        loader=PackageLoader("batchsim.report", "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters["tied"] = tied
    environment.tests["kind"] = lambda block, name: type(block).__name__ == name
    numbers = iter(range(1, 10_000))

    def drawn(figure: Figure) -> dict[str, Any]:
        made = drawing(figure.draw, wide=figure.wide, tall=figure.tall, name=f"figure-{next(numbers)}")
        return {"title": made.title, "svg": made.svg, "caption": figure.caption, "wide": figure.wide}

    return environment.get_template("page.html.j2").render(
        page=page,
        drawn=drawn,
        groups=groups,
        style=(folder / "page.css").read_text(encoding="utf-8"),
        script=(folder / "page.js").read_text(encoding="utf-8"),
    )


UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|s|µs|min|GiB|tok/s|req/s)(?![\w/]))|(?<=[≤≥]) (?=[\d$])")


def tied(text: str) -> str:
    """Prose in which no line breaks between a number and its unit, or a sign and its number."""
    return UNIT.sub("\u00a0", text)


def groups(blocks: list[Block]) -> list[list[Block]]:
    """Blocks with figures that follow each other together: they stand side by side where there is room."""
    found: list[list[Block]] = []
    for block in blocks:
        if isinstance(block, Figure) and found and isinstance(found[-1][0], Figure):
            found[-1].append(block)
        else:
            found.append([block])
    return found


def write(folder: Path, page: Page) -> list[Path]:
    """report.html and report.md; their paths."""
    from batchsim.report import markdown

    texts = {"report.html": render(page), "report.md": markdown.render(page)}
    return [
        write_atomically(folder / name, lambda stream, text=text: stream.write(text))  # type: ignore[misc]
        for name, text in texts.items()
    ]
