"""Homes whose state and object files do not belong together."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sagehen.base.clock import SYSTEM
from sagehen.base.home import prepare_home
from sagehen.services.s3.storage import open_object_store
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.state.database import Database
from sagehen.state.opening import open_state
from support.clock import HandClock
from support.earlier_state import make_earlier
from support.state import settings_of

__all__ = [
    "LATER",
    "OBJECTS",
    "PAGE",
    "REFUSED",
    "STARTED",
    "Homes",
    "Spoil",
    "add_blobs",
    "cut",
    "files",
    "fill",
    "forget_id",
    "leave_wal",
    "make_database",
    "make_legacy",
    "overwrite",
    "put_empty",
    "put_state",
    "remove_state",
    "replace_some",
    "run_sql",
    "start",
    "swap_blobs",
    "write",
    "write_id",
]

OBJECTS = {f"k{number}": bytes([number]) * (20_000 + number) for number in range(5)}
LATER = {f"later{number}": bytes([100 + number]) * (30_000 + number) for number in range(3)}
PAGE = 4096


def start(
    home: Path, use: Callable[[ObjectStore], None] = lambda _: None, **settings: object
) -> None:
    """A start, with a sweep as of two hours later. Raises what ends one."""
    chosen = settings_of(home, object_grace_seconds=0, **settings)
    prepared = prepare_home(home)
    open_state(chosen)
    database = Database(chosen.state_url)
    try:
        objects = open_object_store(chosen, prepared, database, HandClock(SYSTEM.now() + 7200))
        objects.recover()
        use(objects)
        objects.sweep()
    finally:
        database.close()


def write(objects: ObjectStore, contents: dict[str, bytes]) -> None:
    for key, data in contents.items():
        draft = objects.draft()
        draft.write(data)
        objects.put("bucket", key, draft, Attributes())


def fill(objects: ObjectStore) -> None:
    objects.create_bucket("bucket")
    write(objects, OBJECTS | {"small": b"in a row"})
    upload = objects.uploads.create("bucket", "part", Attributes())
    part = objects.draft()
    part.write(b"p" * 20_000)
    objects.uploads.put_part(upload, 1, part)


def replace_some(objects: ObjectStore) -> None:
    write(objects, LATER)


def make_legacy(home: Path) -> None:
    """As the version before left it."""
    make_earlier(home / "state.db", "0008")
    forget_id(home)


class Homes:
    """Copies of the templates, for one test."""

    def __init__(self, templates: Path, folder: Path) -> None:
        self._templates = templates
        self._folder = folder
        self.mine = self.take("mine")

    def take(self, name: str) -> Path:
        target = self._folder / name
        if not target.exists():
            shutil.copytree(self._templates / name, target, symlinks=True)
        return target


def files(home: Path) -> set[str]:
    """Objects' files by name and content, those in the trash too."""
    objects = home / "objects"
    return {
        f"{path.name}:{path.stat().st_size}"
        for path in (*objects.glob("blobs/*/*"), *objects.glob("trash/*"))
        if path.is_file()
    }


def remove_state(home: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        (home / f"state.db{end}").unlink(missing_ok=True)


def put_state(home: Path, source: Path) -> None:
    remove_state(home)
    shutil.copyfile(source / "state.db", home / "state.db")


def forget_id(home: Path) -> None:
    (home / "objects/blobs/id").unlink()


def write_id(home: Path, text: bytes) -> None:
    (home / "objects/blobs/id").write_bytes(text)


def overwrite(home: Path, offset: int, data: bytes) -> None:
    with (home / "state.db").open("r+b") as file:
        file.seek(offset)
        file.write(data)


def cut(home: Path, share: float) -> None:
    os.truncate(home / "state.db", int((home / "state.db").stat().st_size * share))


def run_sql(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "state.db")) as state:
        for one in statements:
            state.execute(one)
        state.commit()


