"""Mutated trace files: never anything but a workload whose every value is sound, or a refusal."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchsim.errors import InvalidInput
from batchsim.workload import traces
from batchsim.workload.describe import describe
from batchsim.workload.fields import MAX_TIME_S, MAX_TOKENS, NS_PER_S
from batchsim.workload.traces import plain, rows
from batchsim.workload.traces import text as trace_text
from batchsim.workload.traces.text import Block
from tests.workload.inputs import same

SAMPLES = {
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    b"2023-11-16 18:15:50.9951690,396,109\r\n2023-11-16 18:15:51.2224670,879,55\r\n",
    "mooncake": b'{"timestamp": 0, "input_length": 1000, "output_length": 500, "hash_ids": [0, 1]}\n'
    b'{"timestamp": 27.5, "input_length": 1500, "output_length": 490, "hash_ids": [0, 14, 15]}\n',
    "vllm": b'{"timestamp": 10, "input_length": 33, "output_length": 5, "hash_ids": [4, 5, 6]}\n'
    b'{"timestamp": 3, "input_length": 20, "output_length": 9, "hash_ids": [4, 9]}\n',
    "burstgpt": b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,17,2.5,ChatGPT,472,18,490,Conversation log\n45,,0,GPT-4,100,7,107,API log\n",
    "batchsim": b"id,arrival_s,prompt_tokens,output_tokens,max_tokens,priority,tenant,session\n"
    b"a,0.25,10,2,9,-1,x,s\nb,1,11,2,,,,\nc,2,12,2,2,3,x,u\n",
    "plain": b"arrival_s,prompt_tokens,output_tokens\n0.5,100,20\n1.25,200,30\n7,300,40\n",
    "jsonl": b'{"arrival_s": 0.5, "prompt_tokens": 100, "output_tokens": 20}\n'
    b'{"arrival_s": 1.25, "prompt_tokens": 200, "output_tokens": 30}\n'
    b'{"arrival_s": 7, "prompt_tokens": 300, "output_tokens": 40}\n',
}
NASTY = [
    b"", b",", b"\n", b"\r", b"\r\n", b'"', b"\\", b"{", b"}", b"[", b"]", b":", b"\0", b"\xff", b"\xef\xbb\xbf", b" ",
    b"nan", b"NaN", b"inf", b"-Infinity", b"null", b"true", b"1e999", b"1e5", b"-1", b"0", b"00", b".", b"1.", b".5",
    b"9" * 25, b"9" * 5000, b"9007199254740993", b"0x10", b"1_0", b"+5", b"\xd9\xa3", b"[" * 3000, b"12.0",
    b"0.12345678949999999999", b"arrival_s", b"timestamp", b'"timestamp": 3,', b"2023-02-30 00:00:00", b"Z",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid file with up to four pieces replaced, doubled, dropped, or swapped for something nasty."""
    content = SAMPLES[draw(st.sampled_from(sorted(SAMPLES)))]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        size = draw(st.integers(0, min(30, len(content) - at)))
        piece = draw(st.one_of(st.sampled_from(NASTY), st.just(content[at : at + size] * 2), st.binary(max_size=4)))
        content = content[:at] + piece + content[at + size :]
    form = draw(st.sampled_from([*["as it is"] * 12, "gzip", "cut", "cut gzip", "utf-16"]))
    if form == "utf-16":
        return content.decode("latin-1").encode("utf-16")
    if "gzip" in form:
        content = gzip.compress(content)
    return content[: draw(st.integers(0, len(content)))] if "cut" in form else content


