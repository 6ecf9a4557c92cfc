"""What a notebook shows of a result: the answer in a sentence, and one small table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from batchsim.report.document import Block, Section, Table

if TYPE_CHECKING:
    from batchsim.simulation import Run
    from batchsim.study.comparing import Comparison
    from batchsim.study.planning import Plan
    from batchsim.study.sweeping import Sweep

ROWS = 12
"""Of a longer table the first so many are shown."""


def run_html(run: Run) -> str:
    """Answer, latencies, throughput and cost of a run."""
    from batchsim.report.console import _facts_of
    from batchsim.report.document import cell
    from batchsim.report.pages import run_page

    page = run_page(run)
    facts = Table(("", ""), [[cell(label), cell(text)] for label, text in _facts_of(run.summary)], stubs=2)
    return fragment(page.kicker, page.answer, [*_tables(page.sections[0].blocks)[:1], facts])


def comparison_html(result: Comparison) -> str:
    """The runs side by side, the best of each row bold."""
    from batchsim.report.pages import compare_page

    page = compare_page(result)
    return fragment(page.title, page.answer, _tables(page.sections[0].blocks), rows=40)


def sweep_html(result: Sweep) -> str:
    """The points of the curve."""
    from batchsim.report.pages import sweep_page

    page = sweep_page(result)
    return fragment(page.title, page.answer, [table for part in page.sections for table in _tables(part.blocks)][:1])


def plan_html(found: Plan) -> str:
    """The sizes tried, and the options where there are several."""
    from batchsim.report import study_text
    from batchsim.report.pages import planning

    whole = found.to_dict()
    sections: list[Section | None] = [planning.sizes(whole)]
    if "options" in whole:
        sections.append(planning.alternatives(whole, found))
    tables = [table for section in sections if section is not None for table in _tables(section.blocks)]
    return fragment("plan", study_text.answer(whole), tables)


def fragment(heading: str, answer: str, tables: Sequence[Table], *, rows: int = ROWS) -> str:
    """HTML for a cell's output: plain, with the notebook's own table style."""
    parts = [f"<p><small>{escape(heading)}</small><br><b>{escape(answer)}</b></p>"]
    parts += [_table(table, rows) for table in tables]
    return "<div>" + "".join(parts) + "</div>"


def _tables(blocks: Sequence[Block]) -> list[Table]:
    return [block for block in blocks if isinstance(block, Table)]


def _table(table: Table, rows: int) -> str:
    align: Any = [' style="text-align: left"' if place < table.stubs else "" for place in range(len(table.columns))]
    head = "".join(f"<th{style}>{escape(name)}</th>" for name, style in zip(table.columns, align, strict=True))
    body = []
    for row in table.rows[:rows]:
        texts = [f"<b>{escape(entry.text)}</b>" if entry.mark else escape(entry.text) for entry in row]
        body.append("".join(f"<td{style}>{text}</td>" for text, style in zip(texts, align, strict=True)))
    lines = "".join(f"<tr>{cells}</tr>" for cells in body)
    more = f"<p><small>… and {len(table.rows) - rows:,} more: .table()</small></p>" if len(table.rows) > rows else ""
    show_head = f"<thead><tr>{head}</tr></thead>" if any(table.columns) else ""
    return f"<table>{show_head}<tbody>{lines}</tbody></table>{more}"
