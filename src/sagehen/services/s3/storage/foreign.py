"""Keeps objects in another S3 service, through obstore.

A bucket is the first path segment behind the store's prefix. The list of buckets and drafts stay
local; so do parts of unfinished uploads, unless several controls may share the state.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PreconditionError,
)
from obstore.store import ObjectStore as Remote

from sagehen.base.clock import Clock
from sagehen.base.errors import CommitUnknown, Unavailable
from sagehen.services.s3.storage.bookkeeping import DEFAULT_KEEPING, Bookkeeping, Keeping
from sagehen.services.s3.storage.errors import (
    BucketNotEmpty,
    ConditionFailed,
    KeyNotStorable,
    NoSuchKey,
    NoSuchUpload,
    NotSupported,
)
from sagehen.services.s3.storage.files import Draft
from sagehen.services.s3.storage.foreign_parts import SharedParts
from sagehen.services.s3.storage.listing import fold
from sagehen.services.s3.storage.records import (
    ALWAYS,
    Attributes,
    Blob,
    Listing,
    ListingQuery,
    ObjectInfo,
    Upload,
    WriteCondition,
)
from sagehen.services.s3.storage.store import CHUNK_BYTES, Copy
from sagehen.services.s3.storage.uploads import Completion, Uploads
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["ForeignObjectStore"]

_KEPT_HEADERS = {
    "cache-control": "Cache-Control",
    "content-disposition": "Content-Disposition",
    "content-encoding": "Content-Encoding",
    "content-language": "Content-Language",
    "content-type": "Content-Type",
}


_OF_NO_EFFECT = {
    ("x-amz-server-side-encryption", "AES256"),
    ("x-amz-server-side-encryption-bucket-key-enabled", "false"),
}
"""headers that name what every object has by default"""
_LAST_CHARACTER = "\U0010ffff"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ForeignObjectStore(Bookkeeping):
    """An ObjectStore over obstore, which cannot read tags: they are refused."""

    def __init__(
        self,
        remote: Remote,
        database: Database,
        root: Path,
        clock: Clock,
        writes: GroupCommit | None = None,
        keeping: Keeping = DEFAULT_KEEPING,
    ) -> None:
        super().__init__(database, root, clock, writes, keeping)
        self._remote = remote
        if database.is_shared:
            self._files = SharedParts(root, remote)
            self.uploads = Uploads(database, self._writes, self._files, clock)

    def delete_bucket(self, name: str) -> None:
        if self.list_page(name, ListingQuery(limit=1)).objects:
            raise BucketNotEmpty(f"The bucket {name} is not empty.")
        gone = self._writes.run(lambda connection: self._drop_bucket(connection, name))
        self._files.remove(gone)

    def head(self, bucket: str, key: str) -> ObjectInfo:
        return self._get(bucket, key, {"head": True})[0]

    def open(self, bucket: str, key: str) -> "ForeignObject":
        return ForeignObject(self._remote, self.head(bucket, key))

    def list_page(self, bucket: str, query: ListingQuery) -> Listing:
        self.bucket(bucket)

        def fetch(start: bytes, inclusive: bool, limit: int) -> list[ObjectInfo]:
            return list(islice(self._keys_from(bucket, query.prefix, start, inclusive), limit))

        return fold(query, fetch)

    def put(
        self,
        bucket: str,
        key: str,
        draft: Draft,
        attributes: Attributes,
        condition: WriteCondition = ALWAYS,
    ) -> ObjectInfo:
        try:
            draft.settle()
            return self._send(bucket, key, draft.path, attributes, condition)
        finally:
            draft.discard()

    def copy(self, copy: Copy) -> ObjectInfo:
        with self.open(copy.source_bucket, copy.source_key) as source:
            attributes = copy.describe(source.info)
            # obstore's copy cannot change attributes.
            draft = self.draft(copy.algorithm)
            try:
                for chunk in source.chunks():
                    draft.write(chunk)
                return self.put(copy.bucket, copy.key, draft, attributes, copy.condition)
            finally:
                draft.discard()

    def delete(self, bucket: str, keys: Sequence[str], condition: WriteCondition = ALWAYS) -> None:
        if condition != ALWAYS:
            raise NotSupported("Conditional deletes are not possible with this object store.")
        self.bucket(bucket)
        # Keys that cannot be stored do not exist.
        paths = [path for key in keys if (path := _path_or_none(bucket, key))]
        with _ours(), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._remote, paths)

    def set_tags(self, bucket: str, key: str, tags: Mapping[str, str]) -> None:
        raise NotSupported("Object tags are not possible with this object store.")

    def set_acl(self, bucket: str, key: str, acl: str) -> None:
        self.head(bucket, key)
        _check_acl(acl)

    def complete(self, upload: Upload, completion: Completion) -> ObjectInfo:
        uploaded = self.uploads.parts(upload)
        joined = self.uploads.check(upload, uploaded, completion)
        with self._joined(joined.blobs) as data:
            info = self._send(
                upload.bucket, upload.key, data, upload.attributes, completion.condition
            )
        # The object is there: an upload that is no more cannot be completed again.
        with contextlib.suppress(CommitUnknown):
            self.uploads.abort(upload)
        return info

    @contextlib.contextmanager
    def _joined(self, blobs: Sequence[Blob]) -> Iterator[Path | Iterator[bytes]]:
        if not isinstance(self._files, SharedParts):
            yield self._bytes_of(blobs)
            return
        # obstore cannot read while it writes what an iterator yields.
        draft = self.draft()
        try:
            for blob in blobs:
                for chunk in self._files.chunks(blob.blob_id):
                    draft.write(chunk)
            draft.settle()
            yield draft.path
        finally:
            draft.discard()

    def completed(self, bucket: str, key: str, upload_id: str) -> ObjectInfo:
        # The remote does not record uploads.
        raise NoSuchUpload(f"There is no upload {upload_id} of {key}.")

    def _send(
        self,
        bucket: str,
        key: str,
        data: Path | Iterator[bytes],
        attributes: Attributes,
        condition: WriteCondition,
    ) -> ObjectInfo:
        self.bucket(bucket)
        path = _path(bucket, key)
        _check_storable(attributes)
        with _ours(key):
            obstore.put(
                self._remote,
                path,
                data,
                attributes=_to_remote(attributes),
                mode=self._mode(bucket, key, condition),
            )
        return self.head(bucket, key)

    def _mode(self, bucket: str, key: str, condition: WriteCondition) -> Any:
        if condition.absent:
            return "create"
        if condition.etag is None:
            return None
        now = self.head(bucket, key)
        if condition.etag not in ("*", now.etag):
            raise ConditionFailed("If-Match")
        return {"e_tag": now.object_id}

    def _get(self, bucket: str, key: str, options: Any) -> tuple[ObjectInfo, Any]:
        path = _path_or_none(bucket, key)
        try:
            if path is None:
                raise FileNotFoundError(key)
            with _ours(key):
                result = obstore.get(self._remote, path, options=options)
        except (FileNotFoundError, NoSuchKey):
            self.bucket(bucket)
            raise NoSuchKey(f"There is no object {key} in {bucket}.") from None
        return _info(bucket, key, result.meta, _from_remote(result.attributes)), result

    def _keys_from(
        self, bucket: str, prefix: str, start: bytes, inclusive: bool
    ) -> Iterator[ObjectInfo]:
        # The remote takes only whole path segments as prefix, and exclusive offsets; the rest is
        # filtered here.
        folder = _clean(f"{bucket}/{prefix}".rpartition("/")[0])
        if inclusive and start:
            # `fold` made `start` from a common prefix by raising its last byte by one.
            offset = (start[:-1] + bytes([start[-1] - 1])).decode() + _LAST_CHARACTER
        else:
            offset = start.decode()
        with _ours():
            for batch in obstore.list(
                self._remote, folder, offset=_clean(f"{bucket}/{offset}"), chunk_size=1000
            ):
                for meta in batch:
                    key = meta["path"].removeprefix(bucket + "/")
                    raw = key.encode()
                    behind = raw >= start if inclusive else raw > start
                    if behind and key.startswith(prefix):
                        yield _info(bucket, key, meta, Attributes())

    def _bytes_of(self, blobs: Sequence[Blob]) -> Iterator[bytes]:
        for blob in blobs:
            with self._files.open(blob.blob_id) as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk


class ForeignObject:
    """An object pinned by its ETag: reads fail once it is replaced."""

    parts: Sequence[Blob] = ()

    def __init__(self, remote: Remote, info: ObjectInfo) -> None:
        self._remote = remote
        self.info = info

    def __enter__(self) -> "ForeignObject":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None: ...

    def chunks(self, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        end = self.info.size if length is None else offset + length
        if end <= offset:
            return
        options: Any = {"range": (offset, end), "if_match": self.info.object_id}
        with _ours(self.info.key):
            result = obstore.get(
                self._remote, _path(self.info.bucket, self.info.key), options=options
            )
            for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)


@contextlib.contextmanager
def _ours(key: str = "") -> Iterator[None]:
    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise NoSuchKey(f"There is no object {key}.") from error
    except AlreadyExistsError as error:
        raise ConditionFailed("If-None-Match") from error
    except PreconditionError as error:
        raise ConditionFailed("If-Match") from error
    except NotSupportedError as error:
        raise NotSupported(f"The object store cannot do this: {_first_line(error)}") from error
    except InvalidPathError as error:
        raise KeyNotStorable(
            f"The object store cannot hold this key: {_first_line(error)}"
        ) from error
    except BaseError as error:
        raise Unavailable(f"The object store failed: {_first_line(error)}") from error


def _check_storable(attributes: Attributes) -> None:
    """Raises NotSupported for attributes that the remote would drop."""
    if attributes.tags:
        raise NotSupported("Object tags are not possible with this object store.")
    _check_acl(attributes.acl)
    if attributes.storage_class != "STANDARD":
        raise NotSupported(
            f"The storage class {attributes.storage_class} is not possible with this object store."
        )
    for name, value in attributes.headers.items():
        if name not in _KEPT_HEADERS and (name, value) not in _OF_NO_EFFECT:
            raise NotSupported(f"{name}: {value} is not possible with this object store.")


def _check_acl(acl: str) -> None:
    if acl != "private":
        raise NotSupported(
            f"The ACL {acl} is not possible with this object store, which keeps no ACLs."
        )


def _first_line(error: Exception) -> str:
    # Later lines are debugging output, which may hold addresses and headers.
    return (str(error).splitlines() or [type(error).__name__])[0]


def _path_or_none(bucket: str, key: str) -> str | None:
    try:
        return _path(bucket, key)
    except KeyNotStorable:
        return None


def _path(bucket: str, key: str) -> str:
    """Raises KeyNotStorable where the remote would store another key."""
    if _clean(key) != key:
        raise KeyNotStorable(
            "This object store holds no keys with empty, `.` or `..` segments, a slash at an end, "
            "or control characters."
        )
    return f"{bucket}/{key}"


def _clean(path: str) -> str:
    """Returns the leading segments that the remote takes unchanged."""
    clean = []
    for part in path.split("/"):
        if part in ("", ".", "..") or _CONTROL.search(part):
            break
        clean.append(part)
    return "/".join(clean)


def _info(bucket: str, key: str, meta: Any, attributes: Attributes) -> ObjectInfo:
    modified: datetime = meta["last_modified"]
    etag = meta["e_tag"] or ""
    return ObjectInfo(
        bucket=bucket,
        key=key,
        object_id=etag,
        size=meta["size"],
        etag=etag.strip('"'),
        modified_at=modified.timestamp(),
        attributes=attributes,
    )


def _to_remote(attributes: Attributes) -> dict[str, str]:
    named = {
        _KEPT_HEADERS[name]: value
        for name, value in attributes.headers.items()
        if name in _KEPT_HEADERS
    }
    return {**attributes.metadata, **named}


def _from_remote(attributes: Mapping[str, str]) -> Attributes:
    names = {remote: name for name, remote in _KEPT_HEADERS.items()}
    headers = {names[name]: value for name, value in attributes.items() if name in names}
    others = {name: value for name, value in attributes.items() if name not in names}
    others.pop("Storage-Class", None)
    return Attributes(headers=headers, metadata=others)