def check_sound(trace: traces.Trace) -> None:
    """Every value lies within its bounds, and every column has an entry a row."""
    work = trace.workload
    assert trace.rows == len(work) >= 1
    assert work.arrival_ns[0] == 0
    assert (np.diff(work.arrival_ns) >= 0).all()
    assert work.arrival_ns[-1] <= MAX_TIME_S * NS_PER_S
    for tokens in (work.prompt_tokens, work.output_tokens):
        assert tokens.min() >= 1
        assert tokens.max() <= MAX_TOKENS
    given_limit = work.max_tokens >= 0
    assert (work.output_tokens[given_limit] <= work.max_tokens[given_limit]).all()
    assert 0 <= work.tenant.min() <= work.tenant.max() < len(work.tenants)
    assert 0 <= work.traffic_class.min() <= work.traffic_class.max() < len(work.classes)
    assert -1 <= work.session.min() <= work.session.max() < max(len(work.sessions), 1)
    assert all(len(column) == len(work) for column in (work.output_tokens, work.priority, work.cancel_ns))
    assert work.ids is None or len(set(work.ids)) == len(work)
    if work.prefixes is not None:
        sums = np.bincount(
            np.repeat(np.arange(len(work)), np.diff(work.prefixes.offset)), work.prefixes.tokens, len(work)
        )
        assert (sums <= work.prompt_tokens).all()
        assert work.prefixes.tokens.min(initial=1) >= 1


@given(
    mutated(),
    st.sampled_from([*["auto"] * 9, *traces.FORMATS]),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 4)),
    st.sampled_from([1.0, 0.5, 3.0, 1e-12, 1e300]),
)
@settings(max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
def test_mutations_end_in_a_workload_or_a_refusal(
    content: bytes, form: str, skip_invalid: bool, limit: int | None, speedup: float
) -> None:
    """No other exception, no value out of bounds, no endless loop."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(content)
        try:
            trace = traces.read(path, format=form, skip_invalid=skip_invalid, limit=limit, speedup=speedup)
        except InvalidInput as refused:
            assert refused.problems  # noqa: PT017  a refusal says why
            assert all(str(found) for found in refused.problems)  # noqa: PT017
            assert len(refused.problems) <= 30  # noqa: PT017
            return
    check_sound(trace)
    assert limit is None or trace.rows <= limit
    described = describe(trace)
    assert described.rows == trace.rows


@given(mutated(), st.booleans())
@settings(
    max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_the_fast_way_and_the_plain_way_agree(content: bytes, skip_invalid: bool) -> None:
    """Columns cut out of bytes and rows read with csv and json give the same workload, or the same refusal."""
    assert_same(*both_ways(content, skip_invalid=skip_invalid))


def both_ways(content: bytes, **keys: Any) -> tuple[traces.Trace | str, traces.Trace | str]:
    """The trace, or the refusal, of the fast way and of the way line by line."""

    def outcome(path: Path) -> traces.Trace | str:
        try:
            return traces.read(path, **keys)
        except InvalidInput as refused:
            return str(refused)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "t"
        path.write_bytes(content)
        fast = outcome(path)
        patch.setattr(rows, "plain_csv", lambda *_: None)
        patch.setattr(rows, "plain_json", lambda *_: None)
        return fast, outcome(path)


def assert_same(fast: traces.Trace | str, slow: traces.Trace | str) -> None:
    """Equal to the byte, notes too, or refused in the same words."""
    if isinstance(fast, str) or isinstance(slow, str):
        assert fast == slow
    else:
        assert same(fast.workload, slow.workload)
        assert fast.workload.notes == slow.workload.notes
        assert fast[1:] == slow[1:]


@pytest.mark.parametrize("name", ["plain", "jsonl", "mooncake", "vllm"])
def test_the_fast_way_takes_plain_files(name: str) -> None:
    """The comparisons here are no comparisons of the slow way with itself."""
    header, _, rest = SAMPLES[name].decode().partition("\n")
    if name == "plain":
        wanted = {"arrival_s": True, "prompt_tokens": True, "output_tokens": True}
        assert plain.plain_csv(plain.Block(2, rest), header.split(","), wanted) is not None
    else:
        wanted = traces.FORMATS[name if name in traces.FORMATS else "batchsim"].wanted
        assert plain.plain_json(plain.Block(1, SAMPLES[name].decode()), wanted) is not None


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_samples_themselves_are_valid(name: str) -> None:
    """What is mutated is read before its mutation, in its own format."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(SAMPLES[name])
        trace = traces.read(path)
    assert trace.format == {"plain": "batchsim", "jsonl": "batchsim"}.get(name, name)
    check_sound(trace)


@given(st.lists(st.tuples(st.integers(0, 10**18), st.integers(1, MAX_TOKENS)), min_size=1, max_size=30))
@settings(max_examples=80, deadline=None)
def test_written_times_come_back_to_the_nanosecond(found: list[tuple[int, int]]) -> None:
    """Any nanosecond count below 1e18, written in decimals, is read exactly, in CSV and JSONL."""
    found = [(ns % (10**17 if min(found)[0] < 10**17 else 10**18), tokens) for ns, tokens in found]
    texts = [f"{ns // NS_PER_S}.{ns % NS_PER_S:09d}" for ns, _ in found]
    csv = "arrival_s,prompt_tokens,output_tokens\n" + "".join(
        f"{text},{tokens},1\n" for text, (_, tokens) in zip(texts, found, strict=True)
    )
    jsonl = "".join(
        f'{{"arrival_s": {text}, "prompt_tokens": {tokens}, "output_tokens": 1}}\n'
        for text, (_, tokens) in zip(texts, found, strict=True)
    )
    ordered = sorted(found, key=lambda row: row[0])
    with tempfile.TemporaryDirectory() as folder:
        for content in (csv, jsonl):
            path = Path(folder) / "t"
            path.write_text(content)
            work = traces.read(path).workload
            assert work.arrival_ns.tolist() == [ns - ordered[0][0] for ns, _ in ordered]
            assert work.prompt_tokens.tolist() == [tokens for _, tokens in ordered]


NAMED = st.text(alphabet='ab",\\{}[]: \t01', max_size=5)
VALUES = st.one_of(
    NAMED.map(json.dumps), NAMED.map(lambda text: f'"{text}"'), st.integers(-2, 10**12).map(str),
    st.sampled_from(["1.5", "01", ".5", "1.", "null", "[1,2]", "[3]", "[]", '"[4]"', '"', '""', '"a" ', "1e3"]),
    st.text(alphabet="0123, ", max_size=6).map(lambda text: f"[{text}]"),
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=5), st.sampled_from(["id", "a"]))
def test_the_fast_way_through_json_reads_what_the_decoder_reads(lines: list[tuple[str, str, str]], name: str) -> None:
    """Lines of any values: the fast reader gives the cells that the JSON decoder gives, or leaves the block to it."""
    text = "".join(f'{{"{name}": {one}, "n": {two}, "m": {three}}}\n' for one, two, three in lines)
    wanted = {name: True, "n": True, "m": False}
    fast = plain.plain_json(Block(1, text), wanted)
    if fast is None:
        return
    slow = rows._json_chunk(Block(1, text), wanted)
    assert not slow.broken
    assert fast.lines.tolist() == slow.lines.tolist()
    for column in wanted:
        assert list(fast.columns[column].raw) == list(slow.columns[column].raw)


