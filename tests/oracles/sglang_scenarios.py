"""Random recordings for the SGLang oracle: small pools and budgets, so that much is refused, cut and retracted.

`random_recording(seed)` draws one; the keyword arguments fix a feature instead of drawing it. The same seed and
features give the same recording. Left out is what the real scheduler gets wrong or dies of (surprises 7 and 13):
several cut prompts in one pass, and chunks that find no room; `OutOfSlotsError` still ends a few scenarios early.
"""

from __future__ import annotations

import random
from typing import Any

Recording = dict[str, Any]

POLICIES = ("fcfs", "fcfs", "lpm", "lof", "priority")


def random_recording(seed: int, **features: Any) -> Recording:
    """A recording's input (`name`, `config`, `requests`, `max_steps`) drawn from `seed`.

    Features: radix, overlap, mixed, ignore_eos, own_end, multi_turn, too_long (bool), policy (of POLICIES),
    page (tokens), requests (a count).
    """
    unknown = set(features) - set(draw_features(random.Random(0)))
    if unknown:
        raise TypeError(f"unknown features: {sorted(unknown)}")
    rng = random.Random(f"sglang-{seed}")
    drawn = {**draw_features(rng), **features}
    config = draw_config(rng, drawn)
    return {
        "name": f"random_{seed}",
        "about": ", ".join(f"{key} {value}" for key, value in drawn.items()),
        "max_steps": 6000,
        "config": config,
        "requests": draw_requests(rng, drawn, config),
    }


def draw_features(rng: random.Random) -> dict[str, Any]:
    return {
        "radix": rng.random() < 0.5,
        "overlap": rng.random() < 0.4,
        "mixed": rng.random() < 0.25,
        "policy": rng.choice(POLICIES),
        "page": rng.choice((1, 1, 1, 4, 16)),
        "ignore_eos": rng.random() < 0.25,
        "own_end": rng.random() < 0.5,
        "multi_turn": rng.random() < 0.5,
        "too_long": rng.random() < 0.1,
        "requests": rng.choice((6, 12, 25, 40)),
    }


def draw_config(rng: random.Random, drawn: dict[str, Any]) -> dict[str, Any]:
    page, policy = drawn["page"], drawn["policy"]
    config: dict[str, Any] = {
        "max_total_tokens": rng.choice((96, 128, 160, 240, 400, 800)),
        "max_running_requests": rng.choice((2, 3, 6, 10, 16)),
        "max_prefill_tokens": rng.choice((40, 64, 128, 256)),
        "chunked_prefill_size": rng.choice((32, 48, 64, 64, 128, -1)),
        "page_size": page,
        "enable_mixed_chunk": drawn["mixed"],
        "schedule_policy": "fcfs" if policy == "priority" else policy,
        "schedule_conservativeness": rng.choice((0.02, 0.05, 0.05, 0.1, 0.3, 1.0, 1.5)),
        "disable_radix_cache": not drawn["radix"],
        "overlap": drawn["overlap"],
        "prefill_max_requests": rng.choice((None, None, None, 1, 3)),
        "decay_steps": rng.choice((10, 100, 600)),
        "retract_decode_steps": rng.choice((1, 5, 20)),
        "clip_max_new_tokens": rng.choice((4096, 4096, 10, 3)),
        "prefill_decode_interval": rng.choice((0, 0, 0, 0, 1, 4)),
        "retraction_policy": "length",
    }
    if policy == "priority":
        config["enable_priority_scheduling"] = True
        config["schedule_policy"] = rng.choice(("fcfs", "fcfs", "lof"))
        config["schedule_low_priority_values_first"] = rng.random() < 0.5
        config["priority_scheduling_preemption_threshold"] = rng.choice((0, 2, 10))
        config["retraction_policy"] = rng.choice(("length", "priority"))
    if page > 1:
        config["chunked_prefill_size"] = rng.choice((32, 64, 128, -1))
    if page > 1 and drawn["mixed"] and not drawn["radix"]:
        drawn["ignore_eos"] = False  # surprise 13
    return config


def draw_requests(rng: random.Random, drawn: dict[str, Any], config: dict[str, Any]) -> list[dict[str, Any]]:
    slots = config["max_total_tokens"]
    longest = rng.choice((12, 30, slots // 3, slots // 2))
    span = rng.choice((0, 10, 40, 120))
    output = rng.choice((3, 12, 40, 60))
    arrivals = sorted(rng.randint(0, span) for _ in range(drawn["requests"]))
    rows: list[dict[str, Any]] = []
    for i, step in enumerate(arrivals):
        row: dict[str, Any] = {
            "id": f"r{i}",
            "arrival_step": step,
            "prompt_len": rng.randint(1, longest),
            "output_len": rng.randint(1, output),
        }
        add_end(rng, drawn, row)
        add_prefix(rng, drawn, rows, row)
        if drawn["policy"] == "priority":
            row["priority"] = rng.choice((0, 1, 5, 11, 12, 25))
        if drawn["too_long"] and rng.random() < 0.1:
            row["prompt_len"] = slots + rng.randint(-9, 20)
        rows.append(row)
    return rows


def add_end(rng: random.Random, drawn: dict[str, Any], row: dict[str, Any]) -> None:
    """A limit beyond the real length, or ignore_eos."""
    if drawn["own_end"] and rng.random() < 0.6:
        row["max_new"] = row["output_len"] + rng.choice((1, 5, 30, 100))
    if drawn["ignore_eos"] and rng.random() < 0.6:
        row["ignore_eos"] = True


def add_prefix(rng: random.Random, drawn: dict[str, Any], rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """A shared head, or an earlier request's prompt and output (the next turn, or the same prompt again)."""
    if not drawn["radix"] or rng.random() < 0.3:
        return
    if drawn["multi_turn"] and rows and rng.random() < 0.6:
        before = rng.choice(rows[-4:])
        whole = before["prompt_len"] + before["output_len"]
        n = rng.choice((whole, whole - 1, before["prompt_len"], rng.randint(1, whole)))
        row["prefix"] = [[f"req:{before['id']}", n]]
        row["prompt_len"] = n + rng.choice((0, 1, rng.randint(1, 20)))
    else:
        n = rng.randint(1, row["prompt_len"])
        row["prefix"] = [[rng.choice(("sys", "sys", "other")), n]]
