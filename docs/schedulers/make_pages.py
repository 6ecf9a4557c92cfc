"""Makes what the pages of schedulers take from the code: `python docs/schedulers/make_pages.py` rewrites them in place.

The table of parameters of each page, between its two markers, and docs/reference/schedulers.md as a whole. What a policy
reads, evicts and shares is found out by running it, with each option that is a word or a flag tried by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from batchsim.cli.listing import Listed, Parameter, entries
from batchsim.errors import InvalidInput
from batchsim.scenario import kinds
from batchsim.scenario.check import fields_model
from batchsim.scenario.scenario import scenario
from batchsim.simulation import simulate

HERE = Path(__file__).parent
REFERENCE = HERE.parent / "reference" / "schedulers.md"
BEGIN, END = "<!-- parameters: made by make_pages.py -->", "<!-- end of parameters -->"
MARKED = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)

UNITS = {
    "max_num_seqs": "requests", "max_num_active_seqs": "requests", "max_num_queued_reqs": "requests",
    "batch_size": "requests", "max_batch_size": "requests", "preferred_batch_size": "requests",
    "max_queue": "requests", "max_queue_size": "requests", "max_concurrent_requests": "requests",
    "max_running_requests": "requests", "max_queued_requests": "requests", "prefill_max_requests": "requests",
    "max_overtakes": "requests", "priority_levels": "levels", "default_priority_level": "level",
    "priority_scheduling_preemption_threshold": "steps of priority",
    "long_prefill_token_threshold": "tokens", "chunk_size": "tokens", "chunked_prefill_size": "tokens",
    "page_size": "tokens", "quanta": "output tokens", "clip_max_new_tokens_estimation": "tokens",
    "retract_decode_steps": "tokens", "in_batch_prefix_caching_check_threshold": "tokens",
    "in_batch_prefix_caching_deprioritize_threshold": "tokens",
    "max_waiting_tokens": "steps", "prefill_decode_interval": "steps", "new_token_ratio_decay_steps": "steps",
    "watermark": "share of the pool", "init_new_token_ratio": "share", "min_new_token_ratio_factor": "share",
    "waiting_served_ratio": "per running request", "scheduler_delay_factor": "last prompt steps",
    "prompt_weight": "output tokens per prompt token", "input_weight": "per token", "output_weight": "per token",
    "aging_tokens_per_s": "tokens/s", "prefill_token_ms": "ms per token", "error": "standard deviation of the log",
    "predictor_seed": "", "schedule_conservativeness": "factor",
}  # fmt: skip
"""Units of the keys whose names do not end in theirs; empty: a pure number."""
BY_HAND = ("sglang",)
"""Pages with a table that was written for them."""
ENDINGS = {"_ms": "ms", "_s": "s", "_tokens": "tokens"}
SEATS = ("max_num_seqs", "max_batch_size", "max_running_requests", "batch_size")

INTRO = """# All schedulers

Made by `python docs/schedulers/make_pages.py`; a test holds it against the code. `scheduler.kind` names one; each has its
page. `batchsim list schedulers` prints them with bounds.

- *reads lengths*: it knows how long answers will be, which no server does; every result says so.
- *evicts for memory*, *evicts for a seat*: found by running it short of KV blocks, and with one seat and an urgent request
  that comes late.
- *shares prefixes*: the KV of equal prompt beginnings is computed once.
- A condition in brackets is the option that it takes, where the default does not.

| kind | what it does | reads lengths | evicts for memory | evicts for a seat | shares prefixes |
|---|---|---|---|---|---|
"""


def unit(parameter: Parameter) -> str:
    """The unit of a parameter; KeyError for a number that has none here."""
    if parameter.name in UNITS:
        return UNITS[parameter.name] or "–"
    for ending, name in ENDINGS.items():
        if parameter.name.endswith(ending):
            return name
    if "number" in parameter.type:
        raise KeyError(f"{parameter.name}: no unit in make_pages.UNITS")
    return "–"


def parameters(entry: Listed) -> str:
    """The table of a scheduler's parameters, with the markers around it."""
    rows = [BEGIN, "| key | values | default | unit | meaning |", "|---|---|---|---|---|"]
    for each in entry.parameters:
        values = each.type.replace(" or null", "").replace(" | ", ", ").replace(" ≤", ", ≤").replace(" <", ", <")
        default = "must be given" if each.default is None else {"null": "absent"}.get(each.default, each.default)
        rows.append(f"| `{each.name}` | {values} | {default} | {unit(each)} | {each.meaning} |")
    return "\n".join([*rows, END])


def page(kind: str) -> Path:
    """Where a scheduler's page is."""
    return HERE / f"{kind}.md"


