"""Trace files: formats, units, order, origin, bad rows."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from batchsim.errors import InvalidInput
from batchsim.workload import traces
from batchsim.workload.columns import ABSENT, Prefixes
from tests.workload.inputs import drawn, same

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """A function that writes a trace file and returns its path."""

    def written(content: str | bytes, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def refusal(path: Path, **options: Any) -> list[str]:
    """The lines that a trace is refused with."""
    with pytest.raises(InvalidInput) as refused:
        traces.read(path, **options)
    return str(refused.value).splitlines()


def prefix_rows(prefixes: Prefixes | None) -> list[list[tuple[int, int]]]:
    """Every row's (segment, tokens)."""
    assert prefixes is not None
    pairs = list(zip(prefixes.segment.tolist(), prefixes.tokens.tolist(), strict=True))
    return [pairs[start:end] for start, end in zip(prefixes.offset, prefixes.offset[1:], strict=False)]


@pytest.mark.parametrize("times", [("0", "0.5", "1.25"), ("1790000000.000", "1790000000.500", "1790000001.250")])
def test_a13_the_origin_does_not_matter(write: Any, times: tuple[str, ...]) -> None:
    """A13: relative and epoch times both arrive at 0, 500 and 1250 ms, exactly."""
    work = traces.read(write(HEADER + "".join(f"{time},10,5\n" for time in times))).workload
    assert work.arrival_ns.tolist() == [0, 500_000_000, 1_250_000_000]


def test_a13_an_epoch_keeps_its_nanoseconds(write: Any) -> None:
    """A double near 1.79e9 resolves 240 ns; the reader keeps single ones, in CSV and in JSONL."""
    rows = ["1790000000.000000001", "1790000000.000000002", "1790000000.123456789"]
    lines = [f'{{"arrival_s": {time}, "prompt_tokens": 1, "output_tokens": 1}}\n' for time in rows]
    for path in (write(HEADER + "".join(f"{time},1,1\n" for time in rows)), write("".join(lines), "t.jsonl")):
        assert traces.read(path).workload.arrival_ns.tolist() == [0, 1, 123_456_788]


def test_times_beyond_nanoseconds_are_rounded_half_up(write: Any) -> None:
    """The tenth decimal decides; exponents are numbers too."""
    path = write(HEADER + "0,1,1\n0.0000000014999,1,1\n0.0000000015,1,1\n35e-10,1,1\n")
    assert traces.read(path).workload.arrival_ns.tolist() == [0, 1, 2, 4]


def test_a_key_that_every_row_repeats_is_refused(write: Any) -> None:
    """The last one does not silently win, in the first line neither."""
    row = '{"arrival_s": 1, "arrival_s": 2, "prompt_tokens": 5, "output_tokens": 5}\n'
    lines = refusal(write(row * 2, "t.jsonl"))
    assert lines[0] == "workload.path: t.jsonl has 2 bad rows (of 2)"
    assert "the key 'arrival_s' stands twice" in lines[1]


def test_a13_mixed_origins_are_refused(write: Any) -> None:
    """A13: an epoch among relative times, or in BurstGPT's second time column, is no trace."""
    assert "mixes two origins of time" in refusal(write(HEADER + "0,1,1\n1790000000,1,1\n"))[0]
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    lines = refusal(write(header + "1,1,2.5,G,5,5,10,API log\n2,1,1790000000,G,5,5,10,API log\n"))
    assert lines[1] == "t.csv:3: Elapsed time: 1790000000: is an epoch, not a span: two origins of time in one trace"


def test_a15_the_format_decides_the_unit(write: Any) -> None:
    """A15: 0, 10535, 27482 are milliseconds in `mooncake` and seconds in `batchsim`."""
    ms = write(
        "".join(f'{{"timestamp": {t}, "input_length": 5, "output_length": 5}}\n' for t in (0, 10535, 27482)), "m"
    )
    assert traces.read(ms, format="mooncake").workload.arrival_ns.tolist() == [0, 10_535_000_000, 27_482_000_000]
    seconds = write(HEADER + "0,5,5\n10535,5,5\n27482,5,5\n")
    assert traces.read(seconds).workload.arrival_ns.tolist()[-1] == 27_482 * 10**9


