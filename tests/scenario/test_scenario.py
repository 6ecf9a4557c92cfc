"""Scenarios: defaults, refusals by the contract's names, changes, and what is written out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from batchsim.errors import InvalidInput
from batchsim.scenario import Scenario, load, scenario
from batchsim.schedulers.static import Static
from batchsim.workload.arrivals import Poisson

SMALL: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "cost_model": {"kind": "linear", "base_ms": 10},
    "workload": {
        "requests": 50,
        "arrivals": {"kind": "poisson", "rate_per_s": 8},
        "prompt_tokens": {"kind": "fixed", "tokens": 100},
        "output_tokens": {"kind": "fixed", "tokens": 10},
    },
}


def small(*changes: str) -> Scenario:
    """A small scenario, changed."""
    return scenario(SMALL).replace(*changes)


def refused(*changes: str) -> list[str]:
    """The problems that changes of the small scenario lead to."""
    with pytest.raises(InvalidInput) as caught:
        small(*changes)
    return [str(found) for found in caught.value.problems]


def test_absent_keys_take_the_page_s_defaults() -> None:
    """What a scenario leaves out is filled in, and shown as filled in."""
    filled = small().to_dict()
    expected = {
        "seed": 0, "tensor_parallel": 1, "dtype": "bf16", "replicas": 1, "router": {"kind": "round_robin", "retry": 0},
        "engine": None, "max_model_len": None, "slo": None, "price": None, "horizon_s": None,
        "kv_cache": {
            "block_size": 16, "gpu_memory_utilization": 0.92, "overhead_gib": 1.5, "dtype": "auto", "num_blocks": None,
        },
    }  # fmt: skip
    assert {key: filled[key] for key in expected} == expected
    assert filled["scheduler"]["kind"] == "vllm"
    assert small().engine.step_host_ms == 0


def test_a_scenario_written_out_reads_back_as_an_equal_one() -> None:
    """`to_dict` is a scenario again, equal to the first, with the same digest; one changed key changes both."""
    first = load("quickstart")
    again = scenario(first.to_dict())
    assert again == first
    assert again.digest() == first.digest()
    other = first.replace("seed=1")
    assert other != first
    assert other.digest() != first.digest()


def test_yaml_and_json_of_the_same_content_are_equal(tmp_path: Path) -> None:
    """JSON is accepted and means the same."""
    text = """
        name: s
        model: opt-13b
        gpu: a100-80-sxm
        workload: {kind: list, requests: [{id: a, arrival_ms: 0, prompt_tokens: 5, output_tokens: 2}]}
    """
    as_json = """{"name": "s", "model": "opt-13b", "gpu": "a100-80-sxm", "workload": {"kind": "list",
        "requests": [{"id": "a", "arrival_ms": 0, "prompt_tokens": 5, "output_tokens": 2}]}}"""
    (tmp_path / "s.yaml").write_text(text)
    (tmp_path / "s.json").write_text(as_json)
    assert load(tmp_path / "s.yaml") == load(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["scheduler.max_num_seqs=0"], "scheduler.max_num_seqs: 0: must be at least 1"),
        (["scheduler.max_num_batched_tokens=0"], "scheduler.max_num_batched_tokens: 0: must be at least 1"),
        (
            ["scheduler.max_num_batch_tokens=5"],
            "scheduler.max_num_batch_tokens: unknown key; did you mean 'max_num_batched_tokens'?",
        ),
        (["kv_cache.block_size=0"], "kv_cache.block_size: 0: must be at least 1"),
        (["kv_cache.num_blocks=0"], "kv_cache.num_blocks: 0: must be at least 1"),
        (["workload.arrivals.rate_per_s=0"], "workload.arrivals.rate_per_s: 0: must be above 0"),
        (
            ["workload.arrivals={kind: gamma, rate_per_s: 1, burstiness: .nan}"],
            "workload.arrivals.burstiness: .nan: must be a number",
        ),
        (
            ["scheduler.kind=guaranteed_completion"],
            "scheduler.kind: 'guaranteed_completion': unknown kind; known here: dynamic, static, vllm",
        ),
    ],
)
def test_case_a18_values_that_once_froze_or_were_ignored_are_refused(changes: list[str], told: str) -> None:
    """A18: zero rates, sizes and capacities, NaN, a misspelt key and a misspelt policy name the place, value and
    rule."""
    assert told.split("known here")[0] in refused(*changes)[0]


def test_case_a18_an_infinite_rate_needs_a_count() -> None:
    """A18: `.inf` with `requests: 50` is accepted; without requests nothing bounds it, and it is refused by its
    path."""
    assert isinstance(small("workload.arrivals.rate_per_s=.inf").workload.arrivals, Poisson)
    assert small("workload.arrivals.rate_per_s=.inf").workload.arrivals.rate_per_s == math.inf
    lengths = "prompt_tokens: {kind: fixed, tokens: 1}, output_tokens: {kind: fixed, tokens: 1}"
    (told,) = refused(f"workload={{arrivals: {{kind: constant, rate_per_s: .inf}}, {lengths}}}")
    assert told.startswith("workload.arrivals.rate_per_s: inf: all at once needs workload.requests")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("horizon=5", "horizon: unknown key; did you mean 'horizon_s'? (the name carries the unit)"),
        ("slo.ttft=5", "slo.ttft: unknown key; did you mean 'ttft_ms'? (the name carries the unit)"),
        ("slo.tpot_s=5", "slo.tpot_s: unknown key; did you mean 'tpot_ms'? (the name carries the unit)"),
        ("price={gpu: 2}", "price.gpu: unknown key; did you mean 'gpu_hour'? (the name carries the unit)"),
        (
            "kv_cache.overhead=1",
            "kv_cache.overhead: unknown key; did you mean 'overhead_gib'? (the name carries the unit)",
        ),
        (
            "workload.arrivals.rate=5",
            "workload.arrivals.rate: unknown key; did you mean 'rate_per_s'? (the name carries the unit)",
        ),
        (
            "workload.duration=5",
            "workload.duration: unknown key; did you mean 'duration_s'? (the name carries the unit)",
        ),
        (
            "engine={step_host: 1}",
            "engine.step_host: unknown key; did you mean 'step_host_ms'? (the name carries the unit)",
        ),
        ("cost_model.base=1", "cost_model.base: unknown key; did you mean 'base_ms'? (the name carries the unit)"),
    ],
)
def test_case_a09_a_key_without_its_unit_is_refused_with_the_right_name(change: str, told: str) -> None:
    """A09: keys carry their unit; without it, or with another, the key is refused and the right one named."""
    assert told in refused(change)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("scheduler.skip_blocked=true", "scheduler.skip_blocked: not available in this version"),
    ],
)
def test_what_the_page_names_and_this_version_lacks_is_not_available(change: str, told: str) -> None:
    """A key or kind of the page that is not built yet is refused as not available, never ignored or called
    unknown."""
    assert refused(change)[0].startswith(told)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model=lama-3.1-8b", "model: lama-3.1-8b: unknown model; did you mean 'llama-3.1-8b'?"),
        ("gpu=h100-smx", "gpu: h100-smx: unknown gpu; did you mean 'h100-sxm'?"),
        ("engine=vllm-0.91", "engine: vllm-0.91: unknown engine; did you mean 'vllm-0.19'?"),
        ("model=3", "model: 3: must be a name of the catalogue, or a mapping"),
        ("gpu=null", "gpu: missing"),
        ("workload=null", "workload: missing"),
        ("workload=3", "workload: 3: must be a mapping (key: value)"),
        ("workload.kind=lst", "workload.kind: 'lst': unknown kind; did you mean 'list'?"),
        ("scheduler=vllm", "scheduler: 'vllm': must be a mapping with a kind"),
        ("scheduler.kind=3", "scheduler.kind: 3: must be text"),
        ("scheduler.kind=nowhere.at.all:Mine", "scheduler.kind: nowhere.at.all:Mine: cannot import 'nowhere.at.all'"),
        ("scheduler.kind='.rel:Mine'", "scheduler.kind: '.rel:Mine': cannot be imported"),
        ("scheduler.kind=fractions:Fraction", "scheduler.kind: 'fractions:Fraction': must name a dataclass"),
        ("seed=-1", "seed: -1: must be at least 0"),
        ("seed=1.5", "seed: 1.5: must be a whole number"),
        ("dtype=int4", "dtype: 'int4': must be one of 'bf16', 'fp16', 'fp8'"),
        ("slo={}", "slo: give at least one of ttft_ms"),
        ("horizon_s=0", "horizon_s: 0: must be above 0"),
        ("horizon_s=.inf", "horizon_s: .inf: must be finite"),
        ("replicas=1e20", "replicas: 100000000000000000000: is too large"),
        ("shceduler={kind: static}", "shceduler: unknown key; did you mean 'scheduler'?"),
    ],
)
def test_other_refusals(change: str, told: str) -> None:
    """Names, kinds, types and bounds of the top level."""
    assert any(found.startswith(told) for found in refused(change)), refused(change)


def test_contradictory_seats_and_budget_are_refused_and_one_alone_pulls_the_other() -> None:
    """vLLM: both given and contradictory are refused; given one, the default of the other is clamped to fit,
    presets too."""
    both = refused("scheduler.max_num_seqs=64", "scheduler.max_num_batched_tokens=32")
    assert both == ["scheduler: max_num_batched_tokens 32 must be at least max_num_seqs 64"]
    assert small("scheduler.kind=vllm", "scheduler.max_num_batched_tokens=32").scheduler.max_num_seqs == 32
    assert small("scheduler.kind=vllm", "scheduler.max_num_seqs=9000").scheduler.max_num_batched_tokens == 9000
    preset = small("engine=vllm-0.32", "scheduler={kind: vllm, max_num_batched_tokens: 512}").scheduler
    assert (preset.max_num_seqs, preset.max_num_batched_tokens) == (512, 512)


def test_an_engine_preset_speaks_where_the_file_is_silent() -> None:
    """vllm-0.32 on an H100 has 1024 seats, on an L4 256 and a budget of 2048; a given key wins; static takes none
    of it."""
    h100 = small("engine=vllm-0.32").scheduler
    assert (h100.max_num_seqs, h100.max_num_batched_tokens) == (1024, 8192)
    l4 = small("engine=vllm-0.32", "gpu=l4").scheduler
    assert (l4.max_num_seqs, l4.max_num_batched_tokens) == (256, 2048)
    assert small("engine=vllm-0.32", "scheduler={kind: vllm, max_num_seqs: 7}").scheduler.max_num_seqs == 7
    assert small("engine=vllm-0.32", "scheduler={kind: static}").scheduler == Static()
    assert small("engine=vllm-0.19").kv_cache.gpu_memory_utilization == 0.9


def test_changing_the_kind_drops_the_keys_that_it_lacks_and_says_so() -> None:
    """From vllm to static, max_num_seqs falls away with a warning that names it; a key set at the same time stays."""
    base = small("scheduler={kind: vllm, max_num_seqs: 8, watermark: 0.1}")
    static = base.replace("scheduler.batch_size=4", "scheduler.kind=static")
    assert static.scheduler == Static(batch_size=4)
    assert static.warnings == ("scheduler.kind: static has no max_num_seqs, watermark: left out",)
    assert base.replace({"workload.arrivals.kind": "burst"}).warnings == (
        "workload.arrivals.kind: burst has no rate_per_s: left out",
    )
    with pytest.raises(InvalidInput, match=r"scheduler\.max_num_seqs: unknown key"):
        base.replace("scheduler.kind=static", "scheduler.max_num_seqs=8")


@pytest.mark.parametrize("change", ["x", "=3", "a..b=1", "a[x]=1", "scheduler.=1", "seed=[1", "a.b[99999999]=1"])
def test_a_change_that_is_no_change_is_refused(change: str) -> None:
    """`--set` takes KEY=VALUE with a dotted key and a YAML value."""
    with pytest.raises(InvalidInput):
        small(change)


def test_a_change_reaches_into_lists() -> None:
    """List entries are reached by number, with a dot or in brackets; beyond the end is refused."""
    listed = scenario(
        SMALL
        | {
            "workload": {
                "kind": "list",
                "requests": [{"arrival_ms": 0, "prompt_tokens": 5, "output_tokens": n} for n in (1, 2)],
            }
        }
    )
    changed = listed.replace("workload.requests.0.output_tokens=7", "workload.requests[1].output_tokens=8")
    assert [request.output_tokens for request in changed.workload.requests] == [7, 8]
    with pytest.raises(InvalidInput, match="is a list of 2: no entry 5"):
        listed.replace("workload.requests.5.output_tokens=7")


def test_a_scenario_cannot_be_changed_behind_its_back() -> None:
    """Changing the mapping that a scenario was made from, or what it gave out, changes nothing in it."""
    given = {**SMALL, "scheduler": {"kind": "vllm", "max_num_seqs": 8}}
    made = scenario(given)
    before = made.digest()
    given["scheduler"]["max_num_seqs"] = 9  # type: ignore[index]
    made.to_dict()["scheduler"]["max_num_seqs"] = 10
    assert made.digest() == before


def test_all_problems_of_a_file_are_told_at_once_with_where_they_come_from(tmp_path: Path) -> None:
    """Mistakes in five sections are five lines, with the file's name below."""
    file = tmp_path / "bad.yaml"
    file.write_text(
        "model: nope\ngpu: h100-sxm\nseed: x\nkv_cache: {block_size: 0}\nscheduler: {kind: vllm, max_num_seqs: -1}\n"
        "workload: {requests: 0, arrivals: {kind: burst}, prompt_tokens: {kind: fixed, tokens: 1},"
        " output_tokens: {kind: fixed, tokens: 1}}\n"
    )
    with pytest.raises(InvalidInput) as caught:
        load(file)
    assert len(caught.value.problems) == 5
    assert caught.value.note == str(file)


