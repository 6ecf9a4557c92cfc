"""The result store: cut lines, several writers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from batchsim.study.store import Store


def test_a_row_comes_back_as_it_was(tmp_path: Path) -> None:
    """Floats to the last bit, None, truth values and text."""
    row = {"x": 0.1 + 0.2, "none": None, "yes": True, "text": "ä,\n"}
    Store(tmp_path / "s").add("k", row)
    assert Store(tmp_path / "s").rows() == {"k": row}


@given(st.integers(0, 200))
def test_a_file_cut_anywhere_loses_only_the_row_it_cuts(cut: int) -> None:
    """After a kill in the middle of a line the others are read, and the next row starts on a line of its own."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        for place in range(4):
            Store(path).add(f"k{place}", {"v": place})
        whole = path.read_bytes()
        kept = whole[: min(cut, len(whole))]
        path.write_bytes(kept)
        Store(path).add("new", {"v": 9})
        complete = kept.count(b"\n") + (kept.endswith(b"}}"))  # a row without its line feed is a row all the same
        rows = Store(path).rows()
        assert rows["new"] == {"v": 9}
        assert len(rows) == complete + 1


def test_two_writers_at_once_leave_every_row_whole(tmp_path: Path) -> None:
    """Four processes append 200 rows each: 800 rows, none damaged."""
    code = (
        "import sys; from pathlib import Path; from batchsim.study.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "for n in range(200): store.add(f'{sys.argv[2]}-{n}', {'v': n, 'pad': 'x' * (n % 50)})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "s"), name]) for name in "abcd"]
    assert [writer.wait() for writer in writers] == [0] * 4
    store = Store(tmp_path / "s")
    assert len(store.rows()) == 800
    assert store.damaged == 0


def test_a_reader_sees_what_others_add(tmp_path: Path) -> None:
    """rows() reads on from where it stopped."""
    mine, other = Store(tmp_path / "s"), Store(tmp_path / "s")
    other.add("a", {"v": 1})
    assert set(mine.rows()) == {"a"}
    other.add("b", {"v": 2})
    assert set(mine.rows()) == {"a", "b"}
