"""A home with objects, to back up and to compare."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sagehen.base.clock import SYSTEM
from sagehen.base.credentials import make_credentials
from sagehen.base.home import prepare_home
from sagehen.services.s3.storage import open_object_store
from sagehen.services.s3.storage.records import Attributes, ListingQuery
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.state.database import Database
from sagehen.state.opening import open_state
from support.state import settings_of

LARGE = {f"k{number}": bytes([number]) * (20_000 + number) for number in range(5)}


@contextmanager
def opened(home: Path, **settings: object) -> Iterator[ObjectStore]:
    """A start of a server, as far as its objects."""
    chosen = settings_of(home, **settings)
    place = prepare_home(home)
    open_state(chosen)
    make_credentials(place.credentials)
    database = Database(chosen.state_url)
    try:
        objects = open_object_store(chosen, place, database, SYSTEM)
        objects.recover()
        yield objects
    finally:
        database.close()


def put(objects: ObjectStore, key: str, data: bytes) -> None:
    draft = objects.draft()
    draft.write(data)
    objects.put("bucket", key, draft, Attributes())


def read(objects: ObjectStore, key: str) -> bytes:
    with objects.open("bucket", key) as found:
        return b"".join(found.chunks())


def contents(objects: ObjectStore) -> dict[str, bytes]:
    keys = [one.key for one in objects.list_page("bucket", ListingQuery(limit=1000)).objects]
    return {key: read(objects, key) for key in keys}


@pytest.fixture
def home(short_path: Path) -> Path:
    path = short_path / "home"
    with opened(path) as objects:
        objects.create_bucket("bucket")
        for key, data in LARGE.items():
            put(objects, key, data)
        put(objects, "small", b"in a row")
    (path / "sagehen.toml").write_text('region = "eu-west-1"\n')
    (path / "token").write_text("of whoever makes one")
    return path


@pytest.fixture
def target(short_path: Path) -> Path:
    return short_path / "backup"


def check(home: Path, **settings: object) -> None:
    with opened(home, **settings) as objects:
        assert contents(objects) == {**LARGE, "small": b"in a row"}