def leave_wal(home: Path, source: Path) -> None:
    """The log beside a state, of a server of `source` that was killed."""
    with closing(sqlite3.connect(source / "state.db")) as state:
        state.execute("PRAGMA journal_mode = WAL")
        state.execute("INSERT INTO buckets (name, created_at) VALUES ('late', 0)")
        state.commit()
        wal = (source / "state.db-wal").read_bytes()
    (home / "state.db-wal").write_bytes(wal)


def swap_blobs(homes: Homes) -> None:
    """The files of the other home, with that one's id where they bring it."""
    shutil.rmtree(homes.mine / "objects/blobs")
    shutil.copytree(homes.take("other") / "objects/blobs", homes.mine / "objects/blobs")


def add_blobs(homes: Homes) -> None:
    """The files of the other home among one's own."""
    for path in (homes.take("other") / "objects/blobs").glob("*/*"):
        target = homes.mine / "objects/blobs" / path.parent.name
        target.mkdir(exist_ok=True)
        shutil.copyfile(path, target / path.name)


Spoil = Callable[[Homes], object]
REFUSED: dict[str, Spoil] = {
    "no state": lambda it: remove_state(it.mine),
    "no state, no id": lambda it: (remove_state(it.mine), forget_id(it.mine)),
    "0 bytes": lambda it: (remove_state(it.mine), (it.mine / "state.db").touch()),
    "0 bytes, no id": lambda it: (put_empty(it.mine), forget_id(it.mine)),
    "0 bytes beside the old log": lambda it: (
        put_empty(it.mine),
        leave_wal(it.mine, it.take("older")),
    ),
    "cut to a page": lambda it: os.truncate(it.mine / "state.db", PAGE),
    "cut to 100 bytes": lambda it: os.truncate(it.mine / "state.db", 100),
    "cut to 1 byte": lambda it: os.truncate(it.mine / "state.db", 1),
    "cut in half": lambda it: cut(it.mine, 0.5),
    "cut by a tenth": lambda it: cut(it.mine, 0.9),
    "random bytes": lambda it: (it.mine / "state.db").write_bytes(os.urandom(100_000)),
    "text": lambda it: (it.mine / "state.db").write_text("this is no database\n" * 999),
    "zeroes": lambda it: (it.mine / "state.db").write_bytes(bytes(100_000)),
    "random head": lambda it: overwrite(it.mine, 0, os.urandom(100)),
    "random second page": lambda it: overwrite(it.mine, PAGE, os.urandom(PAGE)),
    "random pages": lambda it: overwrite(it.mine, 3 * PAGE, os.urandom(9 * PAGE)),
    "zeroed pages": lambda it: overwrite(it.mine, 3 * PAGE, bytes(9 * PAGE)),
    "an archive": lambda it: (it.mine / "state.db").write_bytes(b"\x1f\x8b" + os.urandom(999)),
    "a folder": lambda it: (remove_state(it.mine), (it.mine / "state.db").mkdir()),
    "a link to nothing": lambda it: (
        remove_state(it.mine),
        (it.mine / "state.db").symlink_to("no"),
    ),
    "another database": lambda it: (remove_state(it.mine), make_database(it.mine / "state.db")),
    "the other home's": lambda it: put_state(it.mine, it.take("other")),
    "the other home's, no id": lambda it: (
        put_state(it.mine, it.take("other")),
        forget_id(it.mine),
    ),
    "the other home's, with its log": lambda it: (
        put_state(it.mine, it.take("other")),
        leave_wal(it.mine, it.take("other")),
    ),
    "the other home's, of an earlier version": lambda it: (
        make_legacy(it.take("other")),
        put_state(it.mine, it.take("other")),
    ),
    "a new server's": lambda it: (
        start(it.mine.parent / "new"),
        put_state(it.mine, it.mine.parent / "new"),
    ),
    "a new server's, no id": lambda it: (
        start(it.mine.parent / "new"),
        put_state(it.mine, it.mine.parent / "new"),
        forget_id(it.mine),
    ),
    "a newer version's": lambda it: run_sql(
        it.mine, "UPDATE alembic_version SET version_num = '9999'"
    ),
    "its id is another": lambda it: run_sql(
        it.mine, f"UPDATE state_identity SET state_id = '{'a' * 32}'"
    ),
    "no rows of files": lambda it: (run_sql(it.mine, "DELETE FROM blobs"), forget_id(it.mine)),
    "the folder's id is another": lambda it: write_id(it.mine, b"b" * 32),
    "the folder's id is empty": lambda it: write_id(it.mine, b""),
    "the folder's id is random": lambda it: write_id(it.mine, os.urandom(32)),
    "the folder's id is the other home's": lambda it: write_id(
        it.mine, (it.take("other") / "objects/blobs/id").read_bytes()
    ),
    "blobs of the other home": swap_blobs,
    "blobs of the other home, no id": lambda it: (swap_blobs(it), forget_id(it.mine)),
    "no files": lambda it: shutil.rmtree(it.mine / "objects"),
    "no blobs": lambda it: shutil.rmtree(it.mine / "objects/blobs"),
    "an earlier version's, empty": lambda it: (
        make_legacy(it.mine),
        run_sql(it.mine, "DELETE FROM blobs", "DELETE FROM objects"),
    ),
    "an earlier version's, of the other home": lambda it: (
        make_legacy(it.take("other")),
        make_legacy(it.mine),
        put_state(it.mine, it.take("other")),
    ),
    "an earlier version's, without files": lambda it: (
        make_legacy(it.mine),
        shutil.rmtree(it.mine / "objects"),
    ),
}
"""Starts that are to be refused, with what makes them so."""

