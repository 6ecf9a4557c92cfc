"""Names, sources and figures of the catalogue; engine presets; profiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from batchsim import catalog
from batchsim.catalog import Engine, Gpu
from batchsim.errors import InvalidInput

GPUS = [
    "a10",
    "a10g",
    "l4",
    "l40s",
    "a40",
    "a100-40-sxm",
    "a100-80-sxm",
    "a100-80-pcie",
    "h100-pcie",
    "h100-sxm",
    "h100-nvl",
    "h200-sxm",
    "b200-sxm",
    "mi300x",
    "rtx-4090",
    "rtx-5090",
    "rtx-pro-6000",
]
ENGINES = ["none", "vllm-0.11", "vllm-0.15", "vllm-0.19", "vllm-0.32", "vllm-v0", "sglang", "tensorrt-llm"]
FINDERS = {"gpus": catalog.gpu, "models": catalog.model, "engines": catalog.engine, "profiles": catalog.profile}


def test_every_promised_name_is_there() -> None:
    """The GPUs and engines that the scenario page names are in the catalogue, and no others."""
    assert catalog.names("gpus") == GPUS
    assert catalog.names("engines") == ENGINES
    assert catalog.names("profiles") == GPUS


@pytest.mark.parametrize("kind", list(FINDERS))
def test_every_entry_is_valid_and_names_its_source(kind: str) -> None:
    """Each entry of the data files passes its own checks, is in lower case with hyphens, and says where it is from."""
    for name in catalog.names(kind):
        entry = FINDERS[kind](name)
        assert entry is not None
        assert entry.name == name == name.lower()
        assert " " not in name
        assert entry.source != "inline"
        assert "recalled" not in entry.source


def test_hub_ids_aliases_and_case() -> None:
    """A hub id or an alias means the catalogue's entry, whatever the case."""
    assert catalog.model("META-LLAMA/Llama-3.1-8B") == catalog.model("llama-3.1-8b")
    assert catalog.gpu("H100") == catalog.gpu("h100-sxm")
    for kind in ("gpus", "models"):
        for name in catalog.names(kind):
            entry = FINDERS[kind](name)
            assert entry is not None
            assert all(FINDERS[kind](alias.upper()) == entry for alias in entry.aliases)


