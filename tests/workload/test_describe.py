"""What a trace holds, in figures: by hand on small ones, against the publishers' on theirs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from batchsim.workload import traces
from batchsim.workload.columns import Prefixes, Workload
from batchsim.workload.describe import describe, prefix_share
from batchsim.workload.prefixes import offsets


def naive_share(work: Workload, block: int) -> float:
    """Prefix sharing, request by request: the longest common beginning with any earlier prompt, in full blocks."""
    assert work.prefixes is not None
    seen: list[list[tuple[int, int]]] = []
    hit = 0
    for row in np.argsort(work.arrival_ns, kind="stable"):
        part = slice(work.prefixes.offset[row], work.prefixes.offset[row + 1])
        mine = list(zip(work.prefixes.segment[part].tolist(), work.prefixes.tokens[part].tolist(), strict=True))
        best = 0
        for other in seen:
            common = 0
            for (segment, tokens), (theirs, their_tokens) in zip(mine, other, strict=False):
                if segment != theirs:
                    break
                common += min(tokens, their_tokens)
                if tokens != their_tokens:
                    break
            best = max(best, common)
        hit += best // block * block
        seen.append(mine)
    return hit / int(work.prompt_tokens.sum())


def with_prefixes(rows: list[list[tuple[int, int]]], prompts: list[int]) -> Workload:
    """A workload, one request a second, with the prefixes of `rows`."""
    count = len(rows)
    zeros = np.zeros(count, np.int64)
    flat = [pair for row in rows for pair in row]
    prefixes = Prefixes(
        offsets(np.array([len(row) for row in rows])),
        np.array([segment for segment, _ in flat], np.int64),
        np.array([tokens for _, tokens in flat], np.int64),
    )
    return Workload(
        arrival_ns=np.arange(count) * 10**9,
        prompt_tokens=np.array(prompts),
        output_tokens=zeros + 1,
        max_tokens=zeros - 1,
        priority=zeros,
        tenant=zeros,
        traffic_class=zeros,
        session=zeros - 1,
        cancel_ns=zeros - 1,
        prefixes=prefixes,
    )


def test_prefix_sharing_by_hand() -> None:
    """Two prompts of 64: the second shares 40 tokens, so two full blocks of 16: 32 of 128."""
    assert prefix_share(with_prefixes([[(0, 40)], [(0, 40)]], [64, 64]), 16) == 32 / 128


@pytest.mark.parametrize("seed", range(20))
def test_prefix_sharing_equals_the_plain_count(seed: int) -> None:
    """The vectorised share is that of comparing every prompt with every earlier one, whatever part of a segment
    each takes.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(40):
        depth = int(rng.integers(0, 5))
        row = [(int(rng.integers(0, 3)), int(rng.choice([16, 16, 16, 7, 30]))) for _ in range(depth)]
        rows.append(row)
    work = with_prefixes(rows, [150] * 40)
    assert prefix_share(work, 16) == pytest.approx(naive_share(work, 16), abs=1e-12)


def test_figures_by_hand(tmp_path: Path) -> None:
    """Arrivals at 0, 60 and 120 s: even gaps, 1.5 a minute over the span, one in each whole minute."""
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,1\n60,20,2\n120,60,3\n")
    found = describe(traces.read(path))
    assert (found.rows, found.span_s, found.mean_rate_per_s) == (3, 120.0, 3 / 120)
    assert found.minute_arrivals == (1, 1, 1)
    assert (found.slowest_minute_per_s, found.busiest_minute_per_s) == (1 / 60, 1 / 60)
    assert (found.gap_cv, found.dispersion) == (0.0, 0.0)
    assert (found.prompt_tokens.mean, found.prompt_tokens.p50, found.prompt_tokens.max) == (30.0, 20.0, 60)
    assert found.prefix_share is None
    assert json.loads(json.dumps(found.to_dict()))["output_tokens"]["total"] == 6


def test_one_row_has_no_rate(tmp_path: Path) -> None:
    """Undefined figures are None, never 0 or NaN."""
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n5,10,1\n")
    found = describe(traces.read(path))
    assert found.span_s == 0
    undefined = (found.mean_rate_per_s, found.gap_cv, found.dispersion, found.busiest_minute_per_s)
    assert undefined == (None, None, None, None)


@pytest.mark.parametrize(
    ("name", "form", "rows", "prompt", "output", "rate"),
    [
        ("AzureLLMInferenceTrace_conv.csv", "azure", 19_366, 1155, 211, 5.53),
        ("AzureLLMInferenceTrace_code.csv", "azure", 8_819, 2048, 27.9, 2.57),
        ("mooncake_conversation_trace.jsonl", "mooncake", 12_031, 12_035, 343, 3.40),
    ],
)
def test_publishers_figures(
    data: Path, name: str, form: str, rows: int, prompt: float, output: float, rate: float
) -> None:
    """Rows, mean lengths and mean rate of the real traces are those of their publishers, to their digits."""
    found = describe(traces.read(data / "data" / "traces" / name))
    assert (found.format, found.rows, found.skipped, found.unsorted) == (form, rows, 0, 0)
    assert found.prompt_tokens.mean == pytest.approx(prompt, abs=0.5)
    assert found.output_tokens.mean == pytest.approx(output, abs=0.05 if output < 100 else 0.5)
    assert found.mean_rate_per_s == pytest.approx(rate, abs=0.005)


def test_mooncake_conversations_share_prefixes(data: Path) -> None:
    """The conversation trace repeats well over a third of its prompt tokens; the count is that of its block ids."""
    path = data / "data" / "traces" / "mooncake_conversation_trace.jsonl"
    seen: set[int] = set()
    hit = total = 0
    for line in path.read_text().splitlines():
        row = json.loads(line)
        blocks = row["hash_ids"][: row["input_length"] // 512]
        known = next((at for at, block in enumerate(blocks) if block not in seen), len(blocks))
        hit, total = hit + 512 * known, total + row["input_length"]
        seen.update(row["hash_ids"])
    assert describe(traces.read(path)).prefix_share == pytest.approx(hit / total, abs=1e-12)
    assert hit / total > 1 / 3
