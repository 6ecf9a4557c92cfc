"""What `plan` prints names figures as people do."""

from __future__ import annotations

import pytest

from batchsim.report import study_text
from batchsim.report.console import figure_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p99_ttft_ms", "p99 TTFT"),
        ("p99.9_e2e_ms", "p99.9 E2E"),
        ("chat.p99.9_ttft_ms", "chat p99.9 TTFT"),
        ("long_prompts.p50_itl_ms", "long_prompts p50 ITL"),
        ("attainment", "attainment"),
        ("chat.attainment", "chat attainment"),
    ],
)
def test_a_figure_is_named_in_words(name: str, words: str) -> None:
    """No underscore, no unit in the name; a class keeps its own name, and a point may stand in the percentile."""
    assert figure_words(name) == words


def test_a_narrow_miss_is_told_apart_from_its_target() -> None:
    """15.0123 ms beyond 15 ms is not printed as 15.0 ms; a clear miss has three digits."""
    narrow = study_text._miss("p99_tpot_ms", {"limit": 15.0, "per_seed": [15.0123, 14.2]})
    clear = study_text._miss("p99_tpot_ms", {"limit": 15.0, "per_seed": [30.8287]})
    assert (narrow, clear) == ("p99 TPOT 15.0123 ms", "p99 TPOT 30.8 ms")
