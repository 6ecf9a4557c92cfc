"""`batchsim plan`: the smallest fleet that meets the targets, with the proof."""

from __future__ import annotations

from typing import Annotated

import typer

from batchsim.cli import options
from batchsim.errors import InvalidInput, Problem


def command(
    scenario: options.ScenarioFile,
    max_replicas: Annotated[int, typer.Option("--max-replicas", metavar="N", help="Largest fleet to try.")] = 64,
    vary: Annotated[
        list[str] | None, typer.Option("--vary", metavar="K=V1,V2", help="Compare options: gpu=h100-sxm,h200-sxm.")
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", help="Every one must pass; the same for every size.")
    ] = 3,
    window: Annotated[
        float | None, typer.Option("--window", metavar="S", help="Seconds of the windows a varying rate is cut into.")
    ] = None,
    longer: Annotated[
        int,
        typer.Option("--longer", metavar="N", help="Up to N times the requests where a verdict is within its noise."),
    ] = 8,
    gpu_hour: Annotated[
        list[str] | None,
        typer.Option("--gpu-hour", metavar="GPU=PRICE", help="A price of its own for a GPU of --vary."),
    ] = None,
    out: options.Out = None,
    set_: options.Set = None,
    seed: options.Seed = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """The smallest fleet that meets the SLOs, with the proof. Exit code 4: there is none."""
    from batchsim.study import grid

    axes = grid.axes(vary or [], "--vary")
    prices = dict(_price(text) for text in gpu_hour or [])
    base = options.load(scenario, set_, seed)
    folder = options.folder(out)
    from batchsim.cli import progress
    from batchsim.study import plan

    found = plan(
        base, max_replicas=max_replicas, vary=axes, seeds=seeds, window_s=window, gpu_hours=prices,
        longer=longer, progress=progress.say(quiet),
    )  # fmt: skip
    whole = found.to_dict()
    options.warn(whole["warnings"], quiet)
    if folder is not None:
        found.write(folder)
        from batchsim.report import pages

        say = progress.say(quiet)
        if say is not None:
            say("report: rates and sizes around the answer, and what it hangs on")
        options.report(folder, pages.plan_page(found, command=options.command_line()))
    if json:
        options.print_json(whole)
    else:
        from batchsim.report import study_text

        options.show(study_text.plan_text(whole, wall_s=found.wall_s, out=str(folder) if folder else None))
    return {"plan": 0, "does_not_fit": 2}.get(found.status, 4)


def _price(text: str) -> tuple[str, float]:
    from batchsim import catalog

    name, _, amount = text.partition("=")
    try:
        value = float(amount)
    except ValueError:
        value = -1.0
    if not name or not 0 <= value < float("inf"):
        raise InvalidInput([Problem("--gpu-hour", "must be GPU=PRICE, such as h100-sxm=2.5", repr(text))])
    return catalog.gpu(name.strip(), "--gpu-hour").name, value