@pytest.mark.parametrize(
    ("find", "name", "message"),
    [
        (catalog.model, "llama-3.1-8", "model: llama-3.1-8: unknown model; did you mean 'llama-3.1-8b'?"),
        (catalog.gpu, "h100-sx", "gpu: h100-sx: unknown gpu; did you mean 'h100-sxm'?"),
        (catalog.engine, "vllm-0.33", "engine: vllm-0.33: unknown engine; did you mean 'vllm-0.32'?"),
        (catalog.gpu, "quantum", "gpu: quantum: unknown gpu; `batchsim list gpus` shows them"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(find: object, name: str, message: str) -> None:
    """The refusal says where, what, and the nearest name, or how to see all of them."""
    with pytest.raises(InvalidInput) as refused:
        find(name)  # type: ignore[operator]
    assert str(refused.value) == message


def test_gpu_figures_are_those_of_the_shared_data(data: Path) -> None:
    """Peaks and memory stand in the catalogue as in the shared data."""
    shared = yaml.safe_load((data / "data/catalog/gpus.yaml").read_text())
    assert len(shared) == len(GPUS)
    for name, figures in shared.items():
        gpu = catalog.gpu(name)
        for key, value in figures.items():
            if key not in {"fit", "source"}:
                assert getattr(gpu, key) == (pytest.approx(value, rel=1e-4) if value is not None else None), (name, key)


def test_an_inline_gpu_needs_its_memory() -> None:
    """CUDA's GiB win over the datasheet's GB, which alone are taken as 10^9 bytes; neither is refused."""
    peaks = {"bf16_dense_tflops": 100, "hbm_gb_per_s": 1000}
    assert Gpu(**peaks, memory_gb_datasheet=16).visible_bytes == 16 * 10**9
    assert Gpu(**peaks, memory_gb_datasheet=16, memory_gib_cuda_visible=16).visible_bytes == 16 * 2**30
    with pytest.raises(ValidationError, match="memory_gib_cuda_visible"):
        Gpu.model_validate(peaks)
    with pytest.raises(ValidationError, match="memory_gib"):
        Gpu.model_validate({**peaks, "memory_gib": 16})


def test_an_absent_engine_and_none_cost_nothing() -> None:
    """No engine and the preset `none` add no host time; overhead_ms is another name for step_host_ms."""
    for engine in (Engine(), catalog.engine("none"), Engine.model_validate({"overhead_ms": 0})):
        assert (engine.step_host_fs(), engine.seq_host_fs(catalog.model("qwen3-8b"))) == (0, 0)
        assert engine.ingress_ms == 0
        assert not engine.async_scheduling
        assert engine.scheduler_defaults(catalog.gpu("h100-sxm")) == {}
    assert Engine.model_validate({"overhead_ms": 1.5}) == Engine(step_host_ms=1.5)


def test_sampling_scales_with_the_vocabulary() -> None:
    """78 us a sequence at a vocabulary of 152,000 is half of that at 76,000; without a reference it holds for any."""
    model = catalog.model("llama-2-7b")
    assert Engine(sample_us_per_seq=78, sample_vocab=64_000).seq_host_fs(model) == 39 * 10**9
    assert Engine(sample_us_per_seq=78).seq_host_fs(model) == 78 * 10**9


@pytest.mark.parametrize(
    ("gpu", "seats", "budget"),
    [("a100-80-sxm", 256, 2048), ("h100-sxm", 1024, 8192), ("h200-sxm", 1024, 8192), ("b200-sxm", 1024, 16384),
     ("l40s", 256, 2048), ("rtx-pro-6000", 1024, 8192), ("mi300x", 1024, 16384)],
)  # fmt: skip
def test_vllm_seats_and_budget_by_memory(gpu: str, seats: int, budget: int) -> None:
    """vLLM 0.32 as a server: 1024 seats from 70 GiB, the A100 left out; budgets 16384 from 160 GiB, 8192, else 2048."""
    settings = catalog.engine("vllm-0.32").scheduler_defaults(catalog.gpu(gpu))
    assert (settings["max_num_seqs"], settings["max_num_batched_tokens"]) == (seats, budget)


def test_a_profile_says_how_far_it_was_measured() -> None:
    """Fitted profiles carry their held-out error and range; borrowed ones name the lender and claim no error."""
    for name in GPUS:
        profile = catalog.profile(name)
        assert profile is not None
        assert profile.gpu == name
        if profile.status == "fitted":
            assert profile.mape_percent is not None
            assert profile.range.decode_seqs is not None
            assert profile.borrowed_from is None
        else:
            assert profile.mape_percent is None
            assert profile.borrowed_from in GPUS
    assert catalog.profile("no-such-gpu") is None


def test_profiles_agree_with_the_shared_sets(data: Path) -> None:
    """The shipped sets, fitted here, are within 35 % of the efficiencies that another fit of the same tables found."""
    shared = yaml.safe_load((data / "data/catalog/gpus.yaml").read_text())
    keys = {
        "eff_mem": "memory_efficiency",
        "eff_compute": "compute_efficiency",
        "eff_attn_prefill": "attention_prefill_efficiency",
        "eff_attn_decode_bw": "attention_decode_efficiency",
    }
    for name in ("A100-80-SXM", "H100-SXM", "H200", "B200", "L40S"):
        profile = catalog.profile(name)
        for theirs, ours in keys.items():
            assert getattr(profile, ours) == pytest.approx(shared[name]["fit"][theirs], rel=0.35), (name, ours)


def test_a_profile_file_is_checked(tmp_path: Path) -> None:
    """A profile's file that is missing, not YAML, or has an unknown key is refused with its place."""
    bad = tmp_path / "mine.yaml"
    with pytest.raises(InvalidInput, match="cannot be read"):
        catalog.profile_file(bad)
    bad.write_text("gpu: [")
    with pytest.raises(InvalidInput, match="is not YAML"):
        catalog.profile_file(bad)
    shipped = catalog.profile("h100-sxm")
    assert shipped is not None
    bad.write_text(yaml.safe_dump({**shipped.model_dump(mode="json"), "layers_us": 1}))
    with pytest.raises(InvalidInput, match=r"mine.yaml.layers_us"):
        catalog.profile_file(bad)
    bad.write_text(yaml.safe_dump(shipped.model_dump(mode="json")))
    assert catalog.profile_file(bad) == shipped


def test_the_catalogue_loads_nothing_heavy() -> None:
    """Importing the catalogue and reading an entry brings in neither pandas, scipy nor matplotlib."""
    code = (
        "import sys; from batchsim import catalog; catalog.model('qwen3-8b'); "
        "print([name for name in ('pandas', 'scipy', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
