"""What every store keeps on this machine: which buckets there are, drafts, and parts of uploads."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from sqlalchemy import Connection

from sagehen.clock import Clock
from sagehen.domain.bucket_settings import NEW_BUCKET, BucketSettings
from sagehen.domain.objects import Bucket
from sagehen.objects.faults import BucketExists, NoSuchBucket
from sagehen.objects.files import BlobFiles, Draft
from sagehen.objects.store import SmallObject
from sagehen.objects.uploads import Uploads
from sagehen.store import object_rows as rows
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites

__all__ = ["Bookkeeping", "find_bucket"]


class Bookkeeping:
    """The part of an ObjectStore that does not depend on where its objects are.

    Args:
        root: the folder of drafts and parts.
        writes: share their waits for the disk with others' of this process; its own where None.
    """

    def __init__(
        self, database: Database, root: Path, clock: Clock, writes: GroupedWrites | None = None
    ) -> None:
        self._database = database
        self._clock = clock
        self._files = BlobFiles(root)
        self._writes = writes or GroupedWrites(database)
        self._started_at = clock.now()
        self.uploads = Uploads(database, self._writes, self._files, clock)

    def create_bucket(self, name: str, settings: BucketSettings = NEW_BUCKET) -> Bucket:
        bucket = Bucket(name, self._clock.now(), settings)
        if not self._writes.run(lambda connection: rows.insert_bucket(connection, bucket)):
            raise BucketExists(f"There is a bucket {name} already.")
        return bucket

    def bucket(self, name: str) -> Bucket:
        with self._database.read() as connection:
            return find_bucket(connection, name)

    def change_bucket(
        self, name: str, change: Callable[[BucketSettings], BucketSettings]
    ) -> Bucket:
        def write(connection: Connection) -> Bucket:
            bucket = find_bucket(connection, name, lock=True)
            changed = msgspec.structs.replace(bucket, settings=change(bucket.settings))
            rows.set_bucket_settings(connection, name, changed.settings)
            return changed

        return self._writes.run(write)

    def buckets(self) -> list[Bucket]:
        with self._database.read() as connection:
            return rows.list_buckets(connection)

    def draft(self, algorithm: str | None = None) -> Draft:
        return self._files.draft(algorithm)

    def put_rows(self, connection: Connection, smalls: Sequence[SmallObject]) -> list[bool]:
        # No store but our own has its objects in the state.
        return [False] * len(smalls)

    def read_rows(
        self, connection: Connection, places: Sequence[tuple[str, str]]
    ) -> list[SmallObject]:
        return []

    def sweep(self) -> int:
        def known(blob_ids: list[str]) -> set[str]:
            with self._database.read() as connection:
                return rows.known_blobs(connection, blob_ids)

        return self._files.sweep(self._started_at, known)

    def _drop_bucket(self, connection: Connection, name: str) -> list[str]:
        """An empty bucket and its uploads go; the files that are nobody's then."""
        uploads = rows.uploads_of(connection, name)
        gone = [blob for upload in uploads for blob in self.uploads.drop(connection, upload)]
        rows.delete_bucket(connection, name)
        return gone


def find_bucket(connection: Connection, name: str, *, lock: bool = False) -> Bucket:
    """With `lock`, nobody else changes what it holds until the transaction ends.

    Raises:
        NoSuchBucket
    """
    bucket = rows.find_bucket(connection, name, lock=lock)
    if bucket is None:
        raise NoSuchBucket(f"There is no bucket {name}.")
    return bucket