def test_the_fast_way_takes_numbers_and_names() -> None:
    """What most files hold does go the fast way."""
    text = '{"id": "q-1", "n": 5, "m": 0.25}\n{"id": "", "n": 7, "m": 3}\n'
    chunk = plain.plain_json(Block(1, text), {"id": True, "n": True, "m": True})
    assert chunk is not None
    assert list(chunk.columns["id"].raw) == ["q-1", ""]


IDS = st.lists(st.integers(0, 3), max_size=4)
ODD_IDS = [
    "null", "5", "[ 1]", "[1 ]", "[1 2]", "[1,]", "[,1]", "[,]", "[1,,2]", "[1,  2]", "[1 ,2]", "[01]", "[0]", "[-1]",
    "[1.0]", "[1e2]", "[[1]]", "[1][2]", "[1]5", "[1", "1]", "]1[", "[]", '["1"]', '"[1]"', "[true]", "[1]}", "[1\n]",
    "[1\t]", "[999999999999999999]", "[9999999999999999999]", "[9223372036854775807]", "[9223372036854775808]", "[¹]",
    "[١]", '[1], "hash_ids": [2]', '[1], "x": [2]', '[1], "x": "[2]"', '[1], "x": "]["', '[1], "input_length": 1',
]  # fmt: skip
ODD_NAMES = ["", "[2]", "][", "]]", "[", "]", "[]", "[x]", "a]"]


