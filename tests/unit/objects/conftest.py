"""Object stores over a state and a folder of the test's own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from sqlalchemy import CursorResult

from sagehen.clock import SYSTEM
from sagehen.domain.objects import Attributes, ObjectInfo
from sagehen.objects import ForeignObjectStore, LocalObjectStore, ObjectStore
from sagehen.store.database import Database
from sagehen.store.pairing import pair


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def local(database: Database, root: Path) -> LocalObjectStore:
    store = LocalObjectStore(database, root, SYSTEM)
    store.create_bucket("models")
    make_pair(database, root)
    return store


def make_pair(database: Database, root: Path) -> None:
    """Give the state and the folder their id, as a start does."""
    with database.write() as connection:
        pair(lambda sql: fetched(connection.exec_driver_sql(sql)), root)


def fetched(result: CursorResult[Any]) -> Sequence[Sequence[Any]]:
    return result.fetchall() if result.returns_rows else []


@pytest.fixture
def remote() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def foreign(remote: MemoryStore, database: Database, root: Path) -> ForeignObjectStore:
    store = ForeignObjectStore(remote, database, root, SYSTEM)
    store.create_bucket("models")
    return store


@pytest.fixture(params=["local", "foreign"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Each kind of store in turn: what they have in common is tested once."""
    chosen: ObjectStore = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def put() -> Callable[..., ObjectInfo]:
    """`put(store, key, data, …)` writes an object into the bucket `models`."""

    def write(store: ObjectStore, key: str, data: bytes = b"", **more: object) -> ObjectInfo:
        draft = store.draft(str(more.pop("algorithm")) if "algorithm" in more else None)
        draft.write(data)
        attributes = more.pop("attributes", Attributes())
        return store.put("models", key, draft, attributes, **more)  # type: ignore[arg-type]

    return write
