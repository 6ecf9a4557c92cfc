"""The command line: what goes to stdout, what to stderr, exit codes, and what is never imported on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchsim.cli import main

SMALL = """
name: small
model: llama-3.1-8b
gpu: h100-sxm
cost_model: {kind: linear, base_ms: 10, prefill_token_ms: 0.1, decode_seq_ms: 1.0}
kv_cache: {block_size: 16, num_blocks: 10000}
scheduler: {kind: vllm, max_num_seqs: 8}
workload:
  kind: list
  requests:
  - {id: a, arrival_ms: 0, prompt_tokens: 100, output_tokens: 11}
"""
RUN = [sys.executable, "-c", "from batchsim.cli import main; main()"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A scenario of one request whose times can be worked out by hand."""
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    code = left.value.code
    out, err = capsys.readouterr()
    return (0 if code is None else int(code)), out, err


def test_run_prints_a_table_and_writes_nothing(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --out there is a table on stdout, and no file is left."""
    code, out, _ = call(capsys, "run", small, "--quiet")
    assert code == 0
    assert "TTFT" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    assert list(small.parent.iterdir()) == [small]


def test_run_json_is_the_summary_and_nothing_else_on_stdout(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints the summary alone; one prefill step of 20 ms gives the first token, ten steps of 11 ms the
    others."""
    code, out, _ = call(capsys, "run", small, "--json")
    summary = json.loads(out)
    assert code == 0
    assert summary["mean_ttft_ms"] == pytest.approx(20, abs=1e-9)
    assert summary["mean_e2el_ms"] == pytest.approx(130, abs=1e-9)
    assert summary["scenario"]["scheduler"]["max_num_seqs"] == 8


def test_run_out_writes_the_files_of_the_page(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--out makes the folder and writes summary, requests, iterations and pictures; --step-log the steps too."""
    code, _, _ = call(capsys, "run", small, "--out", tmp_path / "deep" / "out", "--step-log", "--quiet")
    assert code == 0
    assert {file.name for file in (tmp_path / "deep" / "out").iterdir()} == {
        "summary.json", "requests.csv", "iterations.csv", "steps.jsonl", "timeline.png",
        "latency.png",
    }  # fmt: skip


def test_set_and_seed_override_the_file(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--set and --seed reach the scenario as run, the last one winning."""
    _, out, _ = call(
        capsys, "run", small, "--json", "--set", "scheduler.max_num_seqs=3", "--set", "name=x", "--seed", "7"
    )
    as_run = json.loads(out)["scenario"]
    assert (as_run["scheduler"]["max_num_seqs"], as_run["name"], as_run["seed"]) == (3, "x", 7)


def test_a_mistake_is_told_on_stderr_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown key: the two lines of the page, nothing on stdout, no traceback."""
    argument = "scheduler.max_num_batch_tokens=2048"
    code, out, err = call(capsys, "run", "scenarios/quickstart.yaml", "--set", argument)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: scheduler.max_num_batch_tokens: unknown key; did you mean 'max_num_batched_tokens'?",
        "       scenarios/quickstart.yaml, overridden by --set",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "no-such-file.yaml"],
        ["run"],
        ["frobnicate"],
        ["run", "quickstart", "--seed", "x"],
        ["run", "quickstart", "--seed", "-1"],
        ["run", "quickstart", "--set", "x"],
        ["run", "quickstart", "--set", "model=llama-3.1-70b"],
        ["run", "quickstart", "--step-log"],
        ["run", "quickstart", "--trace"],
        ["run", "quickstart", "--trace-window", "1:2", "--out", "x"],
        ["run", "quickstart", "--trace", "--trace-window", "2:1", "--out", "x"],
        ["run", "quickstart", "--out", "/dev/null/x"],
        ["compare", "quickstart", "--schedulers", "static,static"],
        ["compare", "quickstart", "--schedulers", "static,nope"],
        ["list", "nonsense"],
        ["trace", "no-such-file.csv"],
        ["replay", "no-such-file.json"],
    ],
)
def test_bad_input_is_exit_code_2_without_a_traceback(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Missing files, bad options, a model that does not fit, an unwritable folder: lines on stderr and exit code
    2."""
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert "rror: " in err
    assert "Traceback" not in err
    assert not Path("x").exists()


def test_nothing_completed_is_exit_code_3_with_a_full_report(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The only request needs more blocks than there are: zero completions, null latencies, exit code 3."""
    code, out, _ = call(capsys, "run", small, "--json", "--set", "kv_cache.num_blocks=2")
    summary = json.loads(out)
    assert code == 3
    assert (summary["submitted"], summary["completed"], summary["rejected"]) == (1, 0, 1)
    assert summary["mean_ttft_ms"] is None


def test_warnings_go_to_stderr_and_quiet_silences_them(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pool smaller than max_model_len is a warning; with --quiet stderr is empty."""
    _, out, err = call(capsys, "run", small, "--json", "--set", "kv_cache.num_blocks=20")
    assert "warning: the KV pool (20 blocks of 16 = 320 tokens) is smaller than max_model_len" in err
    assert json.loads(out)["completed"] == 1
    _, _, err = call(capsys, "run", small, "--json", "--quiet", "--set", "kv_cache.num_blocks=20")
    assert err == ""


def test_compare_runs_the_same_requests_through_each_scheduler(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dropped keys are told, every scheduler has a column and a folder, the requests are the same."""
    out_folder = tmp_path / "out"
    code, out, err = call(capsys, "compare", small, "--schedulers", "static,dynamic,vllm", "--out", out_folder)
    assert code == 0
    assert all(kind in out for kind in ("static", "dynamic", "vllm"))
    assert "warning: static: scheduler.kind: static has no max_num_seqs: left out" in err
    tokens = {json.loads((out_folder / kind / "summary.json").read_text())["total_input_tokens"] for kind in
              ("static", "dynamic", "vllm")}  # fmt: skip
    assert tokens == {100}


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("schedulers", ["static", "batch_size", "whole number ≥ 1; default 32", "vllm", "max_num_batched_tokens"]),
        ("gpus", ["h100-sxm", "GiB", "TFLOP/s"]),
        ("models", ["llama-3.1-8b", "8.0 billion parameters"]),
        ("profiles", ["h100-sxm"]),
        ("engines", ["vllm-0.19", "0.97 ms of host time a step"]),
        ("routers", ["round_robin"]),
        ("arrivals", ["poisson", "rate_per_s", "must be given", "closed", "think_s", "seconds"]),
        ("lengths", ["lognormal", "p99"]),
        ("cost-models", ["linear", "base_ms", "ms"]),
        ("scenarios", ["quickstart"]),
    ],
)
def test_list_shows_every_kind_with_its_parameters(
    what: str, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Names, a line each, parameters with unit, type, bounds and default; no wider than 100."""
    code, out, _ = call(capsys, "list", what)
    assert code == 0
    assert all(word in out for word in told)
    if what != "scenarios":  # those show a path of the machine
        assert max(map(len, out.splitlines())) <= 100
    code, out, _ = call(capsys, "list", what, "--json")
    assert all(entry["name"] for entry in json.loads(out))


def test_every_parameter_in_a_list_says_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    """No parameter of a scheduler, kind of arrivals or of lengths, or cost model is left without a description."""
    silent = []
    for what in ("schedulers", "arrivals", "lengths", "cost-models"):
        _, out, _ = call(capsys, "list", what, "--json")
        for entry in json.loads(out):
            assert entry["line"]
            silent += [(entry["name"], p["name"]) for p in entry["parameters"] if not p["meaning"]]
    assert silent == []


def test_schema_is_json_that_names_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """`schema` prints one JSON document with every key of the page."""
    _, out, _ = call(capsys, "schema")
    properties = json.loads(out)["properties"]
    assert {"name", "seed", "model", "gpu", "scheduler", "workload", "slo", "price", "horizon_s"} <= set(properties)


def test_trace_describes_a_file_without_simulating(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows, span, rate and lengths; what the format was taken for is a note on stderr."""
    file = tmp_path / "t.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i},{100 + i},10\n" for i in range(11)))
    code, out, err = call(capsys, "trace", file)
    assert code == 0
    assert "t.csv · batchsim · 11 requests over 10.0 s" in out
    assert "rate      1.10 requests/s" in out
    assert "note: t.csv read as batchsim" in err
    _, out, _ = call(capsys, "trace", file, "--json")
    assert json.loads(out)["prompt_tokens"]["mean"] == 105


def test_replay_agrees_with_a_recording_and_shows_the_first_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording of vLLM agrees (0); with one number changed, that step is shown side by side (1); a damaged one
    is 2."""
    file = Path(__file__).parents[1] / "golden" / "vllm-v1" / "01_fcfs_plain.json"
    code, out, _ = call(capsys, "replay", file)
    assert (code, out) == (0, "01_fcfs_plain.json: 6 steps agree\n")
    recording = json.loads(file.read_text())
    recording["steps"][2]["free"] += 1
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(recording))
    code, out, _ = call(capsys, "replay", changed)
    assert code == 1
    assert "changed.json: step 2 differs" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("  ≠")] == ["free"]
    changed.write_text(json.dumps({"config": {}, "requests": [{"id": 1}], "steps": []}))
    code, _, err = call(capsys, "replay", changed, file)
    assert code == 2
    assert "Traceback" not in err


def test_help_names_every_command() -> None:
    """`--help` lists the commands, each with its whole line; how long that takes is `tests/benchmarks/bench_start.py`'s."""
    text = subprocess.run([*RUN, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"\n  {command}" in text for command in ("compare", "list", "replay", "run", "schema", "trace"))
    assert "..." not in text.partition("Commands:")[2]


def test_the_way_of_run_json_imports_no_heavy_package() -> None:
    """`run --json` and `--help` import neither pandas, matplotlib, scipy nor rich, which cost more than the run."""
    code = (
        "import sys\nfrom batchsim.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as left:\n    assert not left.code, left.code\n"
        "heavy = {'pandas', 'matplotlib', 'scipy', 'rich', 'jinja2', 'joblib'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)\n"
    )
    for arguments in (["--help"], ["run", "quickstart", "--json", "--quiet", "--set", "workload.requests=5"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        assert done.stderr == "[]\n"


def test_ctrl_c_is_one_line_and_130_and_leaves_no_file(small: Path, tmp_path: Path) -> None:
    """An interrupted run says so in one line, exits with 130 and leaves nothing under a final name."""
    lengths = "prompt_tokens: {kind: fixed, tokens: 9}, output_tokens: {kind: fixed, tokens: 500}"
    many = f"workload={{requests: 5000000, arrivals: {{kind: poisson, rate_per_s: 1}}, {lengths}}}"
    out = tmp_path / "out"
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    running = subprocess.Popen(
        [*RUN, "run", str(small), "--set", many, "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    deadline = time.monotonic() + 20
    while not out.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=20)
    assert running.returncode == 130
    assert (stdout, stderr) == ("", "interrupted\n")
    assert list(out.iterdir()) == []


def test_version_is_printed() -> None:
    """`--version` prints name and version."""
    done = subprocess.run([*RUN, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("batchsim ")
