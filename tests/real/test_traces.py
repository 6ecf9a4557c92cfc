"""Real input: the Mooncake and Azure traces, each run to its end by continuous batching, nothing lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchsim.records import Status
from batchsim.scenario import scenario
from batchsim.simulation import Run, simulate

FILES = {
    "mooncake conversation": ("mooncake_conversation_trace.jsonl", "mooncake", 12_031, 0),
    "mooncake synthetic": ("mooncake_synthetic_trace.jsonl", "mooncake", 3_993, 10),
    "azure conversation": ("AzureLLMInferenceTrace_conv.csv", "azure", 19_366, 0),
    "azure code": ("AzureLLMInferenceTrace_code.csv", "azure", 8_819, 0),
}
LONGEST = 131_072


def run(data: Path, name: str, *, caching: bool, **more: Any) -> Run:
    """A trace on llama-3.1-8b and one H100."""
    file, form, _, _ = FILES[name]
    given = {
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "scheduler": {"kind": "vllm", "enable_prefix_caching": caching},
        "workload": {"kind": "trace", "path": str(data / "data" / "traces" / file), "format": form},
    }  # fmt: skip
    return simulate(scenario(given | more))


def conserved(found: Run) -> None:
    """Requests, tokens, times and blocks of a run add up."""
    requests, summary, rows = found.records.requests, found.summary, found.records.iterations
    status = Counter(Status(code) for code in requests.status.tolist())
    assert set(status) <= {Status.COMPLETED, Status.REJECTED}
    assert summary["submitted"] == len(requests) == summary["completed"] + summary["rejected"]
    done = requests.status == Status.COMPLETED
    assert np.array_equal(requests.emitted_tokens[done], requests.output_tokens[done])
    assert not requests.emitted_tokens[~done].any()
    assert summary["total_output_tokens"] == int(requests.output_tokens[done].sum())
    assert summary["total_input_tokens"] == int(requests.prompt_tokens[done].sum())
    assert summary["n_itl"] == int((requests.output_tokens[done] - 1).sum())
    computed = int(((rows.prefill_tokens + rows.decode_seqs) * rows.repeats).sum())
    hits = summary["prefix_hit_tokens"] + summary["resume_hit_tokens"]
    lost = summary["recomputed_tokens"] + summary["resume_hit_tokens"]
    asked = int((requests.prompt_tokens + requests.output_tokens - 1)[done].sum())
    assert computed + hits == asked + lost
    assert np.all(requests.arrival_ns[done] <= requests.admitted_ns[done])
    assert np.all(requests.admitted_ns[done] < requests.first_token_ns[done])
    assert np.all(requests.first_token_ns[done] <= requests.finished_ns[done])
    assert np.all(requests.finished_ns - requests.arrival_ns == requests.waited_ns + requests.ran_ns, where=done)
    assert np.all(rows.kv_blocks_used <= found.records.kv_blocks_total)
    assert np.all(rows.start_ns[1:] >= rows.end_ns[:-1])


@pytest.mark.parametrize("caching", [False, True], ids=["no cache", "prefix cache"])
@pytest.mark.parametrize("name", FILES)
def test_a_trace_runs_to_its_end(data: Path, name: str, caching: bool) -> None:
    """Every request completes, or is rejected where prompt and output exceed 131,072 tokens, both named."""
    found = run(data, name, caching=caching)
    conserved(found)
    _, _, rows, too_long = FILES[name]
    assert (found.summary["submitted"], found.summary["rejected"]) == (rows, too_long)
    requests = found.records.requests
    longer = requests.prompt_tokens + requests.output_tokens > LONGEST
    assert np.array_equal(longer, requests.status == Status.REJECTED)
    for index in np.flatnonzero(longer).tolist():
        tokens = int(requests.prompt_tokens[index] + requests.output_tokens[index])
        assert requests.reasons[index] == f"prompt and output of {tokens} tokens exceed max_model_len {LONGEST}"


def test_a_longer_limit_rejects_nobody(data: Path) -> None:
    """With max_model_len 196,608 all 3,993 requests of the synthetic trace complete."""
    found = run(data, "mooncake synthetic", caching=True, max_model_len=196_608)
    conserved(found)
    assert found.summary["completed"] == 3_993


def test_the_cache_pays_where_prefixes_are_shared(data: Path) -> None:
    """The cache of one GPU gets a tenth to all of what an endless one would (37.3 % of the conversations)."""
    found = run(data, "mooncake conversation", caching=True)
    share = found.summary["prefix_hit_tokens"] / int(found.records.requests.prompt_tokens.sum())
    assert 0.0373 < share < 0.373
    without = run(data, "mooncake conversation", caching=False)
    assert found.summary["duration"] < without.summary["duration"]
    assert without.summary["prefix_hit_tokens"] == 0


@pytest.mark.parametrize("name", ["azure conversation", "azure code"])
def test_a_cache_changes_nothing_where_none_are(data: Path, name: str) -> None:
    """The Azure traces name no prefixes: with the cache on every time is the same."""
    plain, cached = (run(data, name, caching=caching).records.requests for caching in (False, True))
    assert np.array_equal(plain.finished_ns, cached.finished_ns)
    assert not cached.prefix_hit_tokens.any()
