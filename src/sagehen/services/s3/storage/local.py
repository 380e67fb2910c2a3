"""The built-in object store: bytes in files (small objects in rows), all else in rows.

A write syncs the file, commits the row, then removes the replaced file. A crash, or a commit whose
answer is lost, leaves the old or the new object, and at most an unused file for the sweep.
"""

import contextlib
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.services.s3 import object_rows as rows
from sagehen.services.s3.storage.bookkeeping import Bookkeeping, find_bucket
from sagehen.services.s3.storage.digests import base64_of, new_digest
from sagehen.services.s3.storage.errors import (
    BucketNotEmpty,
    ConditionConflict,
    ConditionFailed,
    NoSuchKey,
    NoSuchUpload,
    StorageFull,
)
from sagehen.services.s3.storage.files import MOST_HELD_BYTES, Draft
from sagehen.services.s3.storage.listing import fold
from sagehen.services.s3.storage.local_object import LocalObject
from sagehen.services.s3.storage.records import (
    ALWAYS,
    Attributes,
    Blob,
    Checksum,
    ChecksumKind,
    Listing,
    ListingQuery,
    ObjectInfo,
    Upload,
    WriteCondition,
)
from sagehen.services.s3.storage.store import Copy, SmallObject
from sagehen.services.s3.storage.uploads import Completion
from sagehen.state.database import on_rollback

__all__ = ["LocalObjectStore", "check_condition"]
_TRIES_WHILE_REPLACED = 5


