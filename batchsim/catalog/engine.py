"""An engine preset: the host time it adds to each step, and the scheduler settings it starts with."""

from __future__ import annotations

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from batchsim.catalog.entry import Entry
from batchsim.catalog.gpu import GIB, Gpu
from batchsim.catalog.model import Model


class ByMemory(BaseModel):
    """Scheduler settings of the GPUs with at least so much memory, some families left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_gib: float = Field(0.0, ge=0, description="least memory that CUDA shows, GiB")
    unless: tuple[str, ...] = Field((), description="GPUs whose name starts so take a later entry")
    set: dict[str, int] = Field(description="scheduler settings")


class SchedulerDefaults(BaseModel):
    """The scheduler an engine runs, and the settings it starts with where nobody says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = Field(description="the scheduler's kind; the settings are its own parameter names")
    set: dict[str, int | float | bool | str] = Field(default_factory=dict, description="settings on every GPU")
    by_memory: tuple[ByMemory, ...] = Field((), description="settings by memory; the first entry that fits")


class Engine(Entry):
    """Host overheads of an inference engine and version, and its defaults. All zero: the GPU's time alone."""

    step_host_ms: float = Field(
        0.0,
        ge=0,
        validation_alias=AliasChoices("step_host_ms", "overhead_ms"),
        description="host time a step that is not hidden behind the GPU, ms (overhead_ms is an alias)",
    )
    seq_host_us: float = Field(0.0, ge=0, description="host time a step and sequence, us")
    sample_us_per_seq: float = Field(0.0, ge=0, description="sampling a step and sequence, us; near 0 when greedy")
    sample_vocab: int | None = Field(
        None, ge=1, description="vocabulary that sample_us_per_seq was measured at, then in proportion; absent: any"
    )
    ingress_ms: float = Field(0.0, ge=0, description="HTTP and tokenizer before the queue, ms; in TTFT and in E2E")
    async_scheduling: bool = Field(False, description="the engine plans one step ahead")
    enable_prefix_caching: bool = Field(False, description="the engine keeps prefixes in its KV cache")
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1, description="share of the memory that it takes")
    scheduler: SchedulerDefaults | None = Field(None, description="the scheduler it runs, with its defaults")

    def step_host_fs(self) -> int:
        """Host time of every step, femtoseconds."""
        return round(self.step_host_ms * 1e12)

    def seq_host_fs(self, model: Model | None = None) -> int:
        """Host and sampling time of every sequence in a step, femtoseconds; sampling scales with the vocabulary."""
        scale = model.vocab / self.sample_vocab if model is not None and self.sample_vocab is not None else 1.0
        return round((self.seq_host_us + self.sample_us_per_seq * scale) * 1e9)

    def scheduler_defaults(self, gpu: Gpu | None = None) -> dict[str, int | float | bool | str]:
        """The settings its scheduler starts with on this GPU; `{}` where the preset names none.

        Without a GPU the settings by memory are left out.
        """
        if self.scheduler is None:
            return {}
        settings = dict(self.scheduler.set)
        if gpu is not None:
            settings.update(_by_memory(self.scheduler.by_memory, gpu))
        return settings


def _by_memory(entries: tuple[ByMemory, ...], gpu: Gpu) -> dict[str, int]:
    memory_gib = gpu.visible_bytes / GIB
    for entry in entries:
        if memory_gib >= entry.min_gib and not gpu.name.startswith(entry.unless):
            return entry.set
    return {}
