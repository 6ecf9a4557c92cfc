"""Reports as files: one file that refers to nothing outside, the answer first, the same bytes for the same result."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from batchsim.report import curve_plots, html, markdown, pages, study_text
from batchsim.report.console import money, number
from batchsim.report.document import Cell, Page, Section, Table
from batchsim.report.svg import inline
from batchsim.simulation import simulate
from batchsim.study import plan
from tests.report.pages import NAMES, made
from tests.study.given import one_at_a_time, small

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Nesting(HTMLParser):
    """Whether every element that opens closes in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember it."""
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It must be the one opened last."""
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_one_sound_file_that_refers_to_nothing_outside(name: str) -> None:
    """Elements nest, ids are unique and each reference finds its id, and no address of another place occurs."""
    text = html.render(made(name))
    reader = Nesting()
    reader.feed(text)
    assert not reader.wrong
    assert not reader.open
    assert len(reader.ids) == len(set(reader.ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(reader.ids)
    addresses = re.findall(r'\b(?:src|href|action)\s*=\s*"([^"]*)"', text)
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_comes_first(name: str) -> None:
    """In HTML and Markdown the answer stands before every table and figure."""
    page = made(name)
    words = page.answer.split()[0]
    text, plain = html.render(page), markdown.render(page)
    assert words in text
    assert text.index('class="answer') < min(text.find(tag) for tag in ("<table", "<svg") if tag in text)
    assert plain.splitlines()[0].startswith("# ")
    assert plain.splitlines()[4].startswith("**")


def test_the_same_result_gives_the_same_bytes() -> None:
    """Drawing a report twice gives one text: nothing in it depends on the time or on memory addresses."""
    run = simulate(small(slo={"ttft_ms": 200}))
    assert html.render(pages.run_page(run)) == html.render(pages.run_page(run))


def test_a_plan_has_its_six_parts() -> None:
    """Answer, what binds, headroom, sensitivity, alternatives, provenance, in this order."""
    titles = [section.title for section in made("plan").sections]
    wanted = ["What binds", "Headroom", "Sensitivity", "Alternatives", "Assumptions and provenance"]
    assert [title for title in titles if title in wanted] == wanted
    assert made("plan").hero
    assert made("plan").answer.split()[0].isdigit()


def test_an_impossible_target_is_said_first_with_its_floor() -> None:
    """A plan that no size can meet is bad news at once, and names what a lone request takes."""
    page = made("infeasible")
    assert page.tone == "bad"
    assert "20 ms" in page.answer or "at least" in page.answer
    assert page.sections[0].title == "Why no size will do"


def test_texts_from_scenarios_are_escaped() -> None:
    """A name with markup in it is text, in a heading, in a table, in a figure's label."""
    nasty = '<script>alert("x")</script> & "more"'
    page = Page(nasty, nasty, nasty, "plain", (), [Section(nasty, [Table((nasty,), [[Cell(nasty)]])])])
    assert "<script>alert" not in html.render(page)
    assert 'aria-label="&lt;script>' in inline("<svg></svg>", nasty)
    assert "\\|" in markdown.render(
        Page("a", "b", "c", "plain", (), [Section("t", [Table(("a|b",), [[Cell("c|d")]])])])
    )


def test_figures_take_the_pages_colours() -> None:
    """Black, white and the palette become variables, which the style sheet defines for light and for dark."""
    text = html.render(made("run"))
    used = set(re.findall(r"var\(--(\w+)", text))
    style = text[text.index("<style>") : text.index("</style>")]
    light, dark = style.split("prefers-color-scheme: dark", 1)
    for name in used - {"sans", "mono"}:
        assert f"--{name}:" in light
        assert f"--{name}:" in dark
    figures = text[text.index("<svg") : text.rindex("</svg>")]
    assert not re.search(r"(?<!, )#(?:000000|ffffff|0072b2)", figures, re.IGNORECASE)


def test_commands_write_both_files(tmp_path: Path) -> None:
    """report.html and report.md, complete."""
    for path in html.write(tmp_path, made("compare")):
        assert path.stat().st_size > 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.md"]


def test_a_run_says_offered_where_it_means_offered() -> None:
    """The answer never calls the offered rate served; a closed loop or burst counts its requests."""
    run = simulate(small())
    offered = number(run.summary["offered_rate_per_s"])
    assert pages.run_page(run).answer.startswith(f"{offered} requests a second are offered and kept up with")
    lengths = {"kind": "fixed", "tokens": 30}
    workload = {"requests": 30, "arrivals": {"kind": "burst"}, "prompt_tokens": lengths, "output_tokens": lengths}
    burst = small(workload=workload)
    assert pages.run_page(simulate(burst)).answer.startswith("30 requests are served")


def test_money_has_the_same_digits_everywhere() -> None:
    """Below one, three digits that count: the tile of a plan says what its table says."""
    assert [money(value) for value in (None, 0, 0.26543, 0.0404, 0.9999, 4.0, 1234.5)] == [
        "–", "$0.00", "$0.265", "$0.0404", "$1.00", "$4.00", "$1,234.50",
    ]  # fmt: skip
    whole = plan(one_at_a_time(requests=300, rate_per_s=3.0, ttft_ms=2000.0), seeds=1)
    cost = money(whole.to_dict()["cost_per_million_output_tokens"])
    (tile,) = (tile for tile in pages.plan_page(whole).tiles if tile.label == "cost")
    assert tile.note == f"{cost} per million output tokens"
    assert f"{cost} per million output tokens" in dict(study_text._facts_of(whole.to_dict()))["cost"]


def test_numbers_stay_with_their_units() -> None:
    """No line of prose breaks between a number and its unit; names of keys and code are left as they are."""
    assert html.tied("9.9 % or less, p99 12.6 ms (≤ 15.0 ms) at 25.2 req/s") == (
        "9.9\u00a0% or less, p99 12.6\u00a0ms (≤\u00a015.0\u00a0ms) at 25.2\u00a0req/s"
    )
    assert html.tied("16 seats of 20 steps") == "16 seats of 20 steps"


@pytest.mark.parametrize(("seeds", "bands"), [(2, 0), (3, 1)])
def test_two_seeds_draw_no_band(seeds: int, bands: int) -> None:
    """A t interval of two seeds hides what it is about; the columns of curve.csv keep it."""
    line = [{"x": x, "y": x, "y_low": 0.0, "y_high": 9.0 * x, "seeds": seeds} for x in (1.0, 2.0)]
    ax = curve_plots.latency_throughput({"": [point | {"request_throughput": point["x"]} for point in line]}, "y")
    assert len(ax.collections) == bands
