"""What only the store on our own disk promises: whole or absent, and nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sagehen.clock import SYSTEM
from sagehen.domain.objects import Attributes, ListingQuery, ObjectInfo, WriteCondition
from sagehen.objects import Copy, LocalObjectStore, faults
from sagehen.objects.files import MOST_HELD_BYTES
from sagehen.objects.store import SmallObject
from sagehen.store.database import Database
from support.clock import HandClock

Put = Callable[..., ObjectInfo]
LARGE = bytes(MOST_HELD_BYTES + 1)

WRITER = """
import hashlib, random, sys
from pathlib import Path
from sagehen.clock import SYSTEM
from sagehen.domain.objects import Attributes
from sagehen.objects import LocalObjectStore
from sagehen.store.database import Database

store = LocalObjectStore(Database(sys.argv[1]), Path(sys.argv[2]), SYSTEM)
for number in range(10**9):
    draft = store.draft()
    draft.write(random.randbytes(random.choice([100, 100_000])))
    key = f"k{number % 7}"
    print(key, store.put("models", key, draft, Attributes()).etag, flush=True)
"""


def files(root: Path) -> int:
    return sum(path.is_file() for path in root.rglob("*"))


def later(database: Database, root: Path) -> LocalObjectStore:
    """The same store, opened again a day later."""
    return LocalObjectStore(database, root, HandClock(SYSTEM.now() + 86_400))


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
    assert files(root) == sum(info.size > MOST_HELD_BYTES for info in found)


def test_a_sweep_takes_what_nobody_knows(
    local: LocalObjectStore, put: Put, database: Database, root: Path
) -> None:
    put(local, "kept", LARGE)
    upload = local.uploads.create("models", "part", Attributes())
    part = local.draft()
    part.write(LARGE)
    local.uploads.put_part(upload, 1, part)
    unfinished = local.draft()
    unfinished.write(LARGE)
    orphan = next(path for path in (root / "blobs").rglob("*") if path.is_file())
    orphan.with_name(f"{orphan.name[:2]}orphan").write_bytes(b"nobody's")
    assert local.sweep() == 0, "what is new may be on its way in"
    assert later(database, root).sweep() == 2
    with local.open("models", "kept") as found:
        assert b"".join(found.chunks()) == LARGE
    assert len(local.uploads.parts(upload)) == 1
    unfinished.discard()


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
