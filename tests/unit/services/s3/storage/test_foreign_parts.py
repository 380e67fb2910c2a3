"""Uploads to a foreign store by two homes that share a state in PostgreSQL."""

from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore
from sqlalchemy import text

from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Unavailable
from sagehen.services.s3.storage import ForeignObjectStore
from sagehen.services.s3.storage.files import Draft
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.s3.storage.uploads import LEAST_PART_BYTES, ChosenPart, Completion
from sagehen.state.database import Database
from support.state import opened_state

HALF = b"a" * LEAST_PART_BYTES


@pytest.fixture
def stores(postgres: Database, tmp_path: Path) -> list[ForeignObjectStore]:
    """Of two homes, over one S3."""
    with postgres.write() as connection:
        connection.execute(text("TRUNCATE buckets, uploads, blobs"))
    remote = MemoryStore()
    return [
        ForeignObjectStore(remote, postgres, tmp_path / home, SYSTEM) for home in ("one", "two")
    ]


def drafted(store: ForeignObjectStore, data: bytes) -> Draft:
    draft = store.draft()
    draft.write(data)
    return draft


def paths(store: ForeignObjectStore) -> list[str]:
    return sorted(meta["path"] for meta in obstore.list(store._remote).collect())


def test_an_upload_that_begins_at_one_is_completed_at_the_other(stores) -> None:
    one, two = stores
    one.create_bucket("models")
    upload = one.uploads.create("models", "big", Attributes())
    parts = [
        store.uploads.put_part(upload, number, drafted(store, data))
        for number, (store, data) in enumerate([(one, HALF), (two, b"end")], start=1)
    ]
    chosen = [ChosenPart(part.number, part.etag) for part in parts]
    two.complete(upload, Completion(parts=chosen))
    with one.open("models", "big") as found:
        assert b"".join(found.chunks()) == HALF + b"end"
    assert paths(one) == ["models/big"]
    assert [*one._files._drafts.iterdir(), *one._files._blobs.iterdir()] == []


def test_an_aborted_upload_leaves_nothing(stores) -> None:
    one, two = stores
    one.create_bucket("models")
    upload = one.uploads.create("models", "big", Attributes())
    one.uploads.put_part(upload, 1, drafted(one, b"x"))
    one.uploads.put_part(upload, 1, drafted(one, b"y"))
    assert len(paths(one)) == 1
    two.uploads.abort(upload)
    assert paths(one) == []


def test_parts_without_a_row_are_swept_once_they_are_old(stores) -> None:
    one, _ = stores
    one.create_bucket("models")
    upload = one.uploads.create("models", "big", Attributes())
    kept = one.uploads.put_part(upload, 1, drafted(one, b"kept"))
    one._files.keep(drafted(one, b"nobody's"))
    obstore.put(one._remote, ".sagehen/parts/readme", b"not ours")
    one._files.sweep(0, SYSTEM.now(), one._known)
    assert len(paths(one)) == 3
    one._files.sweep(SYSTEM.now() + 60, SYSTEM.now(), one._known)
    assert paths(one) == [
        f".sagehen/parts/{kept.blob_id[:2]}/{kept.blob_id}",
        ".sagehen/parts/readme",
    ]


def test_a_part_that_is_gone_is_an_error_to_retry(stores) -> None:
    one, two = stores
    one.create_bucket("models")
    upload = one.uploads.create("models", "big", Attributes())
    part = one.uploads.put_part(upload, 1, drafted(one, b"x"))
    obstore.delete(one._remote, paths(one))
    with pytest.raises(Unavailable):
        two.complete(upload, Completion(parts=[ChosenPart(1, part.etag)]))


def test_a_state_of_one_home_keeps_parts_there(empty_state: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(empty_state.read_bytes())
    with opened_state(path) as database:
        store = ForeignObjectStore(MemoryStore(), database, tmp_path / "home", SYSTEM)
        store.create_bucket("models")
        upload = store.uploads.create("models", "big", Attributes())
        store.uploads.put_part(upload, 1, drafted(store, b"x"))
        assert paths(store) == []