def row_with_ids(at: int, prompt: int, ids: str, name: str = "a") -> str:
    """A row of a trace; `ids` is the key with its value."""
    return f'{{"timestamp": {at}, "input_length": {prompt}, {ids}, "kind": "{name}", "output_length": 7}}'


@st.composite
def with_ids(draw: st.DrawFn) -> str:
    """Rows of a trace with hash ids, at most two of them odd, about as many ids a row as its prompt has blocks."""
    written = [str(row) for row in draw(st.lists(IDS, min_size=1, max_size=6))]
    if draw(st.booleans()):
        written = [row.replace(" ", "") for row in written]
    for _ in range(draw(st.integers(0, 2))):
        written[draw(st.integers(0, len(written) - 1))] = draw(st.sampled_from(ODD_IDS))
    rows = []
    for at, ids in enumerate(written):
        prompt = max(1, 512 * (ids.count(",") + (ids != "[]")) + draw(st.sampled_from([0, 0, -1, -511, -512, 1])))
        label = draw(st.sampled_from(['"hash_ids": '] * 20 + ['"hash_ids":', '"hash_ids" : ', '"h\\u0061sh_ids": ']))
        name = draw(st.sampled_from(["a"] * 30 + ODD_NAMES))
        rows.append(row_with_ids(at, prompt, f"{label}{ids}", name))
    ends = draw(st.sampled_from(["\n"] * 9 + ["\r\n", "\n\n", " \n"]))
    return draw(st.sampled_from([""] * 9 + ["\ufeff"])) + ends.join(rows) + draw(st.sampled_from([ends, ""]))


@given(with_ids(), st.booleans(), st.one_of(st.none(), st.integers(1, 5)))
@settings(max_examples=400, deadline=None)
def test_hash_ids_read_at_once_are_those_read_one_by_one(text: str, skip_invalid: bool, limit: int | None) -> None:
    """The same ids, rows, refusals and line numbers, whatever stands in one of the lists."""
    fast, slow = both_ways(text.encode(), skip_invalid=skip_invalid, limit=limit, format="mooncake")
    assert_same(fast, slow)


@pytest.mark.parametrize(
    ("ids", "name"), [*((ids, "a") for ids in ODD_IDS), *(("[3]", name) for name in ODD_NAMES)]
)  # fmt: skip
@pytest.mark.parametrize("skip_invalid", [False, True])
def test_one_odd_row_between_plain_ones(ids: str, name: str, skip_invalid: bool) -> None:
    """Each thing that the fast way must leave to the other, alone in a file that is plain but for it."""
    text = "\n".join([row_with_ids(0, 512, '"hash_ids": [3]'), row_with_ids(1, 512, f'"hash_ids": {ids}', name),
                      row_with_ids(2, 1024, '"hash_ids": [3, 4]')])  # fmt: skip
    assert_same(*both_ways(text.encode(), skip_invalid=skip_invalid, format="mooncake"))


def test_a_file_of_many_blocks_is_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some blocks go the fast way and some do not: their rows keep their order, and their lines."""
    monkeypatch.setattr(trace_text, "_BLOCK_BYTES", 700)
    rows_of_file = [
        f'{{"timestamp": {at}, "input_length": {512 * (1 + at % 3)}, "output_length": 5, "hash_ids": '
        f"{[at % 4, at, at + 1][: 1 + at % 3] if at % 40 else 'null'}}}\n"
        for at in range(200)
    ]
    rows_of_file[150] = rows_of_file[150].replace("hash_ids", "hash_idz")
    rows_of_file[171] = "{}\n"
    fast, slow = both_ways("".join(rows_of_file).encode(), skip_invalid=True, format="mooncake")
    assert_same(fast, slow)
    assert isinstance(fast, traces.Trace)
    assert (fast.rows, fast.skipped) == (199, 1)
    assert "172" in fast.workload.notes[0]
