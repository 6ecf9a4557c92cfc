"""Whatever is written in a scenario file or after `--set`, the answer is a scenario or a refusal, never another
error."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batchsim.errors import InvalidInput
from batchsim.scenario import Scenario, json_schema, load, scenario
from batchsim.scenario.text import parse

LENGTH = {"kind": "lognormal", "mean": 100, "p99": 300}
VALID: list[dict[str, Any]] = [
    {
        "name": "a", "seed": 1, "model": "llama-3.1-8b", "gpu": "h100-sxm", "engine": "vllm-0.19", "dtype": "fp8",
        "tensor_parallel": 2, "replicas": 3, "router": {"kind": "round_robin"}, "max_model_len": 4096, "horizon_s": 60,
        "cost_model": {"kind": "calibrated"}, "kv_cache": {"block_size": 32, "num_blocks": 500},
        "scheduler": {"kind": "vllm", "max_num_seqs": 64, "policy": "priority"},
        "workload": {
            "requests": 10, "arrivals": {"kind": "gamma", "rate_per_s": 2.0, "burstiness": 0.5},
            "prompt_tokens": LENGTH, "output_tokens": {"kind": "fixed", "tokens": 4}, "max_tokens": 5,
        },
        "slo": {"ttft_ms": 500, "percentile": 95}, "price": {"gpu_hour": 2.5},
    },
    {
        "model": "opt-13b", "gpu": "a100-80-sxm", "cost_model": {"kind": "linear", "base_ms": 10, "decode_seq_ms": 0.5},
        "scheduler": {"kind": "dynamic", "max_batch_size": 8, "preferred_batch_size": [4, 8], "max_queue_delay_ms": 5},
        "workload": {
            "kind": "list",
            "requests": [
                {"id": "x", "arrival_ms": 0, "prompt_tokens": 9, "output_tokens": 3, "max_tokens": 8, "tenant": "t"},
                {"id": "y", "arrival_ms": 2.5, "prompt_tokens": 9, "output_tokens": 3, "prefix": [["req:x", 5]]},
            ],
        },
    },
    {
        "model": "qwen3-8b", "gpu": {"bf16_dense_tflops": 900, "hbm_gb_per_s": 3000, "memory_gib_cuda_visible": 79},
        "engine": {"overhead_ms": 1}, "cost_model": {"kind": "roofline"},
        "scheduler": {"kind": "static", "batch_size": 4},
        "workload": {
            "duration_s": 5, "arrivals": {"kind": "piecewise", "segments": [{"duration_s": 2, "rate_per_s": 3}]},
            "mix": [
                {"name": "c", "share": 0.75, "prompt_tokens": LENGTH, "output_tokens": LENGTH, "slo": {"tpot_ms": 9}},
                {"name": "d", "share": 0.25, "prompt_tokens": LENGTH, "output_tokens": LENGTH, "priority": 3},
            ],
        },
    },
]  # fmt: skip

WORDS = st.sampled_from(
    [
        "kind",
        "requests",
        "vllm",
        "static",
        "poisson",
        "scheduler",
        "rate_per_s",
        "tokens",
        "mean",
        "slo",
        "a:b",
        "",
        "r\u0301",
    ]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.sampled_from([10**19, -(10**30), 2**63 - 1]),
    st.floats(), st.sampled_from([math.inf, -math.inf, math.nan, 1e308, 5e-324, 0.0, -0.0]), WORDS, st.text(max_size=6),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, child in children for deeper in places(child, (*path, key)))]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    """What stands at a path."""
    for step in path:
        value = value[step]
    return value


@st.composite
def mutations(draw: st.DrawFn) -> dict[str, Any]:
    """A valid scenario in which one to three things were replaced, removed, renamed or added."""
    mutated = copy.deepcopy(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 3))):
        action = draw(st.sampled_from(["nudge", "nudge", "nudge", "replace", "remove", "rename", "add"]))
        numbers = [path for path in places(mutated) if type(at(mutated, path)) in (int, float)]
        path = draw(st.sampled_from(numbers if action == "nudge" and numbers else places(mutated)))
        parent = at(mutated, path[:-1])
        if not path:
            mutated[draw(WORDS)] = draw(VALUES)
        elif action == "nudge":
            parent[path[-1]] = draw(st.sampled_from([1, 2, 3, 16, 1000, 0.5, 2.5]))
        elif action == "remove":
            del parent[path[-1]]
        elif action == "rename" and isinstance(parent, dict):
            parent[str(path[-1])[:-1]] = parent.pop(path[-1])
        elif action == "add" and isinstance(parent[path[-1]], dict):
            parent[path[-1]][draw(WORDS)] = draw(VALUES)
        else:
            parent[path[-1]] = draw(VALUES)
    return mutated


def made_or_refused(make: Any) -> Scenario | None:
    """The scenario that `make` makes, or None where it was refused with at least one problem that has a rule."""
    try:
        made: Scenario = make()
    except InvalidInput as error:
        refusal = error
    else:
        return made
    assert refusal.problems
    assert all(found.rule and str(found).isprintable() for found in refusal.problems)
    return None


@pytest.mark.parametrize("valid", VALID)
def test_the_seeds_of_the_fuzzing_are_valid(valid: dict[str, Any]) -> None:
    """The mutated scenarios start from valid ones."""
    assert isinstance(scenario(valid), Scenario)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutations())
def test_a_mutated_scenario_is_refused_or_reads_back_equal(mutated: dict[str, Any]) -> None:
    """Only InvalidInput is raised; what is accepted can be written out and read back as an equal scenario."""
    made = made_or_refused(lambda: scenario(mutated))
    if made is not None:
        assert scenario(made.to_dict()) == made


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([".".join(map(str, path)) for valid in VALID for path in places(valid) if path])
    | st.text(max_size=12),
    st.sampled_from(["=", "= ", "", "=="]),
    st.text(max_size=12)
    | SCALARS.map(str)
    | st.sampled_from(["{kind: static}", "[1, 2", "&a [*a]", "!!int x", "1e400"]),
)
@example("scheduler.kind", "=", "._:X")
@example("workload.arrivals.kind", "=", "closed")
@example("seed", "=", "9" * 5000)
@example("0\n0", "=", "1")
@example("model", "=", '"a\\nb"')
def test_whatever_is_set_is_a_scenario_or_a_refusal(key: str, equals: str, value: str) -> None:
    """`--set` with any key and any value raises nothing but InvalidInput."""
    made_or_refused(lambda: load("quickstart", [key + equals + value]))


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=60) | st.text(alphabet="{}[]:,-&*!?|>'\"#% \n\tab01.e~<", max_size=60), st.booleans()
)  # fmt: skip
def test_any_text_is_a_plain_value_or_a_refusal(text: str, is_json: bool) -> None:
    """Random text, YAML's own punctuation above all, raises nothing but InvalidInput."""
    try:
        value = parse(text, "f", is_json=is_json)
    except InvalidInput:
        return
    assert value is None or isinstance(value, (bool, int, float, str, list, dict))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutations())
def test_the_schema_accepts_what_the_loader_accepts(mutated: dict[str, Any]) -> None:
    """A mutated scenario that loads is valid under the JSON Schema."""
    if made_or_refused(lambda: scenario(mutated)) is not None:
        assert list(VALIDATOR.iter_errors(mutated)) == []


def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json_schema())


VALIDATOR = _validator()
