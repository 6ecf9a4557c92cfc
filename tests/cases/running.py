"""The practitioners' cases: their common scenario as text, and how one is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from batchsim import plugins
from batchsim.scenario import Scenario, scenario
from batchsim.scenario.text import parse
from batchsim.simulation import Run, simulate

LIN = "{kind: linear, base_ms: 10, prefill_token_ms: 0.1, decode_seq_ms: 1.0}"
FLAT = "{kind: linear, base_ms: 10, prefill_token_ms: 0, decode_seq_ms: 0}"
PLAIN = "enable_prefix_caching: false, async_scheduling: false"
BUILT = plugins.kinds("batchsim.schedulers")

Rows = Sequence[tuple[str, float, int, int]]


def text(
    workload: str,
    *,
    scheduler: str = "kind: vllm, max_num_seqs: 256, max_num_batched_tokens: 8192, " + PLAIN,
    cost: str = LIN,
    blocks: int = 100_000,
    more: str = "",
) -> str:
    """A scenario's YAML."""
    return f"""
name: case
seed: 1
model: llama-3.1-8b
gpu: h100-sxm
engine: {{overhead_ms: 0}}
cost_model: {cost}
kv_cache: {{block_size: 16, num_blocks: {blocks}}}
scheduler: {{{scheduler}}}
{more}
workload: {workload}
"""


def listed(rows: Rows, extra: str = "", keys: str = "") -> str:
    """A list workload: (id, arrival ms, prompt, output) each, with the output declared as the limit."""
    lines = "".join(
        f"\n  - {{id: {name}, arrival_ms: {at}, prompt_tokens: {prompt}, output_tokens: {output}, "
        f"max_tokens: {output}{keys}}}"
        for name, at, prompt, output in rows
    )
    return f"\n  kind: list{extra}\n  requests:{lines}"


def load(yaml_text: str, **changes: Any) -> Scenario:
    """The scenario of a YAML text; the test is skipped while its scheduler's kind is not built."""
    given = parse(yaml_text)
    kind = given["scheduler"]["kind"]
    if kind not in BUILT:
        pytest.skip(f"scheduler {kind} is not built yet")
    return scenario(given | changes)


def run(yaml_text: str, **options: Any) -> Run:
    """Its run."""
    return simulate(load(yaml_text), **options)


def ms(found: Run, column: str) -> dict[str, float]:
    """A column of requests.csv by request."""
    frame = found.requests
    return dict(zip(frame["id"].tolist(), frame[column].tolist(), strict=True))
