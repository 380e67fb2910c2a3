"""No accepted object is lost, whatever happens to a commit or after it."""

import contextlib
import errno
import itertools
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from sagehen.base.clock import SYSTEM
from sagehen.base.errors import CommitUnknown, SagehenError
from sagehen.services.s3.storage import Copy, ForeignObjectStore, LocalObjectStore, ObjectStore
from sagehen.services.s3.storage import errors as faults
from sagehen.services.s3.storage.bookkeeping import Bookkeeping
from sagehen.services.s3.storage.files import MOST_HELD_BYTES, Draft
from sagehen.services.s3.storage.foreign_parts import SharedParts
from sagehen.services.s3.storage.records import Attributes, Upload
from sagehen.services.s3.storage.uploads import ChosenPart, Completion
from sagehen.services.s3.tables import BLOBS
from sagehen.state.database import Database
from support.clock import HandClock
from support.failing_calls import FailingCalls
from support.fixtures.objects import make_pair
from support.postgres_proxy import PostgresProxy

OLD = b"o" * (MOST_HELD_BYTES + 1)
NEW = b"n" * (MOST_HELD_BYTES + 1)
SMALL = b"n"
GONE = None

CUT_COMMITS = 50
"""of each operation"""
ERRORS = (errno.EMFILE, errno.ENOSPC, errno.EIO)
LONG_AFTER_SECONDS = 7200


@dataclass
class Write:
    """One operation that replaces an accepted object or part."""

    store: ObjectStore
    key: str

    def accept(self) -> None:
        """Has the store accept the first content."""
        self.put(OLD)

    def act(self) -> None:
        """Replaces the content."""
        self.put(NEW)

    def put(self, data: bytes, key: str | None = None) -> None:
        with self.drafted(data) as draft:
            self.store.put("models", key or self.key, draft, Attributes())

    @contextlib.contextmanager
    def drafted(self, data: bytes) -> Iterator[Draft]:
        draft = self.store.draft()
        try:
            draft.write(data)
            yield draft
        finally:
            draft.discard()

    def read(self, store: ObjectStore | None = None) -> bytes | None:
        try:
            with (store or self.store).open("models", self.key) as found:
                return b"".join(found.chunks())
        except faults.NoSuchKey:
            return GONE


class Put(Write):
    pass


class PutSmall(Write):
    def act(self) -> None:
        self.put(SMALL)


class CopyOver(Write):
    def accept(self) -> None:
        self.put(OLD)
        self.put(NEW, self.key + "-source")

    def act(self) -> None:
        self.store.copy(
            Copy(
                source_bucket="models",
                source_key=self.key + "-source",
                bucket="models",
                key=self.key,
                describe=lambda source: source.attributes,
            )
        )


class Delete(Write):
    def act(self) -> None:
        self.store.delete("models", [self.key])


class _OfUpload(Write):
    upload: Upload

    def put_part(self, data: bytes) -> None:
        with self.drafted(data) as draft:
            self.store.uploads.put_part(self.upload, 1, draft)

    def complete(self, store: ObjectStore) -> None:
        parts = store.uploads.parts(self.upload)
        chosen = [ChosenPart(part.number, part.etag) for part in parts]
        store.complete(self.upload, Completion(parts=chosen))


class PutPart(_OfUpload):
    def accept(self) -> None:
        self.upload = self.store.uploads.create("models", self.key, Attributes())
        self.put_part(OLD)

    def act(self) -> None:
        self.put_part(NEW)

    def read(self, store: ObjectStore | None = None) -> bytes | None:
        """Completes the upload, as parts cannot be read."""
        self.complete(store or self.store)
        return super().read(store)


class Complete(_OfUpload):
    def accept(self) -> None:
        self.put(OLD)
        self.upload = self.store.uploads.create("models", self.key, Attributes())
        self.put_part(NEW)

    def act(self) -> None:
        self.complete(self.store)


