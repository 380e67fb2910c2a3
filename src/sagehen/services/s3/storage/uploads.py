"""Multipart uploads, until they are completed or aborted."""

import hashlib
import itertools
import secrets
from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.services.s3 import object_rows as rows
from sagehen.services.s3.storage.digests import DEFAULT_ALGORITHM, joined_checksum
from sagehen.services.s3.storage.errors import (
    BadCompletion,
    BadPart,
    BadPartOrder,
    DigestMismatch,
    NoSuchBucket,
    NoSuchUpload,
    PartTooSmall,
)
from sagehen.services.s3.storage.files import BlobFiles, Draft
from sagehen.services.s3.storage.records import (
    ALWAYS,
    OWNED,
    Attributes,
    Blob,
    Checksum,
    ChecksumKind,
    Upload,
    WriteCondition,
)
from sagehen.state.database import Database, on_rollback
from sagehen.state.group_commit import GroupCommit

__all__ = ["LEAST_PART_BYTES", "ChosenPart", "Completion", "Joined", "Uploads"]

LEAST_PART_BYTES = 5 * 2**20
"""bytes; the last part may be smaller"""
_ID_CHARACTERS = 64


class ChosenPart(msgspec.Struct, frozen=True):
    """A part that the client names."""

    number: int
    etag: str
    checksum: str | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A request to complete an upload."""

    parts: list[ChosenPart]
    checksum: str | None = None
    """expected, if given; a composite one may be without its number of parts"""
    checksum_kind: str | None = None
    """expected, if given"""
    size: int | None = None
    """expected bytes, if given"""
    condition: WriteCondition = ALWAYS


class Joined(msgspec.Struct, frozen=True):
    """The joined parts."""

    blobs: list[Blob]
    size: int
    etag: str
    checksum: Checksum | None


class Uploads:
    """The uploads under way in one object store."""

    def __init__(
        self, database: Database, writes: GroupCommit, files: BlobFiles, clock: Clock
    ) -> None:
        self._database = database
        self._writes = writes
        self._files = files
        self._clock = clock

    def create(
        self,
        bucket: str,
        key: str,
        attributes: Attributes,
        algorithm: str | None = None,
        kind: ChecksumKind = ChecksumKind.FULL_OBJECT,
        owner: str | None = None,
    ) -> Upload:
        """`owner`: 32 hexadecimal digits, as of `Upload.owner`. Raises NoSuchBucket."""
        beginning = OWNED + owner if owner else ""
        upload = Upload(
            upload_id=(beginning + secrets.token_hex(32))[:_ID_CHARACTERS],
            bucket=bucket,
            key=key,
            started_at=self._clock.now(),
            attributes=attributes,
            algorithm=algorithm,
            kind=kind,
        )

        def insert(connection: Connection) -> None:
            if rows.find_bucket(connection, bucket, lock=True) is None:
                raise NoSuchBucket(f"There is no bucket {bucket}.")
            rows.insert_upload(connection, upload)

        self._writes.run(insert)
        return upload

    def get(self, bucket: str, key: str, upload_id: str) -> Upload:
        """Raises NoSuchBucket, NoSuchUpload."""
        with self._database.read() as connection:
            upload = rows.find_upload(connection, upload_id)
            if upload is None or (upload.bucket, upload.key) != (bucket, key):
                if rows.find_bucket(connection, bucket) is None:
                    raise NoSuchBucket(f"There is no bucket {bucket}.")
                raise NoSuchUpload(f"There is no upload {upload_id} of {key}.")
        return upload

    def put_part(self, upload: Upload, number: int, draft: Draft) -> Blob:
        """Replaces an earlier part. Raises NoSuchUpload."""
        with on_rollback(lambda: self._files.drop(draft)):
            self._files.keep(draft)
            blob = Blob(
                blob_id=draft.blob_id,
                owner_id=upload.upload_id,
                number=number,
                size=draft.size,
                etag=draft.md5.hex(),
                modified_at=self._clock.now(),
                checksum=draft.checksum,
            )

            def insert(connection: Connection) -> str | None:
                if rows.find_upload(connection, upload.upload_id, lock=True) is None:
                    raise NoSuchUpload(f"There is no upload {upload.upload_id} any more.")
                return rows.put_blob(connection, blob)

            replaced = self._writes.run(insert)
        self._files.remove([replaced] if replaced else [])
        return blob

    def parts(self, upload: Upload, after: int = 0, limit: int | None = None) -> list[Blob]:
        """Returns parts by number."""
        with self._database.read() as connection:
            return rows.list_blobs(connection, upload.upload_id, after, limit)

    def list_page(
        self, bucket: str, prefix: str, after: tuple[str, str], limit: int
    ) -> list[Upload]:
        """Returns uploads by key and id. Raises NoSuchBucket."""
        with self._database.read() as connection:
            if rows.find_bucket(connection, bucket) is None:
                raise NoSuchBucket(f"There is no bucket {bucket}.")
            return rows.list_uploads(connection, bucket, prefix, after, limit)

    def owned(self, owner: str = "") -> list[Upload]:
        """Returns the uploads of one owner, or of all that have one."""
        with self._database.read() as connection:
            return rows.uploads_that_begin(connection, OWNED + owner)

    def abort(self, upload: Upload) -> None:

        def drop(connection: Connection) -> list[str]:
            return self.drop(connection, upload.upload_id)

        self._files.remove(self._writes.run(drop))

    def drop(self, connection: Connection, upload_id: str, keep: Sequence[int] = ()) -> list[str]:
        """Drops parts but those numbered in `keep`. Returns ids of blobs whose files may be removed
        after the commit."""
        if rows.find_upload(connection, upload_id, lock=True) is None:
            return []
        rows.delete_upload(connection, upload_id)
        return rows.delete_blobs(connection, upload_id, keep)

    def check(self, upload: Upload, uploaded: Sequence[Blob], completion: Completion) -> Joined:
        """Raises BadCompletion, BadPart, BadPartOrder, PartTooSmall, DigestMismatch."""
        _check_fits(upload, completion)
        blobs = _choose(uploaded, completion.parts)
        size = sum(blob.size for blob in blobs)
        if completion.size not in (None, size):
            raise BadCompletion(
                f"The provided 'x-amz-mp-object-size' header value {completion.size} does not "
                f"match what was computed: {size}"
            )
        checksum = joined_checksum(upload.algorithm, upload.kind, blobs)
        if not _is_expected(completion, checksum):
            raise DigestMismatch(
                f"The {upload.algorithm or DEFAULT_ALGORITHM} you specified did not match the "
                "calculated checksum."
            )
        return Joined(blobs, size, _etag_of(blobs), checksum)


def _check_fits(upload: Upload, completion: Completion) -> None:
    kind = upload.kind.value if upload.algorithm else "null"
    if completion.checksum_kind not in (None, kind):
        raise BadCompletion(
            f"The upload was created using the {kind} checksum mode. The complete request must use "
            "the same checksum mode."
        )
    if upload.algorithm is None or upload.kind is not ChecksumKind.COMPOSITE:
        return
    for part in completion.parts:
        if part.checksum is None:
            raise BadCompletion(
                f"The upload was created using a {upload.algorithm} checksum. The complete request "
                "must include the checksum for each part. It was missing for part "
                f"{part.number} in the request."
            )


def _choose(uploaded: Sequence[Blob], chosen: Sequence[ChosenPart]) -> list[Blob]:
    numbers = [part.number for part in chosen]
    if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
        raise BadPartOrder(
            "The list of parts was not in ascending order. Parts must be ordered by part number."
        )
    by_number = {blob.number: blob for blob in uploaded}
    blobs = []
    for part in chosen:
        blob = by_number.get(part.number)
        if blob is None or blob.etag != part.etag or part.checksum not in (None, blob.checksum):
            raise BadPart(
                "One or more of the specified parts could not be found.  The part may not have "
                "been uploaded, or the specified entity tag may not match the part's entity tag.",
                part.number,
                part.etag,
            )
        blobs.append(blob)
    for blob in blobs[:-1]:
        if blob.size < LEAST_PART_BYTES:
            raise PartTooSmall(
                f"Part {blob.number} has {blob.size} bytes; every part but the last needs at least "
                f"{LEAST_PART_BYTES}.",
                blob.number,
                blob.etag,
                blob.size,
                LEAST_PART_BYTES,
            )
    return blobs


def _is_expected(completion: Completion, checksum: Checksum | None) -> bool:
    if checksum is None:
        return completion.checksum is None
    bare = checksum.value.partition("-")[0]
    return completion.checksum in (None, bare, checksum.value)


def _etag_of(blobs: Sequence[Blob]) -> str:
    together = b"".join(bytes.fromhex(blob.etag) for blob in blobs)
    return f"{hashlib.md5(together, usedforsecurity=False).hexdigest()}-{len(blobs)}"