class LocalObjectStore(Bookkeeping):
    """An ObjectStore over one folder and the state database."""

    def delete_bucket(self, name: str) -> None:
        def drop(connection: Connection) -> list[str]:
            find_bucket(connection, name, lock=True)
            if rows.holds_object(connection, name):
                raise BucketNotEmpty(f"The bucket {name} is not empty.")
            return self._drop_bucket(connection, name)

        self._files.remove(self._writes.run(drop))

    def head(self, bucket: str, key: str) -> ObjectInfo:
        with self._database.read() as connection:
            return _object(connection, bucket, key)

    def open(self, bucket: str, key: str) -> LocalObject:
        for _ in range(_TRIES_WHILE_REPLACED):
            with self._database.read() as connection:
                row = rows.open_object(connection, bucket, key)
                if row is None:
                    raise _missing(connection, bucket, key)
                info, data = row
                blobs = [] if data is not None else rows.list_blobs(connection, info.object_id)
            # The object may be replaced before its files are opened.
            with contextlib.suppress(FileNotFoundError):
                return LocalObject(info, blobs, self._files, data)
        raise NoSuchKey(f"The object {key} of {bucket} is being replaced all the time.")

    def list_page(self, bucket: str, query: ListingQuery) -> Listing:
        with self._database.read() as connection:
            find_bucket(connection, bucket)

            def fetch(start: bytes, inclusive: bool, limit: int) -> list[ObjectInfo]:
                prefix = query.prefix.encode()
                return rows.list_objects(connection, bucket, prefix, start, inclusive, limit)

            return fold(query, fetch)

    def put(
        self,
        bucket: str,
        key: str,
        draft: Draft,
        attributes: Attributes,
        condition: WriteCondition = ALWAYS,
    ) -> ObjectInfo:
        info = self._describe(bucket, key, draft, attributes)
        with on_rollback(lambda: self._files.drop(draft)):
            if (data := draft.held) is not None:
                replaced = self._commit(info, [], condition, data)
            else:
                self._files.keep(draft)
                replaced = self._commit(info, [_sole_blob(info, draft.blob_id)], condition)
        self._files.remove(replaced)
        return info

    def put_rows(self, connection: Connection, smalls: Sequence[SmallObject]) -> list[bool]:
        # PostgreSQL rejects text with a NUL.
        buckets = sorted({small.bucket for small in smalls if "\0" not in small.bucket})
        existing_buckets = {
            name for name in buckets if rows.find_bucket(connection, name, lock=True)
        }
        # Only `put` removes replaced files, after its commit.
        in_files = rows.in_files(connection, [(small.bucket, small.key) for small in smalls])
        new_rows = [
            self._make_row(small)
            if small.bucket in existing_buckets and (small.bucket, small.key) not in in_files
            else None
            for small in smalls
        ]
        rows.put_objects(connection, [row for row in new_rows if row is not None])
        return [row is not None for row in new_rows]

    def read_rows(
        self, connection: Connection, keys: Sequence[tuple[str, str]]
    ) -> list[SmallObject]:
        return [SmallObject(*row) for row in rows.read_objects(connection, keys)]

    def _make_row(self, small: SmallObject) -> tuple[ObjectInfo, bytes] | None:
        if len(small.data) > MOST_HELD_BYTES:
            return None
        try:
            draft = self.draft()
        except StorageFull:
            return None
        draft.write(small.data)
        return self._describe(small.bucket, small.key, draft, small.attributes), small.data

    def _describe(self, bucket: str, key: str, draft: Draft, attributes: Attributes) -> ObjectInfo:
        value = draft.checksum
        return ObjectInfo(
            bucket=bucket,
            key=key,
            object_id=secrets.token_hex(16),
            size=draft.size,
            etag=draft.md5.hex(),
            modified_at=self._clock.now(),
            attributes=attributes,
            checksum=Checksum(draft.algorithm, value) if draft.algorithm and value else None,
        )

    def copy(self, copy: Copy) -> ObjectInfo:
        with self.open(copy.source_bucket, copy.source_key) as source:
            attributes = copy.describe(source.info)
            etag, checksum = _digests_of(source, copy.algorithm)
            info = msgspec.structs.replace(
                source.info,
                bucket=copy.bucket,
                key=copy.key,
                object_id=secrets.token_hex(16),
                modified_at=self._clock.now(),
                etag=etag,
                attributes=attributes,
                checksum=checksum,
            )
            blobs: list[Blob] = []
            with on_rollback(lambda: self._files.remove([blob.blob_id for blob in blobs])):
                for blob in source.parts:
                    twin = source.link(blob)
                    blobs.append(
                        msgspec.structs.replace(blob, blob_id=twin, owner_id=info.object_id)
                    )
                replaced = self._commit(info, blobs, copy.condition, source.data)
        self._files.remove(replaced)
        return info

    def delete(self, bucket: str, keys: Sequence[str], condition: WriteCondition = ALWAYS) -> None:
        def drop(connection: Connection) -> list[str]:
            find_bucket(connection, bucket, lock=True)
            gone: list[str] = []
            deleted = []
            for key in keys:
                old = rows.find_object(connection, bucket, key)
                check_condition(condition, old)
                if old is not None:
                    rows.delete_object(connection, bucket, key)
                    gone += _delete_blobs_of(connection, old)
                    deleted.append(key)
            if deleted:
                rows.note_deletions(connection, bucket, deleted)
            return gone

        self._files.remove(self._writes.run(drop))

    def set_tags(self, bucket: str, key: str, tags: Mapping[str, str]) -> None:
        self._change_attributes(bucket, key, tags=tags)

    def set_acl(self, bucket: str, key: str, acl: str) -> None:
        self._change_attributes(bucket, key, acl=acl)

    def _change_attributes(self, bucket: str, key: str, **changes: Any) -> None:
        def change(connection: Connection) -> None:
            find_bucket(connection, bucket, lock=True)
            info = _object(connection, bucket, key)
            rows.set_attributes(
                connection, info, msgspec.structs.replace(info.attributes, **changes)
            )

        self._writes.run(change)

    def complete(self, upload: Upload, completion: Completion) -> ObjectInfo:
        def join(connection: Connection) -> tuple[ObjectInfo, list[str]]:
            find_bucket(connection, upload.bucket, lock=True)
            old = rows.find_object(connection, upload.bucket, upload.key)
            current = rows.find_upload(connection, upload.upload_id, lock=True)
            if current is None:
                raise NoSuchUpload(f"There is no upload {upload.upload_id} any more.")
            uploaded = rows.list_blobs(connection, upload.upload_id)
            joined = self.uploads.check(upload, uploaded, completion)
            check_condition(completion.condition, old)
            _check_undisturbed(completion.condition, current, old)
            info = ObjectInfo(
                bucket=upload.bucket,
                key=upload.key,
                object_id=upload.upload_id,
                size=joined.size,
                etag=joined.etag,
                modified_at=self._clock.now(),
                attributes=upload.attributes,
                checksum=joined.checksum,
            )
            gone = self.uploads.drop(
                connection, upload.upload_id, keep=[blob.number for blob in joined.blobs]
            )
            gone += _delete_blobs_of(connection, old)
            rows.put_object(connection, info)
            return info, gone

        info, gone = self._writes.run(join)
        self._files.remove(gone)
        return info

    def completed(self, bucket: str, key: str, upload_id: str) -> ObjectInfo:
        with contextlib.suppress(NoSuchKey):
            info = self.head(bucket, key)
            if info.object_id == upload_id:
                return info
        raise NoSuchUpload(f"There is no upload {upload_id} of {key}.")

    def _commit(
        self,
        info: ObjectInfo,
        blobs: Sequence[Blob],
        condition: WriteCondition,
        data: bytes | None = None,
    ) -> list[str]:
        """Returns ids of replaced blobs, whose files may be removed."""

        def replace(connection: Connection) -> list[str]:
            find_bucket(connection, info.bucket, lock=True)
            old = rows.find_object(connection, info.bucket, info.key)
            check_condition(condition, old)
            rows.put_object(connection, info, data)
            rows.insert_blobs(connection, blobs)
            return _delete_blobs_of(connection, old)

        return self._writes.run(replace)


