"""`batchsim profile`: measure the kernels of this machine's GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from batchsim.cli import options
from batchsim.errors import InvalidInput, problem


def command(
    out: Annotated[Path, typer.Option(help="CSV of timings; one that is there is resumed")],
    gpu: Annotated[str, typer.Option(help="catalogue name to record")],
    model: Annotated[str, typer.Option(help="model whose matrix and head sizes to measure")] = "llama-3.1-8b",
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that would share the model")] = 1,
    minutes: Annotated[float, typer.Option(min=0.1, help="time budget; the most informative points come first")] = 8.0,
    quiet: options.Quiet = False,
) -> None:
    """Measure the kernels of this GPU."""
    from batchsim import catalog
    from batchsim.calibrate import gpu_timer, profiler

    card, found = catalog.gpu(gpu, "--gpu"), catalog.model(model, "--model")
    if found.kv_lora_rank or found.experts:
        raise InvalidInput([problem("--model", model, "must be a dense model without MLA")])
    found.check_tensor_parallel(tensor_parallel)
    why_not = gpu_timer.available()
    if why_not is not None:
        raise InvalidInput([problem("profile", None, why_not)])
    shape = profiler.Shape(
        found.name, found.hidden, found.heads, found.kv_heads, found.head_dim, found.intermediate, found.vocab,
        found.ffn_matrices,
    )  # fmt: skip
    environment = gpu_timer.environment()
    tasks = profiler.plan(shape, card.name, tensor_parallel, int(environment["gpus"]))

    def progress(done: int, total: int, task: object) -> None:
        if not quiet and sys.stderr.isatty():
            filled = 40 * done // total
            print(
                f"\r[{'#' * filled}{'.' * (40 - filled)}] {done}/{total} {getattr(task, 'op', ''):20}",
                end="",
                file=sys.stderr,
            )

    ended = profiler.measure(tasks, gpu_timer.CudaTimer(shape), out, minutes, environment, progress=progress)
    if not quiet and sys.stderr.isatty():
        print(file=sys.stderr)
    options.show(
        f"{out}: {ended.measured} measured, {ended.resumed} there before, {ended.impossible} impossible here, "
        f"{ended.left} left (run again to go on)\nnext: batchsim calibrate {out} --gpu {card.name} --out PROFILE.yaml"
    )
