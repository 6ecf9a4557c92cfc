"""Prefill and decode apart, checked by hand: phases, link, first token, memory on both sides."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchsim.errors import InvalidInput
from batchsim.metrics.fleet import PHASES, phases_ns
from batchsim.records import NEVER
from batchsim.scenario import resolve, scenario
from batchsim.simulation import Run, simulate
from tests.fleet.fleets import apart, base, listed

COST = {"kind": "linear", "base_ms": 10, "prefill_token_ms": 0.1, "decode_seq_ms": 1.0}
KV_BYTES = 131_072
"""Of a token of llama-3.1-8b in 16 bits."""


def run(rows: list[tuple[float, int, int]], sections: dict[str, Any], **changes: Any) -> Run:
    """A run of these requests, prefill and decode apart."""
    return simulate(scenario(base(cost_model=COST, workload=listed(rows), disaggregation=sections) | changes))


def phases_ms(made: Run, index: int) -> list[float]:
    """The six phases of a request."""
    assert made.records.handoffs is not None
    return [float(column[index]) / 1e6 for column in phases_ns(made.records.requests, made.records.handoffs).values()]


def test_one_request_by_hand_first_token_from_prefill() -> None:
    """100 tokens: 20 ms; moved in 2 ms + 13.1072 ms at 1 GB/s + 7 blocks of 0.1 ms; two more tokens of 11 ms."""
    link = {"gb_per_s": 1, "latency_ms": 2, "per_block_us": 100}
    made = run([(0, 100, 3)], apart(link=link, first_token="prefill"))
    assert phases_ms(made, 0) == [0, 20, 0, 2 + 100 * KV_BYTES / 1e6 + 0.7, 0, 22]
    assert made.summary["mean_ttft_ms"] == 20
    assert made.summary["mean_e2el_ms"] == pytest.approx(57.8072)
    assert made.records.requests.replica.tolist() == [1]


def test_one_request_by_hand_first_token_from_decode() -> None:
    """The last prompt token is computed again, 10.1 ms, and streams; then two of 11 ms: TTFT holds the hand-off."""
    made = run([(0, 100, 3)], apart(link={"gb_per_s": 1}, first_token="decode"))
    assert phases_ms(made, 0) == pytest.approx([0, 20, 0, 13.1072, 0, 10.1 + 22])
    assert made.summary["mean_ttft_ms"] == pytest.approx(20 + 13.1072 + 10.1)
    assert made.summary["prefix_hit_tokens"] == made.summary["preemptions"] == 0


def test_one_token_answers() -> None:
    """Under `prefill` they end there, with no hand-off; under `decode` they go the whole way."""
    there = run([(0, 100, 1)], apart(first_token="prefill"))
    assert phases_ms(there, 0)[:2] == [0, 20]
    assert there.records.handoffs is not None
    assert there.records.handoffs.pulled_ns.tolist() == [NEVER]
    assert there.records.requests.replica.tolist() == [0]
    away = run([(0, 100, 1)], apart(first_token="decode"))
    assert away.records.requests.replica.tolist() == [1]
    assert there.summary["total_output_tokens"] == away.summary["total_output_tokens"] == 1


def test_transfers_share_the_link_in_order() -> None:
    """Two prompts done at once: the second moves when the first has; the latency of both overlaps."""
    made = run([(0, 100, 2), (0, 100, 2)], apart(link={"gb_per_s": 1, "latency_ms": 5}, first_token="prefill"))
    moved = 100 * KV_BYTES / 1e6
    assert [phases_ms(made, n)[3] for n in (0, 1)] == pytest.approx([moved + 5, 2 * moved + 5])


def test_kv_stays_at_the_source_until_it_is_pulled() -> None:
    """A prefill pool for one prompt: the second starts when the first has been moved, not when it was computed."""
    link = {"gb_per_s": 1, "latency_ms": 30}
    small = {"kv_cache": {"num_blocks": 7}}
    made = run([(0, 100, 2), (0, 100, 2)], apart(small, link=link, first_token="prefill"))
    assert phases_ms(made, 1)[0] == pytest.approx(20 + 30 + 100 * KV_BYTES / 1e6)


def test_the_decode_side_pulls_when_it_has_memory() -> None:
    """A decode pool for one request: the second waits, its KV at the source, until the first has ended."""
    made = run([(0, 100, 10), (0, 100, 10)], apart(decode={"kv_cache": {"num_blocks": 7}}, first_token="prefill"))
    first, second = phases_ms(made, 0), phases_ms(made, 1)
    assert second[2] == pytest.approx(first[3] + first[5])
    assert second[2] > 90


def test_two_hand_offs_that_need_memory_both_finish() -> None:
    """Both pools hold one request and a little: whoever waits holds nothing where the other waits, so all end."""
    sides = apart({"kv_cache": {"num_blocks": 8}}, {"kv_cache": {"num_blocks": 9}}, first_token="prefill")
    made = run([(n * 5.0, 100 + n % 3, 30) for n in range(20)], sides)
    assert made.summary["completed"] == 20


@pytest.mark.parametrize("first_token", ["prefill", "decode"])
def test_thrashing_on_the_decode_side_ends(first_token: str) -> None:
    """Contexts outgrow a small decode pool: evicted requests compute again there, and everybody ends."""
    sides = apart({}, {"kv_cache": {"num_blocks": 30}, "scheduler": {"max_num_seqs": 8}}, first_token=first_token)
    made = run([(n * 2.0, 60 + 7 * (n % 5), 200) for n in range(24)], sides)
    assert made.summary["completed"] == 24
    assert made.summary["preemptions"] > 0
    prefilled = made.records.iterations.prefill_tokens[made.records.iterations.replica == 1]
    assert prefilled.sum() >= made.summary["recomputed_tokens"]
    assert made.records.requests.emitted_tokens.tolist() == [200] * 24


def test_a_client_gives_up_in_every_phase() -> None:
    """Cancelled while waiting, computed, moved or decoded: it counts once, and all blocks serve the next ones."""
    rows = [{"id": f"{n}", "arrival_ms": 0, "prompt_tokens": 100, "output_tokens": 40} for n in range(12)]
    for n, row in enumerate(rows):
        row["cancel_ms"] = 5 + 13 * n
    sides = apart(
        {"kv_cache": {"num_blocks": 15}}, {"kv_cache": {"num_blocks": 12}}, link={"gb_per_s": 1, "latency_ms": 9}
    )
    late = [{"id": "late", "arrival_ms": 2000, "prompt_tokens": 100, "output_tokens": 40}]
    workload = {"kind": "list", "requests": rows + late}
    made = simulate(scenario(base(cost_model=COST, disaggregation=sides, workload=workload)))
    assert made.summary["cancelled"] + made.summary["completed"] == 13
    assert made.summary["cancelled"] >= 8
    assert made.records.requests.finished_ns[12] != NEVER


def test_sides_are_their_own() -> None:
    """Each side has its GPUs, its pool and its scheduler; the summary counts the GPUs of both, and so does the cost."""
    prefill = {"replicas": 2, "gpu": "h200-sxm"}
    decode = {"replicas": 3, "tensor_parallel": 2, "scheduler": {"max_num_seqs": 3}, "kv_cache": {"num_blocks": 77}}
    described = scenario(base(cost_model=COST, disaggregation=apart(prefill, decode), price={"gpu_hour": 2.0}))
    made = simulate(described)
    summary = made.summary
    assert summary["gpus"] == resolve(described).gpus == 2 + 3 * 2
    assert [(g["role"], g["gpu"], g["gpus"]) for g in summary["groups"]] == [
        ("prefill", "h200-sxm", 2),
        ("decode", "h100-sxm", 6),
    ]
    assert summary["groups"][1]["kv_blocks_total"] == 77
    hours = summary["duration"] / 3600
    cost = 8 * 2.0 * hours / summary["total_output_tokens"] * 1e6
    assert summary["cost_per_million_output_tokens"] == pytest.approx(cost)
    seats = made.records.iterations.running[made.records.iterations.replica >= 2]
    assert seats.max() == 3


def test_files_name_the_phases(tmp_path: Path) -> None:
    """requests.csv has a column for each phase and the prefill replica; summary.json their statistics."""
    made = run([(0, 100, 3), (3, 50, 2)], apart(first_token="prefill"))
    made.write(tmp_path)
    with (tmp_path / "requests.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert all(f"{name}_ms" in rows[0] for name in PHASES)
    for row in rows:
        assert sum(float(row[f"{name}_ms"]) for name in PHASES) == pytest.approx(float(row["e2e_ms"]), abs=1e-6)
    assert {row["prefill_replica"] for row in rows} == {"0"}
    assert set(json.loads((tmp_path / "summary.json").read_text())["phases"]) == set(PHASES)


def test_switched_off_it_changes_not_one_byte(tmp_path: Path) -> None:
    """A null section is no section, and a run without one has no column, key or file of it."""
    plain = base()
    files: list[dict[str, bytes]] = []
    for name, given in (("absent", plain), ("null", plain | {"disaggregation": None, "fleet": None})):
        simulate(scenario(given)).write(tmp_path / name)
        files.append({path.name: path.read_bytes() for path in sorted((tmp_path / name).iterdir())})
    assert files[0] == files[1]
    summary = json.loads(files[0]["summary.json"])
    assert not {"phases", "groups", "retries"} & set(summary)
    assert not {"disaggregation", "fleet"} & set(summary["scenario"])
    header = files[0]["requests.csv"].splitlines()[0].decode()
    assert not any(name in header for name in ("prefill_replica", "transfer_ms"))


def test_apart_beats_together_where_prompts_stall_decodes() -> None:
    """Prefill-first batching on one side: long prompts freeze streams; apart no stream waits for a prompt."""
    rows = [(0.0, 20, 200)] + [(100.0 + 300 * n, 4000, 2) for n in range(5)]
    together = simulate(scenario(base(cost_model=COST, replicas=1, workload=listed(rows))))
    parted = run(rows, apart(first_token="prefill"))
    assert together.requests["max_itl_ms"][0] > 400
    assert parted.requests["max_itl_ms"][0] < 60


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fleet": [{}]}, "disaggregation: cannot stand beside fleet: give one of them"),
        ({"disaggregation": {"prefill": {}, "link": {"gb_per_s": 1}}}, "disaggregation.decode: missing"),
        ({"disaggregation": {"prefill": {}, "decode": {}}}, "disaggregation.link: missing"),
        (
            {"disaggregation": apart({"gpus": 2})},
            "disaggregation.prefill.gpus: unknown key; did you mean 'gpu'?",
        ),
        (
            {"disaggregation": apart(decode={"scheduler": {"max_num_seqs": 0}})},
            "disaggregation.decode.scheduler.max_num_seqs: 0: must be at least 1",
        ),
        ({"disaggregation": apart(first_token="both")}, "must be one of 'prefill', 'decode'"),
        (
            {"disaggregation": apart(decode={"scheduler": {"kind": "orca"}})},
            "disaggregation.decode.scheduler.kind: 'orca': computes whole prompts: it cannot start from KV pulled",
        ),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], said: str) -> None:
    """Refused before the run: the place in the file, the value, the rule, the nearest key."""
    given = base(disaggregation=apart()) | change
    with pytest.raises(InvalidInput) as caught:
        simulate(scenario(given))
    assert said in str(caught.value)


def test_phases_of_many() -> None:
    """At load, on unlike sides, each request's phases add up to its E2E."""
    sides = apart({"replicas": 2}, {"replicas": 2, "kv_cache": {"num_blocks": 60}}, link={"gb_per_s": 2})
    made = simulate(scenario(base(cost_model=COST, disaggregation=sides, router={"kind": "least_tokens"})))
    records = made.records
    assert records.handoffs is not None
    total = sum(phases_ns(records.requests, records.handoffs).values())
    assert np.array_equal(total, records.requests.finished_ns - records.requests.arrival_ns)