def test_a15_unsorted_rows_are_sorted_and_counted(write: Any) -> None:
    """A15: 0, 300, 100 equals the sorted file, with a note that counts one row; ties keep file order."""
    line = '{{"timestamp": {}, "input_length": {}, "output_length": 5, "hash_ids": [{}]}}\n'
    rows = [(0, 7, 1), (300, 8, 2), (100, 9, 1), (300, 10, 2)]
    unsorted = traces.read(write("".join(line.format(*row) for row in rows), "u"), format="mooncake")
    ordered = traces.read(write("".join(line.format(*rows[at]) for at in (0, 2, 1, 3)), "s"), format="mooncake")
    assert unsorted.unsorted == 1
    assert unsorted.workload.notes == ("1 row of u stood out of time order; rows were sorted by arrival",)
    assert unsorted.workload.prompt_tokens.tolist() == [7, 9, 8, 10]
    assert ordered.workload.notes == ()
    assert same(unsorted.workload, ordered.workload)


def test_b16_rows_without_tokens_are_refused_with_their_lines_or_skipped(write: Any) -> None:
    """B16: O=0, P=0 and both; one entry a row; with skip_invalid they are left out and counted."""
    path = write(HEADER + "0,5,5\n1,5,0\n2,0,5\n3,0,0\n4,6,6\n")
    assert refusal(path) == [
        "workload.path: t.csv has 3 bad rows (of 5)",
        "t.csv:3: output_tokens: 0: must be at least 1",
        "t.csv:4: prompt_tokens: 0: must be at least 1",
        "t.csv:5: prompt_tokens: 0: must be at least 1",
        "fix them, or set workload.skip_invalid: true to leave them out (and count them)",
    ]
    trace = traces.read(path, skip_invalid=True)
    assert (trace.rows, trace.skipped) == (2, 3)
    assert trace.workload.prompt_tokens.tolist() == [5, 6]
    assert any(note.startswith("3 rows of t.csv skipped as invalid") for note in trace.workload.notes)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,abc,5", "prompt_tokens: 'abc' is not a whole number"),
        ("0,5.0,5", "prompt_tokens: '5.0' is not a whole number"),
        ("0,1e3,5", "prompt_tokens: '1e3' is not a whole number"),
        ("0,1_0,5", "prompt_tokens: '1_0' is not a whole number"),
        ("0,\u0663,5", "prompt_tokens: '\u0663' is not a whole number"),
        ("0,,5", "prompt_tokens: '' is not a whole number"),
        ("0,-5,5", "prompt_tokens: -5: must be at least 1"),
        ("0,9007199254740993,5", "prompt_tokens: 9007199254740993: must be at most 1000000000"),
        ("0," + "9" * 60 + ",5", "prompt_tokens: " + "9" * 40 + "…: must be at most 1000000000"),
        ("-5.0,5,5", "arrival_s: -5.0: must be at least 0"),
        ("nan,5,5", "arrival_s: 'nan' is not a finite number"),
        ("inf,5,5", "arrival_s: 'inf' is not a finite number"),
        ("1e400,5,5", "arrival_s: 1e400: must be at most 9000000000"),
        ("1790000000000,5,5", "arrival_s: 1790000000000: must be at most 9000000000"),
        ("0,5", "has 2 of 3 fields"),
        ("0,5,5,5", "has 4 of 3 fields"),
        ('0,"5,5', "has a quote that is not closed on its line"),
    ],
)
def test_a_bad_row_is_named(write: Any, row: str, message: str) -> None:
    """File, line, column, value and rule, whatever stands around it."""
    lines = refusal(write(HEADER + "0,1,1\n\n" + row + "\n0,2,2\n"), format="batchsim")
    assert lines[0] == "workload.path: t.csv has 1 bad row (of 3)"
    assert lines[1] == f"t.csv:4: {message}"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"arrival_s": 0, "prompt_tokens": "5", "output_tokens": 5}', "prompt_tokens: '5' is not a whole number"),
        ('{"arrival_s": 0, "prompt_tokens": true, "output_tokens": 5}', "prompt_tokens: True is not a whole number"),
        ('{"arrival_s": 0, "prompt_tokens": 5.0, "output_tokens": 5}', "prompt_tokens: 5.0 is not a whole number"),
        ('{"arrival_s": 0, "prompt_tokens": null, "output_tokens": 5}', "prompt_tokens: None is not a whole number"),
        ('{"arrival_s": 0, "output_tokens": 5}', "prompt_tokens: missing"),
        ('{"arrival_s": NaN, "prompt_tokens": 5, "output_tokens": 5}', "arrival_s: NaN is not a finite number"),
        ('{"arrival_s": -1, "prompt_tokens": 5, "output_tokens": 5}', "arrival_s: -1: must be at least 0"),
        (
            '{"arrival_s": 0, "arrival_s": 1, "prompt_tokens": 5, "output_tokens": 5}',
            "the key 'arrival_s' stands twice",
        ),
        ('{"arrival_s": 0, "prompt_tokens": 05, "output_tokens": 5}', "is not a JSON object"),
        ('{"arrival_s": .5, "prompt_tokens": 5, "output_tokens": 5}', "is not a JSON object"),
        ('{"arrival_s": 5., "prompt_tokens": 5, "output_tokens": 5}', "is not a JSON object"),
        ('{"arrival_s": 0, "prompt_tokens": 5, "outp', "is not a JSON object"),
        ("[0, 5, 5]", "is not a JSON object"),
        ("[" * 5000, "is not a JSON object"),
    ],
)
def test_a_bad_json_row_is_named(write: Any, row: str, message: str) -> None:
    """JSON's own types count: a quoted number is no number; a key may stand once."""
    good = '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5}\n'
    lines = refusal(write(good + row + "\n" + good, "t.jsonl"))
    assert lines[0] == "workload.path: t.jsonl has 1 bad row (of 3)"
    assert lines[1].startswith("t.jsonl:2: ")
    assert message in lines[1]


