"""What every object store does, ours and a foreign one."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sagehen.services.s3.storage import (
    ChosenPart,
    Completion,
    Copy,
    ObjectStore,
)
from sagehen.services.s3.storage import (
    errors as faults,
)
from sagehen.services.s3.storage.records import (
    NEW_BUCKET,
    Attributes,
    BucketSettings,
    ListingQuery,
    ObjectInfo,
    WriteCondition,
)
from sagehen.services.s3.storage.uploads import LEAST_PART_BYTES

Put = Callable[..., ObjectInfo]


def read(store: ObjectStore, key: str, *span: int) -> bytes:
    with store.open("models", key) as found:
        return b"".join(found.chunks(*span))


def files(root: Path) -> int:
    own = ("id", "backup.lock")
    return sum(path.is_file() and path.name not in own for path in root.rglob("*"))


def test_an_object_reads_as_it_was_written(store: ObjectStore, put: Put) -> None:
    attributes = Attributes(headers={"content-type": "text/csv"}, metadata={"city": "Houston"})
    put(store, "a/b.csv", b"1,2,3", attributes=attributes)
    info = store.head("models", "a/b.csv")
    assert (info.size, info.attributes) == (5, attributes)
    assert read(store, "a/b.csv") == b"1,2,3"
    assert read(store, "a/b.csv", 2, 2) == b"2,"
    assert read(store, "a/b.csv", 5) == b""


def test_an_empty_object_is_an_object(store: ObjectStore, put: Put) -> None:
    put(store, "empty")
    assert store.head("models", "empty").size == 0
    assert read(store, "empty") == b""


def test_missing_things_are_told_apart(store: ObjectStore, put: Put) -> None:
    with pytest.raises(faults.NoSuchKey):
        store.head("models", "nothing")
    with pytest.raises(faults.NoSuchBucket):
        store.head("nowhere", "nothing")
    with pytest.raises(faults.NoSuchBucket):
        store.list_page("nowhere", ListingQuery())
    with pytest.raises(faults.NoSuchBucket):
        store.delete("nowhere", ["nothing"])


def test_a_bucket_is_made_once_and_deleted_empty(store: ObjectStore, put: Put) -> None:
    with pytest.raises(faults.BucketExists):
        store.create_bucket("models")
    put(store, "a", b"1")
    with pytest.raises(faults.BucketNotEmpty):
        store.delete_bucket("models")
    store.delete("models", ["a", "never there"])
    store.delete_bucket("models")
    assert store.buckets() == []
    with pytest.raises(faults.NoSuchBucket):
        store.delete_bucket("models")


def test_settings_of_a_bucket_are_kept(store: ObjectStore) -> None:
    assert store.create_bucket("with-settings").settings == NEW_BUCKET

    def change(settings: BucketSettings) -> BucketSettings:
        return msgspec.structs.replace(settings, tags={"a": "1"})

    store.change_bucket("with-settings", change)
    assert store.bucket("with-settings").settings == change(NEW_BUCKET)
    kept = {bucket.name: bucket.settings for bucket in store.buckets()}
    assert kept["with-settings"] == change(NEW_BUCKET)
    with pytest.raises(faults.NoSuchBucket):
        store.change_bucket("none", change)


def test_conditions_hold_at_the_instant_of_the_write(store: ObjectStore, put: Put) -> None:
    first = put(store, "a", b"1", condition=WriteCondition(absent=True))
    with pytest.raises(faults.ConditionFailed):
        put(store, "a", b"2", condition=WriteCondition(absent=True))
    second = put(store, "a", b"2", condition=WriteCondition(etag=first.etag))
    with pytest.raises(faults.ConditionFailed):
        put(store, "a", b"3", condition=WriteCondition(etag=first.etag))
    with pytest.raises(faults.NoSuchKey):
        put(store, "b", b"3", condition=WriteCondition(etag=second.etag))
    assert read(store, "a") == b"2"


def test_a_refused_write_leaves_no_file(store: ObjectStore, put: Put, root: Path) -> None:
    put(store, "a", b"1")
    before = files(root)
    with pytest.raises(faults.ConditionFailed):
        put(store, "a", b"2", condition=WriteCondition(absent=True))
    store.draft().discard()
    assert files(root) == before


def test_a_copy_is_an_object_of_its_own(store: ObjectStore, put: Put) -> None:
    put(store, "a", b"same", attributes=Attributes(metadata={"of": "a"}))
    copy = Copy(
        source_bucket="models",
        source_key="a",
        bucket="models",
        key="b",
        describe=lambda source: source.attributes,
    )
    store.copy(copy)
    store.delete("models", ["a"])
    assert read(store, "b") == b"same"
    assert store.head("models", "b").attributes.metadata == {"of": "a"}


def test_a_page_folds_and_goes_on(store: ObjectStore, put: Put) -> None:
    for key in ("a/1", "a/2", "b", "c/1", "d"):
        put(store, key)
    query = ListingQuery(delimiter="/", limit=2)
    first = store.list_page("models", query)
    assert first.common_prefixes == ["a/"]
    assert [found.key for found in first.objects] == ["b"]
    assert (first.truncated, first.last) == (True, "b")
    second = store.list_page("models", ListingQuery(delimiter="/", limit=2, after=first.last))
    assert second.common_prefixes == ["c/"]
    assert [found.key for found in second.objects] == ["d"]
    assert not second.truncated


def test_a_prefix_need_not_end_at_a_slash(store: ObjectStore, put: Put) -> None:
    for key in ("x/ab", "x/abc/d", "x/b"):
        put(store, key)
    page = store.list_page("models", ListingQuery(prefix="x/a", delimiter="/"))
    assert [found.key for found in page.objects] == ["x/ab"]
    assert page.common_prefixes == ["x/abc/"]
    behind = store.list_page("models", ListingQuery(prefix="x/", after="x/abc/", delimiter="/"))
    assert [found.key for found in behind.objects] == ["x/b"]


def test_parts_become_one_object(store: ObjectStore, root: Path) -> None:
    upload = store.uploads.create("models", "big", Attributes(), "crc32")
    pieces = [b"a" * LEAST_PART_BYTES, b"b" * 10, b"not chosen"]
    chosen = []
    for number, piece in enumerate(pieces, start=1):
        draft = store.draft("crc32")
        draft.write(piece)
        part = store.uploads.put_part(upload, number, draft)
        chosen.append(ChosenPart(number, part.etag, part.checksum))
    store.complete(upload, Completion(parts=chosen[:2]))
    assert read(store, "big", LEAST_PART_BYTES - 1, 3) == b"abb"
    assert store.head("models", "big").size == LEAST_PART_BYTES + 10
    with pytest.raises(faults.NoSuchUpload):
        store.uploads.get("models", "big", upload.upload_id)
    store.delete("models", ["big"])
    assert files(root) == 0


def test_an_aborted_upload_leaves_nothing(store: ObjectStore, root: Path) -> None:
    upload = store.uploads.create("models", "big", Attributes())
    draft = store.draft()
    draft.write(b"part")
    part = store.uploads.put_part(upload, 1, draft)
    assert part.etag == hashlib.md5(b"part").hexdigest()
    store.uploads.abort(upload)
    assert files(root) == 0
    late = store.draft()
    with pytest.raises(faults.NoSuchUpload):
        store.uploads.put_part(upload, 2, late)
    assert files(root) == 0


def test_uploads_are_found_by_their_owner(store: ObjectStore) -> None:
    store.create_bucket("uploads")
    owners = {"first": "1" * 32, "second": "2" * 32, "nobody": None}
    for key, owner in owners.items():
        store.uploads.create("uploads", key, Attributes(), owner=owner)
    assert {upload.key: upload.owner for upload in store.uploads.owned()} == {
        "first": "1" * 32,
        "second": "2" * 32,
    }
    assert [upload.key for upload in store.uploads.owned("2" * 32)] == ["second"]
    assert store.uploads.owned("1" * 31 + "_") == []


def test_a_bucket_with_uploads_under_way_can_go(store: ObjectStore, root: Path) -> None:
    upload = store.uploads.create("models", "big", Attributes())
    store.uploads.put_part(upload, 1, store.draft())
    store.delete_bucket("models")
    assert files(root) == 0