def with_parameters(text: str, entry: Listed) -> str:
    """A page with its table made anew; ValueError where the markers are missing."""
    made, count = MARKED.subn(lambda _: parameters(entry), text)
    if count != 1:
        raise ValueError(f"{entry.name}: the page has {count} pairs of markers")
    return made


def options(kind: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The default, and each value of an option that is a word or a flag, tried by itself: (in words, keys)."""
    yield "", {}
    schema = fields_model(kinds.find("scheduler", kind)).model_json_schema()
    for key, value in schema["properties"].items():
        if key == "kind":
            continue
        branches = [value, *value.get("anyOf", [])]
        words = [word for branch in branches for word in branch.get("enum", [])]
        flags = [not value["default"]] if value.get("type") == "boolean" else []
        for choice in [*words, *flags]:
            if choice != value.get("default"):
                yield f"`{key}: {str(choice).lower() if isinstance(choice, bool) else choice}`", {key: choice}


def summary(kind: str, keys: Mapping[str, Any], requests: list[dict[str, Any]], blocks: int) -> Mapping[str, Any]:
    """The summary of a small run."""
    rows = [{"id": f"r{place}", "arrival_ms": 0, **row} for place, row in enumerate(requests)]
    return simulate(scenario({
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "engine": {"overhead_ms": 0},
        "cost_model": {"kind": "linear", "base_ms": 1}, "kv_cache": {"block_size": 16, "num_blocks": blocks},
        "scheduler": {"kind": kind, **keys}, "workload": {"kind": "list", "requests": rows},
    })).summary  # fmt: skip


def reads_lengths(kind: str, keys: Mapping[str, Any]) -> bool:
    """Whether it is an oracle."""
    return bool(getattr(kinds.find("scheduler", kind)(**keys), "oracle", False))


def evicts_for_memory(kind: str, keys: Mapping[str, Any]) -> bool:
    """Whether somebody is evicted where answers outgrow the pool."""
    growing = [{"arrival_ms": 3 * place, "prompt_tokens": 20 + place % 7, "output_tokens": 150, "max_tokens": 150}
               for place in range(40)]  # fmt: skip
    return bool(summary(kind, keys, growing, 80)["preemptions"])


def evicts_for_a_seat(kind: str, keys: Mapping[str, Any]) -> bool:
    """Whether an urgent request takes the one seat, with memory for all."""
    has = {parameter.name for parameter in BY_KIND[kind].parameters}
    one = {key: 1 for key in SEATS if key in has}
    long = {"prompt_tokens": 20, "output_tokens": 300, "max_tokens": 300, "priority": 20}
    urgent = {"prompt_tokens": 20, "output_tokens": 5, "max_tokens": 5, "priority": 1, "arrival_ms": 50}
    return bool(summary(kind, {**one, **keys}, [long, urgent], 10_000)["preemptions"])


def shares_prefixes(kind: str, keys: Mapping[str, Any]) -> bool:
    """Whether the second of two equal prompts hits the first one's KV."""
    same = {"prompt_tokens": 200, "output_tokens": 2, "prefix": [["system", 160]]}
    found = summary(kind, keys, [same, {**same, "arrival_ms": 500}], 10_000)
    return bool(found["prefix_hit_tokens"])


BY_KIND = {entry.name: entry for entry in entries("schedulers")}
TRIALS: tuple[Callable[[str, Mapping[str, Any]], bool], ...] = (
    reads_lengths,
    evicts_for_memory,
    evicts_for_a_seat,
    shares_prefixes,
)


def verdict(kind: str, trial: Callable[[str, Mapping[str, Any]], bool]) -> str:
    """Yes or no by default, or the options that change a no."""
    found = []
    for words, keys in options(kind):
        try:
            answer = trial(kind, keys)
        except InvalidInput:  # an option that needs another one with it
            continue
        if answer and not words:
            return "yes"
        if answer:
            found.append(words)
    return f"no ({', '.join(found)})" if found else "no"


def reference() -> str:
    """docs/reference/schedulers.md."""
    rows = []
    for kind, entry in BY_KIND.items():
        cells = [f"[`{kind}`](../schedulers/{kind}.md)", entry.line, *(verdict(kind, trial) for trial in TRIALS)]
        rows.append(f"| {' | '.join(cells)} |")
    lists = ["", "## Their parameters", "", "| kind | keys |", "|---|---|"]
    for kind, entry in BY_KIND.items():
        lists.append(f"| `{kind}` | {', '.join(f'`{each.name}`' for each in entry.parameters)} |")
    return INTRO + "\n".join([*rows, *lists]) + "\n"


def main() -> None:
    """Rewrite all pages."""
    for kind, entry in BY_KIND.items():
        if kind in BY_HAND:
            continue
        text = page(kind).read_text(encoding="utf-8")
        page(kind).write_text(with_parameters(text, entry), encoding="utf-8")
    REFERENCE.write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