def test_shipped_scenarios_are_found_by_name_and_a_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`quickstart` and `scenarios/quickstart.yaml` work in any folder; a file of that name there is taken first."""
    monkeypatch.chdir(tmp_path)
    shipped = load("quickstart")
    assert load("scenarios/quickstart.yaml") == shipped
    (tmp_path / "scenarios").mkdir()
    Path("scenarios/quickstart.yaml").write_text("model: nope")
    with pytest.raises(InvalidInput):
        load("scenarios/quickstart.yaml")
    with pytest.raises(InvalidInput, match="no shipped scenario; did you mean 'quickstart'"):
        load("quickstat")
    with pytest.raises(InvalidInput, match="is a folder"):
        load(tmp_path)


def test_a_path_in_the_file_starts_at_the_file_and_one_set_starts_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace beside the scenario is found from anywhere; `--set workload.path` is relative to the current folder."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,2\n")
    file = tmp_path / "a" / "s.yaml"
    file.write_text("model: opt-13b\ngpu: a100-80-sxm\nworkload: {kind: trace, path: t.csv}\n")
    monkeypatch.chdir(tmp_path)
    from batchsim.scenario import resolve

    assert len(resolve(load(file)).draw()) == 1
    assert len(resolve(load(file, ["workload.path=a/t.csv"])).draw()) == 1