STARTED: dict[str, Spoil] = {
    "its own": lambda it: None,
    "a copy of the home": lambda it: None,
    "an older copy": lambda it: put_state(it.mine, it.take("older")),
    "an older copy beside the log": lambda it: (
        put_state(it.mine, it.take("older")),
        leave_wal(it.mine, it.take("older")),
    ),
    "an older copy, no id": lambda it: (put_state(it.mine, it.take("older")), forget_id(it.mine)),
    "an older copy of an earlier version": lambda it: (
        make_legacy(it.take("older")),
        put_state(it.mine, it.take("older")),
    ),
    "an earlier version's": lambda it: make_legacy(it.mine),
    "the folder's id is gone": lambda it: forget_id(it.mine),
    "the state's id is gone": lambda it: run_sql(it.mine, "DELETE FROM state_identity"),
    "no trash": lambda it: (it.mine / "objects/trash").rmdir(),
    "some blobs of the other home among them": add_blobs,
    "a part of the objects' rows is gone": lambda it: run_sql(
        it.mine, "DELETE FROM blobs WHERE rowid % 2 = 0"
    ),
    "its own id, but no file that it names": lambda it: (
        swap_blobs(it),
        shutil.copyfile(it.take("older") / "objects/blobs/id", it.mine / "objects/blobs/id"),
    ),
    "its own id, but no rows of files": lambda it: run_sql(it.mine, "DELETE FROM blobs"),
    "an earlier version's with small objects and a file of none": lambda it: (
        make_legacy(it.mine),
        run_sql(
            it.mine,
            "DELETE FROM objects WHERE data IS NULL",
            "DELETE FROM blobs",
        ),
        [path.unlink() for path in sorted((it.mine / "objects/blobs").glob("*/*"))[1:]],
    ),
    "no files but the id": lambda it: [
        shutil.rmtree(one) for one in (it.mine / "objects/blobs").glob("*/")
    ],
    "all in the trash": lambda it: [
        path.rename(it.mine / "objects/trash" / path.name)
        for path in (it.mine / "objects/blobs").glob("*/*")
    ],
}
"""Starts that succeed: what the state does not know goes to the trash."""


def put_empty(home: Path) -> None:
    remove_state(home)
    (home / "state.db").touch()


def make_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE notes (text TEXT)")
