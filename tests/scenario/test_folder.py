"""Files that a scenario names are looked for where the scenario stands."""

from __future__ import annotations

from pathlib import Path

from batchsim.scenario import load
from batchsim.simulation import simulate


def test_a_cost_table_stands_beside_its_scenario(tmp_path: Path) -> None:
    """`cost_model.path: steps.csv` is read from the scenario's folder, not from the current one."""
    (tmp_path / "steps.csv").write_text(
        "prefill_tokens,decode_seqs,context_tokens,time_ms\n0,1,1,10\n0,1,100,10\n0,2,2,10\n0,2,200,10\n1,0,0,10\n9,0,0,10\n"
    )
    (tmp_path / "table.yaml").write_text(
        "{name: t, model: llama-3.1-8b, gpu: h100-sxm, cost_model: {kind: table, path: steps.csv},"
        " workload: {kind: list, requests: [{arrival_ms: 0, prompt_tokens: 4, output_tokens: 2}]}}"
    )
    run = simulate(load(tmp_path / "table.yaml"))
    assert run.summary["completed"] == 1