def test_many_bad_rows_are_counted_after_twenty(write: Any) -> None:
    """30 bad rows: the first 20 named in file order, 10 counted."""
    lines = refusal(write(HEADER + "0,5,5\n" + "0,0,x\n" * 30))
    assert lines[0] == "workload.path: t.csv has 30 bad rows (of 31)"
    assert [line.split(":")[1] for line in lines[1:21]] == [str(line) for line in range(3, 23)]
    assert lines[21] == "t.csv: and 10 more"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "workload.path: t.csv: is empty"),
        (b"\n\n", "workload.path: t.csv: is empty"),
        (HEADER.encode(), "workload.path: t.csv: has no rows"),
        (b"arrival_s,prompt_tokens\n0,1\n", "t.csv: output_tokens: missing column; the header has arrival_s"),
        (b"arrival_s,prompt_tokens,output_token\n0,1,1\n", "did you mean 'output_token'?"),
        (b"arrival_s,arrival_s,prompt_tokens,output_tokens\n0,0,1,1\n", "arrival_s: the column stands 2 times"),
        (HEADER.encode() + b"0,\xff,1\n", "t.csv:2: is not UTF-8 text"),
        (HEADER.encode() + b"0,1,1\n0,\0,1\n", "t.csv:3: holds a NUL character"),
        (HEADER.encode("utf-16"), "is not UTF-8 text"),
        (b"[{}]", "starts with '['"),
        (gzip.compress(HEADER.encode() + b"0,1,1\n" * 50, mtime=0)[:-20], "damaged or cut-off gzip file"),
        (b"\x1f\x8bnonsense", "damaged or cut-off gzip file"),
    ],
)
def test_files_that_are_no_traces_are_refused(write: Any, content: bytes, message: str) -> None:
    """Empty, headerless, repeated columns, wrong encodings, cut-off archives: one clear line."""
    assert message in refusal(write(content), format="batchsim")[0]


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    """With the scenario's key and the path."""
    assert refusal(tmp_path / "none.csv") == [f"workload.path: {tmp_path / 'none.csv'}: no such file"]
    assert refusal(tmp_path) == [f"workload.path: {tmp_path}: is a folder, not a file"]


