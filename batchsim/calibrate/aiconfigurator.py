"""Measurements from the tables inside the package `aiconfigurator-core` (Apache-2.0; the extra `kernels`).

Only its data files are read: one parquet file an operation, GPU, engine and engine version. `shipped` thins them to the
tables under `batchsim/catalog/measurements`, which `batchsim calibrate --from aiconfigurator` writes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchsim.calibrate.schema import Row
from batchsim.errors import InvalidInput, problem

if TYPE_CHECKING:
    import pandas as pd

SYSTEMS = {
    "a100-80-sxm": "a100_sxm",
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server",
    "b300-sxm": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
}
"""Catalogue name -> the package's folder. Any other folder name of the package is taken as it is."""

NOTICE = (
    "Thinned from the tables of aiconfigurator-core {version} (PyPI), systems/data/{system}.",
    "SPDX-FileCopyrightText: Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES. All rights reserved.",
    "SPDX-License-Identifier: Apache-2.0",
    "Changed: rows chosen, duplicates averaged, columns renamed; times in ms as measured.",
)

DTYPE = {"bfloat16": "bf16", "half": "fp16", "float16": "fp16", "fp8": "fp8"}
TOKENS = (
    1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 257, 384, 512, 513, 768, 1024, 1025, 1536, 2048, 2049, 3072, 4096, 8192,
    16384,
)  # fmt: skip
GEMM_SIDES = (1024, 2048, 2560, 3584, 4096, 6144, 7168, 8192, 10240, 16384, 65536)
LEAST_GEMM = 2**22
HEADS = ((32, 8), (16, 2), (8, 1), (32, 4))
EXPERTS = ((4096, 14336, 8, 2), (2048, 768, 128, 8), (4096, 1536, 128, 8), (2880, 2880, 32, 4))
DISTRIBUTION = "power_law_1.2"
"""How uneven the choice of experts is in the MoE rows: the package's own default."""


def root() -> Path:
    """The folder of the package's tables; InvalidInput where it is not installed."""
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        rule = "the package aiconfigurator-core is not installed: pip install 'batchsim[kernels]'"
        raise InvalidInput([problem("--from aiconfigurator", None, rule)])
    return Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"


def notice(gpu: str) -> tuple[str, ...]:
    """The comment that heads every table made from the package."""
    return tuple(line.format(version=_installed(), system=_system(gpu).name) for line in NOTICE)


def _installed() -> str:
    try:
        return version("aiconfigurator-core")
    except PackageNotFoundError:  # the files are there without their metadata
        return "of unknown version"


def rows(gpu: str) -> list[Row]:
    """Everything the package has for a GPU that this package can use: bf16 and fp8, newest vLLM tables.

    Operations without a table are left out; InvalidInput where the GPU has no GEMM table at all.
    """
    folder = _system(gpu)
    source = f"aic {_installed()}"
    out = list(_gemm(folder, gpu, source))
    if not out:
        raise InvalidInput([problem("--gpu", gpu, "aiconfigurator-core holds no GEMM measurements of it")])
    for read in (_prefill, _decode, _allreduce, _moe):
        out += read(folder, gpu, source)
    return out


def shipped(gpu: str) -> list[Row]:
    """`rows`, thinned to what the profiles are fitted to."""
    return list(thin(rows(gpu)))


def thin(every: Iterable[Row]) -> Iterator[Row]:
    """The rows of common matrix sizes, token counts, head counts and experts."""
    for row in every:
        if row.op == "gemm":
            inner = row.k in GEMM_SIDES[:-1]
            head = row.n == GEMM_SIDES[-1] and row.k in (2048, 4096, 8192)
            square = row.n in GEMM_SIDES[:-1] and (row.n * row.k >= LEAST_GEMM or min(row.n, row.k) > GEMM_SIDES[0])
            keep = row.tokens in TOKENS and inner and (head or square)
        elif row.op.endswith("attention"):
            keep = (row.heads, row.kv_heads) in HEADS and row.head_dim == 128
        elif row.op == "moe":
            keep = row.tokens in TOKENS and row.experts > 0
        else:
            keep = True
        if keep:
            yield row


def _system(gpu: str) -> Path:
    folder = root() / SYSTEMS.get(gpu, gpu)
    if not folder.is_dir() or not any(folder.glob("gemm")):
        known = [name for name, system in SYSTEMS.items() if (root() / system / "gemm").is_dir()]
        raise InvalidInput(
            [problem("--gpu", gpu, f"aiconfigurator-core has no tables of it; it has {', '.join(known)}")]
        )
    return folder


