"""The catalogue: GPUs, models, engine presets and cost profiles, as data files of the package and their loader."""

from __future__ import annotations

from batchsim.catalog.engine import Engine, SchedulerDefaults
from batchsim.catalog.gpu import Gpu
from batchsim.catalog.loader import engine, gpu, model, names, profile, profile_file, suggest
from batchsim.catalog.model import ACTIVATION_BYTES, Dtype, KvDtype, Model, kv_bytes, weight_bytes
from batchsim.catalog.profile import Fp8, Moe, Profile, Range

__all__ = [
    "ACTIVATION_BYTES",
    "Dtype",
    "Engine",
    "Fp8",
    "Gpu",
    "KvDtype",
    "Model",
    "Moe",
    "Profile",
    "Range",
    "SchedulerDefaults",
    "engine",
    "gpu",
    "kv_bytes",
    "model",
    "names",
    "profile",
    "profile_file",
    "suggest",
    "weight_bytes",
]