@pytest.mark.parametrize("change", ["crlf", "bom", "gz", "blank", "quoted", "no_end"])
def test_the_dress_of_a_file_does_not_matter(write: Any, change: str) -> None:
    """CRLF, a byte order mark, gzip, blank lines, quotes, no last line end: the same workload."""
    plain = HEADER + "0,10,5\n1.5,20,6\n2.25,30,7\n"
    dressed = {
        "crlf": plain.replace("\n", "\r\n").encode(),
        "bom": b"\xef\xbb\xbf" + plain.encode(),
        "gz": gzip.compress(plain.encode()),
        "blank": b"\n" + plain.replace("\n", "\n\n").encode(),
        "quoted": plain.replace("20", '"20"').encode(),
        "no_end": plain.rstrip("\n").encode(),
    }[change]
    assert same(traces.read(write(plain)).workload, traces.read(write(dressed, "d")).workload)


def test_batchsim_columns(write: Any) -> None:
    """id, max_tokens, priority, tenant and session, where a row has them; CSV and JSONL say the same."""
    csv = write("id,arrival_s,prompt_tokens,output_tokens,max_tokens,priority,tenant,session\n"
                "a,0,1,2,9,-1,x,s\nb,1,1,2,,,,\nc,2,1,2,2,3,x,u\n")  # fmt: skip
    json = write(
        '{"id": "a", "arrival_s": 0, "prompt_tokens": 1, "output_tokens": 2, "max_tokens": 9, "priority": -1, '
        '"tenant": "x", "session": "s"}\n{"id": "b", "arrival_s": 1, "prompt_tokens": 1, "output_tokens": 2}\n'
        '{"id": "c", "arrival_s": 2, "prompt_tokens": 1, "output_tokens": 2, "max_tokens": 2, "priority": 3, '
        '"tenant": "x", "session": "u"}\n',
        "t.jsonl",
    )
    work = traces.read(csv).workload
    assert work.ids == ("a", "b", "c")
    assert work.max_tokens.tolist() == [9, ABSENT, 2]
    assert work.priority.tolist() == [-1, 0, 3]
    assert [work.tenants[at] for at in work.tenant] == ["x", "default", "x"]
    assert [None if at == ABSENT else work.sessions[at] for at in work.session] == ["s", None, "u"]
    assert same(work, traces.read(json).workload)


def test_batchsim_rules_across_columns(write: Any) -> None:
    """An output above the row's limit, and a repeated or missing id, are bad rows."""
    lines = refusal(
        write("id,arrival_s,prompt_tokens,output_tokens,max_tokens\na,0,1,5,4\nb,0,1,1,\nb,0,1,1,\n,0,1,1,\n")
    )
    assert lines[1:4] == [
        "t.csv:2: output_tokens: 5: is above this row's max_tokens (4)",
        "t.csv:4: id: b: stands in an earlier row too",
        "t.csv:5: id: missing, while other rows have one",
    ]


def test_columns_may_begin_late_in_a_jsonl_file(write: Any) -> None:
    """A tenant that only later blocks of a long file have is absent before, not an error and not shifted."""
    line = '{{"arrival_s": {}, "prompt_tokens": 1, "output_tokens": 1{}}}\n'
    rows = [line.format(at, ', "tenant": "late"' if at >= 39_000 else "") for at in range(40_000)]
    work = traces.read(write("".join(rows), "t.jsonl")).workload
    names = [work.tenants[at] for at in work.tenant]
    assert names == ["default"] * 39_000 + ["late"] * 1_000


