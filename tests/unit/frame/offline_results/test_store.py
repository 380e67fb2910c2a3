"""The store of offline results: written in one go, read by key, refused when it is broken."""

import contextlib
import os
import random
import sqlite3
from pathlib import Path

import pytest

from sagehen.base.errors import Invalid
from sagehen.frame.offline_results import store
from sagehen.frame.offline_results.store import (
    ResultStore,
    StoreError,
    link_store,
    read_ahead,
    remove_drafts,
    write_store,
)


def write(path: Path, rows, fingerprint: str = "f", now: float = 5.0):
    return write_store(path, rows, fingerprint, now)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "d.v.0.db"


def test_answers_are_found_by_key_whatever_the_order_of_the_rows(path: Path) -> None:
    rows = [(b"user-%d" % number, b"answer %d" % number) for number in range(5000)]
    random.Random(3).shuffle(rows)
    write(path, iter(rows))
    store = ResultStore(path)
    assert all(store.get(key) == answer for key, answer in rows)
    assert store.get(b"user-5000") is None
    assert store.get(b"") is None


def test_keys_and_answers_are_any_bytes(path: Path) -> None:
    rows = {b"\x00\xff": b"", b"'; DROP": b"\x00", "Grün".encode(): b"x" * 20_000}
    write(path, rows.items())
    store = ResultStore(path)
    assert {key: store.get(key) for key in rows} == rows


def test_the_last_row_of_a_key_counts(path: Path) -> None:
    info = write(path, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"a", b"0")], "print", 7.0)
    store = ResultStore(path)
    assert store.get(b"a") == b"0"
    assert (info.keys, info.rows, info.fingerprint, info.built_at) == (2, 4, "print", 7.0)
    assert store.info == info


def test_a_store_without_rows_has_no_answers(path: Path) -> None:
    assert write(path, []).keys == 0
    assert ResultStore(path).get(b"a") is None


def test_a_failure_leaves_nothing_behind_and_the_old_store_alone(path: Path) -> None:
    write(path, [(b"a", b"old")])

    def rows():
        yield b"a", b"new"
        raise Invalid("row 2 is broken")

    with pytest.raises(Invalid):
        write(path, rows())
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert ResultStore(path).get(b"a") == b"old"


def test_what_a_killed_writer_left_is_overwritten(path: Path) -> None:
    for end in (".new", ".rows"):
        path.with_name(path.name + end).write_bytes(b"half a page")
    write(path, [(b"a", b"1")])
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert ResultStore(path).get(b"a") == b"1"


def test_drafts_are_removed_without_the_store(path: Path) -> None:
    write(path, [])
    path.with_name(path.name + ".new").touch()
    remove_drafts(path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_reader_keeps_its_store_when_another_takes_the_name(path: Path) -> None:
    write(path, [(b"a", b"old")])
    reader = ResultStore(path)
    assert reader.get(b"b") is None
    write(path, [(b"a", b"new"), (b"b", b"new")])
    assert (reader.get(b"a"), reader.get(b"b")) == (b"old", None)
    assert ResultStore(path).get(b"b") == b"new"
    path.unlink()
    assert reader.get(b"a") == b"old"


def test_a_link_is_the_same_store(path: Path) -> None:
    write(path, [(b"a", b"1")])
    other = path.with_name("d.v.1.db")
    link_store(path, other)
    path.unlink()
    assert ResultStore(other).get(b"a") == b"1"


def test_a_missing_store_is_refused_and_not_made(path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        ResultStore(path)
    assert not path.exists()


def test_a_file_that_is_no_database_is_refused_by_name(path: Path) -> None:
    path.write_bytes(b"key,answer\n" * 1000)
    with pytest.raises(StoreError, match=r"d\.v\.0\.db cannot be read: file is not a database"):
        ResultStore(path)


def test_a_database_of_another_program_is_refused_by_name(path: Path) -> None:
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE results (key, answer)")
    foreign.close()
    with pytest.raises(StoreError, match=r"d\.v\.0\.db is not a store of offline results"):
        ResultStore(path)


def test_a_store_of_another_format_is_refused(path: Path) -> None:
    write(path, [(b"a", b"1")])
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 2")
    other.close()
    with pytest.raises(StoreError, match="is a store of format 2"):
        ResultStore(path)


@pytest.mark.parametrize("cut", [-4096, -1, 1])
def test_a_store_of_the_wrong_size_is_refused(path: Path, cut: int) -> None:
    write(path, [(b"%d" % number, b"x" * 100) for number in range(1000)])
    os.truncate(path, path.stat().st_size + cut)
    with pytest.raises(StoreError, match=r"d\.v\.0\.db (is damaged|cannot be read)"):
        ResultStore(path)


def test_a_damaged_page_is_an_error_and_no_wrong_answer(path: Path) -> None:
    write(path, [(b"%06d" % number, b"x" * 100) for number in range(20_000)])
    data = bytearray(path.read_bytes())
    data[3 * 4096 :] = b"\xff" * (len(data) - 3 * 4096)
    path.write_bytes(data)
    with pytest.raises(StoreError, match="cannot be read"):
        ResultStore(path).get(b"019999")


def test_rows_are_sorted_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_SORTING_KIB", 16)
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    seen = set()

    def rows():
        for number in range(40_000):
            yield b"%08d" % (number * 7919 % 40_000), b"x" * 100

    def look() -> int:
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                seen.add(os.readlink(descriptor))
        return 0

    connect = store._connect

    def watched(path: Path, mode: str) -> sqlite3.Connection:
        connection = connect(path, mode)
        connection.set_progress_handler(look, 1000)
        return connection

    monkeypatch.setattr(store, "_connect", watched)
    write(folder / "d.v.0.db", rows())
    sorted_in = {Path(name).parent for name in seen if "etilqs_" in name}
    assert sorted_in == {folder}


def test_a_store_that_cannot_be_written_is_an_error(path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        write(path.parent / "missing" / "store.db", [(b"a", b"1")])


def test_a_store_is_read_ahead_unless_it_is_large_for_the_memory(path: Path, monkeypatch) -> None:
    path.write_bytes(bytes(3 * 2**20))
    reads = []
    opened = Path.open

    @contextlib.contextmanager
    def counting(self, mode):
        with opened(self, mode) as file:
            yield file
            reads.append(file.tell())

    monkeypatch.setattr(Path, "open", counting)
    for available in (6 * 2**20 - 1, 6 * 2**20):
        monkeypatch.setattr(store, "_available_bytes", lambda size=available: size)
        read_ahead(path)
    assert reads == [0, 3 * 2**20]
    read_ahead(path.with_name("gone"))


def test_the_available_memory_is_known() -> None:
    assert store._available_bytes() > 2**20
