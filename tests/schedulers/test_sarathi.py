"""Sarathi-Serve: its recordings step by step, its oracles, and what chunks and mixed steps are for."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from batchsim.simulation import simulate
from batchsim.testing import replay
from tests.oracles import vllm_v0
from tests.oracles.sarathi import Oracle
from tests.oracles.scenarios import random_sarathi_recording
from tests.schedulers.runs import check_collapsed, listed, play, random_case, rejected, row, story, ttft_ms

RECORDINGS = sorted((Path(__file__).parents[1] / "golden" / "sarathi-serve").glob("*.json"))
POLICIES = ("sarathi", "vllm", "orca", "faster_transformer")
COMPARED = ("step", "sched", "preempted", "finished", "running", "waiting", "free")


def compared(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a replay returns; a recording leaves out what is empty."""
    return [{key: step.get(key, []) for key in COMPARED} for step in steps]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_is_played_step_by_step(path: Path) -> None:
    """Every step of a recording of the real sarathi-serve is repeated, to the same end."""
    recording: dict[str, Any] = json.loads(path.read_text())
    assert compared(replay(recording)) == compared(recording["steps"])


def test_there_are_recordings_of_all_policies() -> None:
    """None of the four is left out."""
    assert {path.stem.rsplit("_", 1)[0].removesuffix("_long").removesuffix("_too") for path in RECORDINGS} == set(
        POLICIES
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_random_scenarios_go_as_in_the_oracle(policy: str) -> None:
    """200 random scenarios, small pools and too long prompts among them, take every step of the plain rules."""
    for seed in range(200):
        recording = random_sarathi_recording(seed, policy)
        assert compared(replay(recording)) == compared(Oracle(recording).run()), f"seed {seed}"


def crowded_recording(seed: int, policy: str) -> dict[str, Any]:
    """A random scenario of 100 to 260 blocks of a token or two, and so many requests that the watermark is touched."""
    recording = random_sarathi_recording(seed, policy)
    config, rng = recording["config"], random.Random(f"crowded {seed}")
    config |= {"block_size": rng.choice([1, 2]), "num_gpu_blocks": rng.randint(100, 260), "max_num_seqs": 64}
    many = [{**row, "id": f"{row['id']}.{copy}"} for copy in range(4) for row in recording["requests"]]
    return {**recording, "requests": many}


@pytest.mark.parametrize("policy", ["sarathi", "vllm"])
def test_a_crowd_stops_at_the_watermark(policy: str) -> None:
    """In 30 crowded scenarios, whose watermark is a block or two, every step is that of the plain rules."""
    for seed in range(30):
        recording = crowded_recording(seed, policy)
        assert compared(replay(recording)) == compared(Oracle(recording).run()), f"seed {seed}"


def alternating_case(seed: int) -> dict[str, Any]:
    """A random scenario that is not hybrid."""
    rng = random.Random(f"alternating {seed}")
    chunk = rng.choice([rng.randint(1, 10), rng.randint(5, 60)])
    seats = rng.choice([128, rng.randint(1, 5)])
    return random_case(seed, {"kind": "sarathi", "hybrid": False, "chunk_size": chunk, "max_num_seqs": seats})


@pytest.mark.parametrize("start", [0, 100])
def test_alternating_steps_are_the_oracle_s(start: int) -> None:
    """Not hybrid: steps of chunks and of decodes take turns, as written out plainly."""
    evictions = 0
    for seed in range(start, start + 100):
        case = alternating_case(seed)
        steps, gone = vllm_v0.run(case, vllm_v0.Alternating)
        run = play(case)
        assert story(run) == steps, seed
        assert rejected(run) == set(gone), seed
        check_collapsed(run, case)
        evictions += sum(len(step["preempted"]) for step in steps)
    assert evictions > 50


@pytest.mark.parametrize("hybrid", [False, True])
def test_an_evicted_request_that_can_never_come_back_is_turned_away(hybrid: bool) -> None:
    """Four blocks, one of them the watermark: 33 tokens start on three, grow to four, and lose them when the pool is
    empty. The next in the queue is served.
    """
    scheduler = {"kind": "sarathi", "chunk_size": 64, "watermark": 0.25, "hybrid": hybrid}
    run = simulate(listed(scheduler, [row(33, 31), row(16, 2, arrival_ms=900)], blocks=4))
    assert rejected(run) == {"r0"}
    assert "4 KV blocks and the watermark 1" in run.records.requests.reasons[0]
    assert run.summary["completed"] == 1


def test_chunks_bound_the_gap_that_a_prompt_opens() -> None:
    """Beside one decode 511 prompt tokens fit: no gap above 10 + 51.1 + 1 ms, and the prompt takes 17 chunks."""
    requests = [row(100, 1000), row(8192, 8, arrival_ms=1000)]
    run = simulate(listed({"kind": "sarathi", "chunk_size": 512}, requests))
    assert run.summary["max_itl_ms"] == pytest.approx(62.1, abs=1e-6)
    assert ttft_ms(run, 1) == pytest.approx(1016.2, abs=1e-6)


def test_alternating_steps_cost_both_sides() -> None:
    """With chunks and decodes in turns the same prompt comes later, and a gap is a chunk and a decode of both."""
    requests = [row(100, 1000), row(8192, 8, arrival_ms=1000)]
    run = simulate(listed({"kind": "sarathi", "chunk_size": 512, "hybrid": False}, requests))
    assert run.summary["max_itl_ms"] == pytest.approx(61.2 + 12, abs=1e-6)
    assert ttft_ms(run, 1) == pytest.approx(10 + 16 * 61.2 + 15 * 11, abs=1e-6)


def test_a_prompt_holds_all_its_blocks_from_its_first_chunk() -> None:
    """A prompt of 100 blocks does not start while only 50 are free, though its first chunk needs 2."""
    requests = [row(800, 40), row(1600, 2, arrival_ms=1)]
    run = simulate(listed({"kind": "sarathi", "chunk_size": 32, "watermark": 0}, requests, blocks=103))
    assert run.records.requests.admitted_ns[1] >= run.records.requests.finished_ns[0]
