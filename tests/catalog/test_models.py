"""Models of the catalogue: parameters, weight bytes and KV bytes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from batchsim import catalog
from batchsim.catalog import Model
from batchsim.errors import InvalidInput

SMALL = {
    "layers": 2,
    "hidden": 8,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 4,
    "intermediate": 16,
    "vocab": 32,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize("name", catalog.names("models"))
def test_parameters_are_the_published_ones(name: str) -> None:
    """The parameters computed from the architecture are within 0.2 % of the published count, where there is one."""
    model = catalog.model(name)
    if model.params_published_b is not None:
        assert model.parameters == pytest.approx(model.params_published_b * 1e9, rel=2e-3)
    assert 0 < model.active_parameters <= model.parameters


def test_architectures_are_those_of_the_shared_data(data: Path) -> None:
    """Every figure of a model in the shared data stands in the catalogue unchanged; what follows from them agrees."""
    shared = yaml.safe_load((data / "data/catalog/models.yaml").read_text())
    derived = {"active_params_computed_b", "kv_bytes_per_token_bf16", "params_computed_b"}
    for name, figures in shared.items():
        model = catalog.model(name)
        for key, value in figures.items():
            if key not in derived | {"source", "weights_note", "sliding_layers"}:
                assert getattr(model, key) == value, (name, key)
        if "params_computed_b" in figures:
            assert model.parameters / 1e9 == pytest.approx(figures["params_computed_b"], abs=1.1e-3)
            assert model.active_parameters / 1e9 == pytest.approx(figures["active_params_computed_b"], abs=1.1e-3)
            assert model.kv_bytes_per_token() == figures["kv_bytes_per_token_bf16"]


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [("llama-3.1-8b", 131072), ("llama-3.1-70b", 327680), ("qwen3-4b", 147456), ("deepseek-v3", 61 * 576 * 2)],
)
def test_a20_kv_bytes_of_a_token(name: str, bytes_per_token: int) -> None:
    """A20 a-c: KV heads count, not query heads; the head size is the given one, not hidden/heads (4B: not 92160)."""
    assert catalog.model(name).kv_bytes_per_token("auto") == bytes_per_token
    assert catalog.model(name).kv_bytes_per_token("fp8") * 2 == bytes_per_token


def test_head_size_must_be_given() -> None:
    """An inline model without head_dim is refused: hidden/heads would be wrong for some."""
    assert Model(**SMALL).head_dim == 4
    without = {key: value for key, value in SMALL.items() if key != "head_dim"}
    with pytest.raises(ValidationError, match="head_dim"):
        Model.model_validate(without)


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        ({"head_dims": 4}, "head_dims"),
        ({"kv_heads": 3}, "multiple of kv_heads"),
        ({"experts": 8}, "experts_per_token"),
        ({"moe_intermediate": 8}, "need experts"),
        ({"sliding_layers": 1}, "sliding_window"),
        ({"kv_lora_rank": 8}, "MLA"),
        ({"layers": 0}, "greater than or equal to 1"),
        ({"first_k_dense": 3}, "first_k_dense"),
    ],
)
def test_incoherent_models_are_refused(extra: dict[str, int], complaint: str) -> None:
    """Unknown keys and architectures that contradict themselves are refused, each with its rule."""
    with pytest.raises(ValidationError, match=complaint):
        Model.model_validate({**SMALL, **extra})


@given(st.sampled_from(catalog.names("models")), st.sampled_from([1, 2, 4, 8]), st.sampled_from(["auto", "fp8"]))
def test_tensor_parallelism_shares_heads_and_weights(name: str, tp: int, kv_dtype: str) -> None:
    """tp GPUs hold 1/tp of the weights; of the KV 1/tp down to one head each, and all of a compressed (MLA) KV."""
    model = catalog.model(name)
    if model.heads % tp or (not model.kv_lora_rank and model.kv_heads % tp and tp % model.kv_heads):
        with pytest.raises(InvalidInput, match="tensor_parallel"):
            model.kv_bytes_per_token(kv_dtype, tp)
        return
    share = model.kv_bytes_per_token(kv_dtype, tp) * (1 if model.kv_lora_rank else min(tp, model.kv_heads))
    assert share == model.kv_bytes_per_token(kv_dtype, 1)
    assert model.weights_bytes("bf16", tp) == pytest.approx(model.weights_bytes("bf16") / tp, abs=1)


def test_weight_bytes_by_format() -> None:
    """fp8 halves the layers and leaves the embeddings; MXFP4 experts give the published checkpoint sizes."""
    model = catalog.model("llama-3.1-8b")
    assert model.weights_bytes("bf16") - model.weights_bytes("fp8") == model.layer_params
    assert catalog.model("gpt-oss-20b").weights_bytes("bf16") / 2**30 == pytest.approx(12.8, rel=5e-3)
    assert catalog.model("gpt-oss-120b").weights_bytes("bf16") / 2**30 == pytest.approx(60.8, rel=5e-3)


@pytest.mark.parametrize("tp", [0, 3, 64])
def test_tensor_parallelism_that_does_not_divide_the_heads_is_refused(tp: int) -> None:
    """32 heads cannot be shared by 3 or 64 GPUs, nor by none."""
    with pytest.raises(InvalidInput, match=rf"tensor_parallel: {tp}: must"):
        catalog.model("llama-3.1-8b").weights_bytes("bf16", tp)