WRITES = {
    "put": Put,
    "put_small": PutSmall,
    "copy": CopyOver,
    "delete": Delete,
    "put_part": PutPart,
    "complete": Complete,
}
RESULTS: dict[str, bytes | None] = {"put_small": SMALL, "delete": GONE}
"""NEW for the others"""

MakeStore = Callable[..., ObjectStore]


@pytest.fixture(params=["local", "foreign"])
def make_store(request: pytest.FixtureRequest, root: Path) -> MakeStore:
    """`make_store(database, clock)` opens the same store each time."""
    remote = MemoryStore()

    def make(database: Database, clock: Any = SYSTEM) -> ObjectStore:
        if request.param == "foreign":
            return ForeignObjectStore(remote, database, root, clock)
        return LocalObjectStore(database, root, clock)

    return make


def opened(make_store: MakeStore, database: Database, root: Path) -> ObjectStore:
    """A store with the bucket of these tests."""
    store = make_store(database)
    store.create_bucket("models")
    make_pair(database, root)
    return store


@pytest.mark.parametrize("any_database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("name", ["put", "copy", "put_part", "complete"])
def test_lost_answer_to_commit_loses_no_object(
    any_database: Database,
    proxied: Database,
    proxy: PostgresProxy,
    make_store: MakeStore,
    root: Path,
    name: str,
) -> None:
    opened(make_store, any_database, root)
    cut = make_store(proxied)
    writes = [WRITES[name](cut, f"k{number}") for number in range(CUT_COMMITS)]
    for write in writes:
        write.accept()
        proxy.cuts_commits = True
        with contextlib.suppress(CommitUnknown):
            write.act()
        proxy.cuts_commits = False
    # A put into another store commits nothing.
    is_foreign = isinstance(cut, ForeignObjectStore)
    assert proxy.cuts == (0 if is_foreign and name in ("put", "copy") else CUT_COMMITS)
    store = make_store(any_database)
    assert [write.key for write in writes if write.read(store) != NEW] == []
    check_leftovers(store, root)


def check_leftovers(store: ObjectStore, root: Path) -> None:
    """Checks that a sweep leaves the files that have a row, and no others."""
    assert isinstance(store, Bookkeeping)
    store._clock = HandClock(SYSTEM.now() + LONG_AFTER_SECONDS)
    store.sweep()
    with store._database.read() as connection:
        rows = set(connection.scalars(select(BLOBS.c.blob_id)))
    files = {path.name for path in (root / "blobs").glob("*/*")}
    assert files == (set() if isinstance(store._files, SharedParts) else rows)


@pytest.mark.parametrize("name", WRITES)
def test_no_failing_call_loses_an_object(
    any_database: Database, make_store: MakeStore, root: Path, name: str
) -> None:
    """Fails each call of a write in turn: those before its commit, and those behind it."""
    store = opened(make_store, any_database, root)
    result = RESULTS.get(name, NEW)
    write = WRITES[name](store, "first")
    write.accept()
    calls = FailingCalls()
    with calls.active():
        write.act()
    assert write.read() == result

    lost = []
    for number, code in itertools.product(range(1, calls.count + 1), ERRORS):
        write = WRITES[name](store, f"k{number}-{code}")
        write.accept()
        failing = FailingCalls(number, code)
        try:
            with failing.active():
                write.act()
            allowed = [result]
        except (SagehenError, OSError, DBAPIError):
            allowed = [OLD, result]
        if write.read() not in allowed:
            lost.append((write.key, failing.failed))
    assert lost == []
    check_leftovers(store, root)


@pytest.mark.parametrize("name", WRITES)
def test_lack_of_descriptors_after_a_commit_loses_no_object(
    any_database: Database,
    make_store: MakeStore,
    root: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = opened(make_store, any_database, root)
    write = WRITES[name](store, "k")
    write.accept()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    commit = any_database.engine.dialect.do_commit

    def commit_and_squeeze(connection: Any) -> None:
        commit(connection)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))

    with monkeypatch.context() as patch:
        patch.setattr(any_database.engine.dialect, "do_commit", commit_and_squeeze)
        try:
            write.act()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert write.read() == RESULTS.get(name, NEW)