def test_azure_ticks_are_exact(write: Any) -> None:
    """Seven decimals are 100 ns ticks; days and leap days count; a zone of UTC is understood."""
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    path = write(header + "2024-02-28 23:59:59.9999999,10,5\r\n2024-02-29 00:00:00.0000001,11,6\r\n"
                 "2024-03-01T00:00:00+00:00,12,7\r\n")  # fmt: skip
    trace = traces.read(path)
    assert trace.format == "azure"
    assert trace.workload.arrival_ns.tolist() == [0, 200, 86_400 * 10**9 + 100]
    for bad in ("2023-02-29 00:00:00", "2023-13-01 00:00:00", "2023-01-01 24:00:00", "2023-01-01", "now",
                "2023-01-01 00:00:00.12345678901234567890123456789", "2023-01-01 00:00:00x"):  # fmt: skip
        lines = refusal(write(header + "2024-02-28 00:00:00,1,1\n" + f"{bad},1,1\n"))
        assert lines[1].startswith("t.csv:3: TIMESTAMP: "), bad


@pytest.mark.parametrize("layout", ["old", "new"])
def test_burstgpt_layouts_are_read_by_name(write: Any, layout: str) -> None:
    """Both layouts give the same requests; the model is the class, sessions come where there are any."""
    if layout == "old":
        content = ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                   "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,100,7,107,API log\n")  # fmt: skip
    else:
        content = ("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                   "5,17,2.5,ChatGPT,472,18,490,Conversation log\n45,,0,GPT-4,100,7,107,API log\n")  # fmt: skip
    work = traces.read(write(content)).workload
    assert work.arrival_ns.tolist() == [0, 40 * 10**9]
    assert (work.prompt_tokens.tolist(), work.output_tokens.tolist()) == ([472, 100], [18, 7])
    assert [work.classes[at] for at in work.traffic_class] == ["ChatGPT", "GPT-4"]
    assert work.sessions == (("17",) if layout == "new" else ())
    assert work.session.tolist() == ([0, ABSENT] if layout == "new" else [ABSENT, ABSENT])


def test_hash_ids_become_prefixes(write: Any) -> None:
    """Equal ids share a block of 512; the last takes the rest; what nobody shares is dropped from the tail."""
    rows = [(1200, [7, 8, 9]), (1100, [7, 8, 10]), (600, [7, 11]), (512, [12])]
    line = '{{"timestamp": 0, "input_length": {}, "output_length": 5, "hash_ids": {}}}\n'
    path = write("".join(line.format(*row) for row in rows), "m.jsonl")
    trace = traces.read(path)
    assert trace.format == "mooncake"
    assert prefix_rows(trace.workload.prefixes) == [[(0, 512), (1, 512)], [(0, 512), (1, 512)], [(0, 512)], []]


def test_vllm_blocks_are_of_16_unless_said_otherwise(write: Any) -> None:
    """The same keys with 16-token blocks: told by the counts; `hash_block_tokens` sets another size."""
    line = '{{"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": {}}}\n'
    sixteen = write(line.format([1, 2, 3]) * 2, "v.jsonl")
    assert traces.read(sixteen).format == "vllm"
    assert prefix_rows(traces.read(sixteen).workload.prefixes) == [[(0, 16), (1, 16), (2, 8)]] * 2
    twenty = write(line.format([1, 2]) * 2, "w.jsonl")
    assert prefix_rows(traces.read(twenty, format="vllm", hash_block_tokens=20).workload.prefixes)[0][1] == (1, 20)
    assert "must name the 1 blocks of 512 in 40 tokens" in refusal(twenty, format="mooncake")[1]
    assert "is for the format vllm" in refusal(twenty, format="mooncake", hash_block_tokens=20)[0]


@pytest.mark.parametrize("ids", ['"x"', "[1.5]", "[true]", "[-1]", "[18446744073709551616]", '["1"]', "{}"])
def test_bad_hash_ids_are_named(write: Any, ids: str) -> None:
    """They are whole numbers in a list."""
    good = '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1]}\n'
    lines = refusal(write(good + good.replace("[1]", ids), "m.jsonl"), format="mooncake")
    assert lines[1].startswith("m.jsonl:2: hash_ids: ")


@pytest.mark.parametrize(("prompt", "counts"), [(1, (0, 1)), (512, (1, 1)), (1300, (2, 3)), (1536, (3, 3))])
def test_hash_ids_name_every_block_but_the_last_partial_one(write: Any, prompt: int, counts: tuple[int, int]) -> None:
    """As many as there are full blocks, or blocks; one fewer or more is refused. Rows without the key name none."""
    line = '{{"timestamp": 0, "input_length": {}, "output_length": 5, "hash_ids": {}}}\n'
    for count in range(max(counts[0] - 1, 0), counts[1] + 2):
        path = write(line.format(prompt, list(range(count))) + line.format(5, [1]), "m.jsonl")
        if counts[0] <= count <= counts[1]:
            assert traces.read(path, format="mooncake").rows == 2
        else:
            assert f"{count} ids" in refusal(path, format="mooncake")[1]
    bare = write(line.format(prompt, "null") + line.format(5, [1]), "m.jsonl")
    assert traces.read(bare, format="mooncake").rows == 2


def test_limit_and_speedup(write: Any) -> None:
    """`limit` reads no further, so that later bad rows do not matter; `speedup` divides times."""
    path = write(HEADER + "10,1,1\n12,2,2\n16,3,3\nx,x,x\n")
    work = traces.read(path, limit=3, speedup=2).workload
    assert work.arrival_ns.tolist() == [0, 10**9, 3 * 10**9]
    assert len(refusal(path, limit=4)) == 3
    assert traces.read(path, limit=4, skip_invalid=True).rows == 3
    assert "workload.speedup: 1e-300" in refusal(path, limit=3, speedup=1e-300)[0]


def test_detection_says_what_it_found_or_asks(write: Any) -> None:
    """A note names the format and its columns; unknown columns are refused with what would be known."""
    assert traces.read(write(HEADER + "0,1,1\n")).workload.notes == (
        "t.csv read as batchsim: it has arrival_s, prompt_tokens, output_tokens",
    )
    (line,) = refusal(write("time,in,out\n0,1,1\n"))
    assert line.startswith(
        "workload.path: t.csv: format not recognised by its columns (time, in, out); set workload.format"
    )
    assert "nearest" not in line
    (line,) = refusal(write("arrival_s,prompt_tokens,output_token\n0,1,1\n"))
    assert line.endswith("nearest is batchsim, without output_tokens")


def test_unknown_columns_are_noted_and_misspelt_ones_refused(write: Any) -> None:
    """A misspelt optional column must not pass for an absent one; any other is named in a note."""
    columns = "arrival_s,prompt_tokens,output_tokens,"
    assert refusal(write(columns + "priorty\n0,1,1,5\n")) == [
        "t.csv: priorty: unknown column; did you mean 'priority'?"
    ]
    json = '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1, "maxTokens": 5}\n'
    assert refusal(write(json, "t.jsonl")) == ["t.jsonl: maxTokens: unknown column; did you mean 'max_tokens'?"]
    assert traces.read(write(columns + "city\n0,1,1,5\n")).workload.notes[1:] == ("t.csv: not read: city",)


def test_a_trace_in_a_scenario(write: Any, tmp_path: Path) -> None:
    """Paths start from the scenario's folder; a closed loop takes rows in file order and drops their times."""
    write(HEADER + "5,1,1\n4,2,2\n")
    work = drawn(0, tmp_path, kind="trace", path="t.csv")
    assert work.prompt_tokens.tolist() == [2, 1]
    assert work.open_loop
    closed = drawn(0, tmp_path, kind="trace", path="t.csv", arrivals={"kind": "closed", "concurrency": 1})
    assert closed.prompt_tokens.tolist() == [1, 2]
    assert closed.arrival_ns.tolist() == [0, 0]
    assert drawn(0, tmp_path, kind="trace", path="t.csv", max_concurrency=3).max_concurrency == 3