def _table(folder: Path, op: str, engine: str, name: str) -> pd.DataFrame | None:
    """The newest version's table of an operation, or None."""
    import pandas as pd

    files = sorted((folder / op / engine).glob(f"*/{name}.parquet"), key=lambda file: _version(file.parent.name))
    return pd.read_parquet(files[-1]) if files else None


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in name.split("."))


def _mean(table: pd.DataFrame, keys: list[str]) -> Iterator[dict[str, Any]]:
    """One row for each setting: repeated measurements averaged."""
    means = table.groupby(keys, as_index=False, sort=True)["latency"].mean()
    columns = means.columns
    for values in means.itertuples(index=False):
        yield dict(zip(columns, values, strict=True))


def _gemm(folder: Path, gpu: str, source: str) -> Iterator[Row]:
    table = _table(folder, "gemm", "vllm", "gemm_perf")
    if table is None:
        return
    table = table[table.gemm_dtype.isin(list(DTYPE))]
    for r in _mean(table, ["gemm_dtype", "n", "k", "m"]):
        yield Row(
            "gemm", gpu, DTYPE[r["gemm_dtype"]], float(r["latency"]), n=r["n"], k=r["k"], tokens=r["m"], source=source
        )


def _attention(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    table = _table(folder, "attention", "vllm", name)
    if table is None:
        return
    if "window_size" in table:
        table = table[table.window_size == 0]
    table = table.assign(kv=table.num_key_value_heads.where(table.num_key_value_heads > 0, table.num_heads))
    table = table[table.kv_cache_dtype.isin(list(DTYPE))]
    yield from _mean(table, ["kv_cache_dtype", "num_heads", "kv", "head_dim", "batch_size", "isl", "step"])


def _prefill(folder: Path, gpu: str, source: str) -> Iterator[Row]:
    for r in _attention(folder, "context_attention_perf"):
        yield Row(
            "prefill_attention", gpu, DTYPE[r["kv_cache_dtype"]], float(r["latency"]), heads=r["num_heads"],
            kv_heads=r["kv"], head_dim=r["head_dim"], tokens=r["isl"], batch=r["batch_size"], past=r["step"],
            source=source,
        )  # fmt: skip


def _decode(folder: Path, gpu: str, source: str) -> Iterator[Row]:
    for r in _attention(folder, "generation_attention_perf"):
        yield Row(
            "decode_attention", gpu, DTYPE[r["kv_cache_dtype"]], float(r["latency"]), heads=r["num_heads"],
            kv_heads=r["kv"], head_dim=r["head_dim"], batch=r["batch_size"], context=r["isl"] + r["step"],
            source=source,
        )  # fmt: skip


def _allreduce(folder: Path, gpu: str, source: str) -> Iterator[Row]:
    table = _table(folder, "comm", "vllm", "custom_allreduce_perf")
    if table is None:
        return
    if "backend" in table:
        table = table[table.backend == "vllm_graph"]
    for r in _mean(table, ["num_gpus", "message_size"]):
        yield Row(
            "allreduce", gpu, "bf16", float(r["latency"]), tp=r["num_gpus"], bytes=2 * r["message_size"], source=source
        )


def _moe(folder: Path, gpu: str, source: str) -> Iterator[Row]:
    table = _table(folder, "moe", "vllm", "moe_perf")
    if table is None:
        return
    fp8 = {"fp8_block": "fp8"}
    table = table.assign(moe_dtype=table.moe_dtype.replace(fp8))
    table = table[table.moe_dtype.isin(list(DTYPE)) & (table.moe_ep_size == 1) & (table.distribution == DISTRIBUTION)]
    wanted = {(hidden, inner, experts, topk) for hidden, inner, experts, topk in EXPERTS}
    keys = ["moe_dtype", "hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size", "num_tokens"]
    fastest = table.sort_values("latency").drop_duplicates(keys)  # fp8 a tensor or a block, whichever kernel is faster
    for r in _mean(fastest, keys):
        if (r["hidden_size"], r["inter_size"], r["num_experts"], r["topk"]) in wanted:
            yield Row(
                "moe", gpu, DTYPE[r["moe_dtype"]], float(r["latency"]), tp=r["moe_tp_size"], n=r["inter_size"],
                k=r["hidden_size"], experts=r["num_experts"], experts_per_token=r["topk"], tokens=r["num_tokens"],
                source=source,
            )  # fmt: skip
