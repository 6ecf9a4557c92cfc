"""What `check` prints: a verdict, then one line a gate, the failed ones in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from batchsim.study.checking import Check


def check_table(result: Check) -> RenderableType:
    """Passed or failed, then every gate with both sides, the paired difference and n."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    failed = [finding for finding in result.findings if finding.failed]
    count = len(result.findings)
    head = f"{count} of {count} gates hold" if not failed else f"{len(failed)} of {count} gates fail"
    table = Table(box=None, padding=(0, 2, 0, 1), show_edge=False)
    for name in ("case", "figure"):
        table.add_column(name, header_style="dim")
    for name in ("baseline", "now", "difference", "n", ""):
        table.add_column(name, justify="right", header_style="dim")
    for one in result.findings:
        style = "red" if one.failed else "green" if one.verdict == "better" else ""
        cells = [_number(one.baseline), _number(one.candidate), _number(one.difference, signed=True)]
        table.add_row(one.case, one.figure, *cells, f"{one.n:,}", Text(one.verdict, style=style))
    lines = [Text(f" {finding.case}: {finding.message}", style="red", overflow="fold") for finding in failed]
    return Group(Text(head, style="bold red" if failed else "bold"), Text(""), table, Text(""), *lines)


def _number(value: float | None, signed: bool = False) -> str:
    if value is None:
        return "–"
    if value == 0:
        return "0"
    return f"{value:+.4g}" if signed else f"{value:.6g}"
