"""A page as Markdown for a pull request or a ticket: the answer, the tables, the facts; pictures are in report.html."""

from __future__ import annotations

from collections.abc import Sequence

from batchsim.report.document import Block, Cell, Code, Facts, Figure, Items, Page, Prose, Section, Table

MARKS = {"good": "✅ ", "warn": "⚠️ ", "bad": "❌ ", "plain": ""}


def render(page: Page) -> str:
    """The text of report.md."""
    lines = [f"# {page.title}", "", page.kicker, "", f"**{MARKS[page.tone]}{page.answer}**", ""]
    if page.tiles:
        tiles = [[Cell(tile.label), Cell(f"{MARKS[tile.tone]}{tile.value}"), Cell(tile.note)] for tile in page.tiles]
        lines += [*_table(("", "", ""), tiles), ""]
    lines += [f"> **warning:** {warning}" for warning in page.warnings] + ([""] if page.warnings else [])
    for section in page.sections:
        lines += _section(section)
    if page.foot:
        lines += ["---", "", page.foot, ""]
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> list[str]:
    shown = [line for block in section.blocks for line in _block(block)]
    if not shown and not section.lead:
        return []
    return [f"## {section.title}", "", *([section.lead, ""] if section.lead else []), *shown]


def _block(block: Block) -> list[str]:
    if isinstance(block, Figure):
        return []
    if isinstance(block, Prose):
        return [block.text, ""]
    if isinstance(block, Items):
        return [*(f"- {text}" for text in block.texts), ""]
    if isinstance(block, Facts):
        return [*_table(("", ""), [[Cell(label), Cell(text)] for label, text in block.rows]), ""]
    if isinstance(block, Table):
        return [*([block.caption, ""] if block.caption else []), *_table(block.columns, block.rows, block.stubs), ""]
    return _code(block)


def _code(block: Code) -> list[str]:
    fenced = ["```", *block.text.rstrip().splitlines(), "```", ""]
    if block.folded:
        return [f"<details><summary>{block.title}</summary>", "", *fenced, "</details>", ""]
    return [*([block.title, ""] if block.title else []), *fenced]


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], stubs: int = 9) -> list[str]:
    aligned = ["---" if place < stubs else "---:" for place in range(len(columns))]
    lines = ["| " + " | ".join(map(_escaped, columns)) + " |", "| " + " | ".join(aligned) + " |"]
    for row in rows:
        texts = [f"**{_escaped(cell.text)}**" if cell.mark else _escaped(cell.text) for cell in row]
        lines.append("| " + " | ".join(texts) + " |")
    return lines


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
