"""With one rule of an engine broken, the random scenarios of its tests take another course: the fuzz notices each.

The true oracles are held against batchsim on the same scenarios, in the tests named after the engines.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.oracles import sarathi, tensorrt, tgi, vllm_v0
from tests.oracles.engine_rules import SarathiRules, TensorrtRules, TgiRules, V0Rules, mutants
from tests.oracles.scenarios import random_sarathi_recording
from tests.schedulers import test_sarathi, test_tensorrt_llm, test_tgi, test_vllm_v0
from tests.schedulers.runs import random_case

Case = dict[str, Any]
Course = Callable[[Case], Any]
SARATHI, TGI, TENSORRT, V0 = (mutants(rules) for rules in (SarathiRules, TgiRules, TensorrtRules, V0Rules))


def noticed(cases: Iterator[Case], true: Course, broken: Course) -> bool:
    """Whether a scenario goes otherwise; a mutant that comes to use more blocks than there are does, too."""
    for case in cases:
        expected = true(case)
        try:
            if broken(case) != expected:
                return True
        except AssertionError:
            return True
    return False


def sarathi_cases() -> Iterator[Case]:
    """Those of `test_random_scenarios_go_as_in_the_oracle` and of `test_a_crowd_stops_at_the_watermark`."""
    for seed in range(200):
        for policy in test_sarathi.POLICIES:
            yield random_sarathi_recording(seed, policy)
    for seed in range(30):
        for policy in ("sarathi", "vllm"):
            yield test_sarathi.crowded_recording(seed, policy)


def tgi_cases() -> Iterator[Case]:
    """Those of `test_tgi.test_every_step_is_the_oracle_s`."""
    for seed in range(200):
        for chunking in (True, False):
            yield random_case(seed, test_tgi.random_scheduler(random.Random(f"tgi {seed}"), chunking))


def tensorrt_cases() -> Iterator[Case]:
    """Those of `test_tensorrt_llm.test_every_step_is_the_oracle_s`."""
    for seed in range(200):
        for policy in test_tensorrt_llm.POLICIES:
            yield random_case(seed, test_tensorrt_llm.random_scheduler(random.Random(f"trt {seed}"), policy))


def v0_cases() -> Iterator[Case]:
    """Those of `test_vllm_v0.test_every_step_is_the_oracle_s`."""
    for seed in range(300):
        yield test_vllm_v0.random_v0_case(seed)


def alternating_cases() -> Iterator[Case]:
    """Those of `test_sarathi.test_alternating_steps_are_the_oracle_s`."""
    for seed in range(200):
        yield test_sarathi.alternating_case(seed)


def compared(recording: Mapping[str, Any], rules: SarathiRules | None = None) -> Any:
    """What a replay returns of the oracle's steps."""
    return test_sarathi.compared(sarathi.run(recording, rules))


@pytest.mark.parametrize("name", SARATHI)
def test_every_rule_of_sarathi_shows(name: str) -> None:
    """In one of the scenarios of its four policies."""
    assert noticed(sarathi_cases(), compared, lambda case: compared(case, SARATHI[name]))


@pytest.mark.parametrize("name", TGI)
def test_every_rule_of_tgi_shows(name: str) -> None:
    """In one of the scenarios of both modes."""
    assert noticed(tgi_cases(), tgi.run, lambda case: tgi.run(case, TGI[name]))


@pytest.mark.parametrize("name", TENSORRT)
def test_every_rule_of_tensorrt_llm_shows(name: str) -> None:
    """In one of the scenarios of the three policies."""
    assert noticed(tensorrt_cases(), tensorrt.run, lambda case: tensorrt.run(case, TENSORRT[name]))


@pytest.mark.parametrize("name", V0)
def test_every_rule_of_the_original_vllm_shows(name: str) -> None:
    """In one of its scenarios, or of Sarathi-Serve's alternating steps, which share its rules of eviction."""
    alternating = vllm_v0.Alternating
    assert noticed(v0_cases(), vllm_v0.run, lambda case: vllm_v0.run(case, rules=V0[name])) or noticed(
        alternating_cases(),
        lambda case: vllm_v0.run(case, alternating),
        lambda case: vllm_v0.run(case, alternating, V0[name]),
    )


def test_no_mutant_is_the_true_scheduler() -> None:
    """Each breaks exactly one rule, and no two break the same."""
    for rules, broken in ((SarathiRules, SARATHI), (TgiRules, TGI), (TensorrtRules, TENSORRT), (V0Rules, V0)):
        assert len({*broken.values(), rules()}) == len(broken) + 1
