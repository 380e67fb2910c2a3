"""What only the store on our own disk promises: whole or absent, and nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sagehen.base.clock import SYSTEM
from sagehen.services.s3.storage import Copy, LocalObjectStore
from sagehen.services.s3.storage import errors as faults
from sagehen.services.s3.storage.files import MOST_HELD_BYTES, BlobFiles
from sagehen.services.s3.storage.records import (
    Attributes,
    ListingQuery,
    ObjectInfo,
    WriteCondition,
)
from sagehen.services.s3.storage.store import SmallObject
from sagehen.state.database import Database
from support.clock import HandClock

Put = Callable[..., ObjectInfo]
LARGE = bytes(MOST_HELD_BYTES + 1)

WRITER = """
import hashlib, random, sys
from pathlib import Path
from sagehen.base.clock import SYSTEM
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.s3.storage import LocalObjectStore
from sagehen.state.database import Database

store = LocalObjectStore(Database(sys.argv[1]), Path(sys.argv[2]), SYSTEM)
for number in range(10**9):
    draft = store.draft()
    draft.write(random.randbytes(random.choice([100, 100_000])))
    key = f"k{number % 7}"
    print(key, store.put("models", key, draft, Attributes()).etag, flush=True)
"""


def files(root: Path) -> int:
    own = ("id", "backup.lock")
    return sum(path.is_file() and path.name not in own for path in root.rglob("*"))


def trashed_files(root: Path) -> int:
    return len(trash(root)) if (root / "trash").exists() else 0


def later(database: Database, root: Path, hours: int = 24) -> LocalObjectStore:
    """The same store, opened again so much later."""
    return LocalObjectStore(database, root, HandClock(SYSTEM.now() + hours * 3600))


def test_large_objects_are_files_and_small_ones_are_not(
    local: LocalObjectStore, put: Put, root: Path
) -> None:
    put(local, "small", LARGE[1:])
    assert files(root) == 0
    put(local, "large", LARGE)
    assert files(root) == 1
    put(local, "large", b"small now")
    assert files(root) == 0


def test_small_objects_are_put_with_what_else_is_written(
    local: LocalObjectStore, put: Put, database: Database, root: Path
) -> None:
    for key in ("old", "file"):
        put(local, key, LARGE if key == "file" else b"old")
    given = [
        ("models", "old", b"new"),
        ("models", "file", b"new"),
        ("models", "twice", b"first"),
        ("models", "twice", b"last"),
        ("models", "large", LARGE),
        ("none", "new", b"new"),
        ("no\0ne", "new", b"new"),
    ]
    smalls = [SmallObject(*one, Attributes(metadata={"a": "b"})) for one in given]
    with database.write() as connection:
        assert local.put_rows(connection, smalls) == [True, False, True, True] + [False] * 3
        connection.rollback()
    with local.open("models", "old") as found:
        assert b"".join(found.chunks()) == b"old", "nothing is there before the commit"
    with database.write() as connection:
        local.put_rows(connection, smalls)
    kept = {}
    for info in local.list_page("models", ListingQuery()).objects:
        with local.open("models", info.key) as found:
            kept[info.key] = b"".join(found.chunks())
    assert kept == {"old": b"new", "file": LARGE, "twice": b"last"}
    places = [(small.bucket, small.key) for small in smalls]
    with database.read() as connection:
        read = local.read_rows(connection, places)
    assert {one.key: one.data for one in read} == {"old": b"new", "twice": b"last"}
    assert read[0].attributes.metadata == {"a": "b"}
    as_put = put(local, "old", b"new")
    with local.open("models", "twice") as found:
        assert found.info.etag != as_put.etag
        assert found.info.attributes.metadata == {"a": "b"}
    assert files(root) == 1


def test_a_killed_writer_leaves_only_whole_objects(
    local: LocalObjectStore, database: Database, root: Path
) -> None:
    url = database.engine.url.render_as_string()
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(root)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    answered = dict(writer.stdout.readline().split() for _ in range(30))
    writer.send_signal(signal.SIGKILL)
    answered.update(line.split() for line in writer.stdout)
    writer.wait()
    writer.stdout.close()
    again = later(database, root)
    again.sweep()
    found = again.list_page("models", ListingQuery()).objects
    assert {info.key for info in found} >= set(answered)
    for info in found:
        copied = again.draft()
        with again.open("models", info.key) as content:
            for chunk in content.chunks():
                copied.write(chunk)
        assert (copied.md5.hex(), copied.size) == (info.etag, info.size)
        copied.discard()
    # The kill may fall between a file and its row; the sweep keeps such a file in the trash.
    kept = files(root) - trashed_files(root)
    assert kept == sum(info.size > MOST_HELD_BYTES for info in found)


def trash(root: Path) -> set[str]:
    return {path.name for path in (root / "trash").iterdir()}


def test_a_sweep_throws_away_what_nobody_knows_and_deletes_it_a_day_later(
    local: LocalObjectStore, put: Put, database: Database, root: Path
) -> None:
    put(local, "kept", LARGE)
    upload = local.uploads.create("models", "part", Attributes())
    part = local.draft()
    part.write(LARGE)
    local.uploads.put_part(upload, 1, part)
    unfinished = local.draft()
    unfinished.write(LARGE)
    orphan = next((root / "blobs").glob("*/*"))
    name = f"{orphan.name[:2]}{'0' * 30}"
    orphan.with_name(name).write_bytes(b"nobody's")
    other = orphan.with_name("notes.txt")
    other.write_bytes(b"somebody's")
    assert local.sweep() == 0, "what is new may be on its way in"
    swept = later(database, root)
    assert swept.sweep() == 1
    assert trash(root) == {name}
    assert (root / "trash" / name).read_bytes() == b"nobody's"
    assert swept.measured() == {
        "ObjectFilesThrownAway": {(): 1},
        "ObjectFilesInTrash": {(): 1},
    }
    assert not unfinished.path.exists(), "no draft was ever accepted"
    assert later(database, root, hours=47).sweep() == 0
    assert trash(root) == {name}, "a day is not over"
    assert later(database, root, hours=49).sweep() == 0
    assert trash(root) == set()
    assert other.exists(), "only what is named like one of ours can be nobody's"
    with local.open("models", "kept") as found:
        assert b"".join(found.chunks()) == LARGE
    assert len(local.uploads.parts(upload)) == 1
    unfinished.discard()


def test_what_somebody_else_has_among_the_drafts_and_in_the_trash_stays(
    local: LocalObjectStore, put: Put, database: Database, root: Path
) -> None:
    put(local, "kept", LARGE)
    mine = [root / place / "thesis.txt" for place in ("drafts", "trash", "trash/chapters")]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
        os.utime(path, (1, 1))
    swept = later(database, root, hours=1000)
    swept.sweep()
    assert [path for path in mine if not path.exists()] == []
    assert swept.measured()["ObjectFilesInTrash"] == {(): 0}


def test_what_is_in_the_trash_comes_back_with_its_row(
    local: LocalObjectStore, put: Put, database: Database, root: Path
) -> None:
    put(local, "k", LARGE)
    (blob,) = (path for path in (root / "blobs").rglob("*/*") if path.is_file())
    with database.write() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM blobs").fetchall()
        connection.exec_driver_sql("DELETE FROM blobs")
    assert later(database, root).sweep() == 1
    assert not blob.exists()
    with database.write() as connection:
        marks = ", ".join("?" * len(rows[0]))
        connection.exec_driver_sql(f"INSERT INTO blobs VALUES ({marks})", tuple(rows[0]))
    again = later(database, root, hours=200)
    assert again.recover() == 1
    assert again.sweep() == 0
    assert trash(root) == set()
    with again.open("models", "k") as found:
        assert b"".join(found.chunks()) == LARGE


def test_a_file_that_gets_its_row_while_it_is_swept_is_not_thrown_away(root: Path) -> None:
    store = BlobFiles(root)
    draft = store.draft()
    draft.write(LARGE)
    name = store.keep(draft)
    looks: list[list[str]] = []

    def known(blob_ids: list[str]) -> set[str]:
        looks.append(blob_ids)
        return set(blob_ids) if len(looks) > 1 else set()

    assert store.sweep(SYSTEM.now() + 60, SYSTEM.now(), known) == 0
    assert looks == [[name], [name]]
    assert trash(root) == set()
    with store.open(name) as file:
        assert file.read() == LARGE


def test_nothing_is_swept_while_state_and_files_are_not_a_pair(
    local: LocalObjectStore, put: Put, database: Database, root: Path
) -> None:
    put(local, "k", LARGE)
    before = files(root)
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM blobs")
        connection.exec_driver_sql("UPDATE state_identity SET state_id = ?", ("0" * 32,))
    assert later(database, root).sweep() == 0
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM state_identity")
    assert later(database, root).sweep() == 0
    assert files(root) == before
    assert trash(root) == set()


def test_a_full_disk_is_told_and_leaves_nothing(local: LocalObjectStore, root: Path) -> None:
    draft = local.draft()
    # Every write to this device fails as on a full disk.
    draft.path.symlink_to("/dev/full")
    draft._file = draft.path.open("wb", buffering=0)
    with pytest.raises(faults.StorageFull, match="full"):
        draft.write(LARGE)
    draft.discard()
    assert files(root) == 0
    assert not draft.path.is_symlink()


def test_a_file_that_cannot_be_kept_leaves_the_old_object(
    local: LocalObjectStore, put: Put, root: Path
) -> None:
    put(local, "k", LARGE)
    draft = local.draft()
    draft.write(LARGE)
    os.unlink(draft.path)
    with pytest.raises(FileNotFoundError):
        local.put("models", "k", draft, Attributes())
    with local.open("models", "k") as found:
        assert b"".join(found.chunks()) == LARGE
    assert files(root) == 1


def test_an_open_object_outlives_its_key(local: LocalObjectStore, put: Put) -> None:
    put(local, "k", LARGE)
    with local.open("models", "k") as found:
        local.delete("models", ["k"])
        assert b"".join(found.chunks()) == LARGE


def test_of_many_that_create_one_wins(local: LocalObjectStore, put: Put) -> None:
    won: list[int] = []

    def create(number: int) -> None:
        try:
            put(local, "k", b"%d" % number, condition=WriteCondition(absent=True))
            won.append(number)
        except faults.ConditionFailed:
            return

    threads = [threading.Thread(target=create, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    with local.open("models", "k") as found:
        assert b"".join(found.chunks()) == b"%d" % won[0]


def test_a_checksum_made_for_a_copy(local: LocalObjectStore, put: Put) -> None:
    put(local, "k", b"123456789", algorithm="crc32")
    copy = Copy(
        source_bucket="models",
        source_key="k",
        bucket="models",
        key="copy",
        describe=lambda source: source.attributes,
        algorithm="crc32c",
    )
    checksum = local.copy(copy).checksum
    assert checksum is not None
    assert (checksum.algorithm, checksum.value) == ("crc32c", "4waSgw==")