def check_condition(condition: WriteCondition, old: ObjectInfo | None) -> None:
    """Raises ConditionFailed, or NoSuchKey for an ETag of an absent object."""
    if condition.absent and old is not None:
        raise ConditionFailed("If-None-Match")
    if condition.etag is not None:
        if old is None:
            raise NoSuchKey("The object that the write depends on does not exist.")
        if condition.etag not in ("*", old.etag):
            raise ConditionFailed("If-Match")


def _check_undisturbed(condition: WriteCondition, upload: Upload, old: ObjectInfo | None) -> None:
    """Raises ConditionConflict if the key was written or deleted since the upload began."""
    if condition.absent and upload.key_deleted:
        raise ConditionConflict("If-None-Match")
    if condition.etag is not None and old is not None and old.modified_at >= upload.started_at:
        raise ConditionConflict("If-Match")


def _object(connection: Connection, bucket: str, key: str) -> ObjectInfo:
    info = rows.find_object(connection, bucket, key)
    if info is None:
        raise _missing(connection, bucket, key)
    return info


def _missing(connection: Connection, bucket: str, key: str) -> NoSuchKey:
    """Raises NoSuchBucket if the bucket is missing too."""
    find_bucket(connection, bucket)
    return NoSuchKey(f"There is no object {key} in {bucket}.")


def _delete_blobs_of(connection: Connection, old: ObjectInfo | None) -> list[str]:
    if old is None:
        return []
    return rows.delete_blobs(connection, old.object_id)


def _sole_blob(info: ObjectInfo, blob_id: str) -> Blob:
    return Blob(
        blob_id=blob_id,
        owner_id=info.object_id,
        number=1,
        size=info.size,
        etag=info.etag,
        modified_at=info.modified_at,
        checksum=info.checksum.value if info.checksum else None,
    )


def _digests_of(source: LocalObject, algorithm: str | None) -> tuple[str, Checksum | None]:
    """Returns ETag and checksum of a copy. They are of all bytes: a copy is not in parts."""
    etag, stored = source.info.etag, source.info.checksum
    algorithm = algorithm or (stored.algorithm if stored else None)
    fits = stored is not None and stored.kind is ChecksumKind.FULL_OBJECT
    if stored is not None and fits and stored.algorithm == algorithm:
        algorithm = None
    if "-" not in etag and algorithm is None:
        return etag, stored
    md5 = hashlib.md5(usedforsecurity=False)
    digest = new_digest(algorithm) if algorithm else None
    for chunk in source.chunks():
        md5.update(chunk)
        if digest:
            digest.update(chunk)
    if algorithm and digest:
        stored = Checksum(algorithm, base64_of(digest.digest()))
    return md5.hexdigest(), stored
