"""Records that every object store keeps on this machine: buckets, drafts and parts of uploads."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.services.s3 import object_rows as rows
from sagehen.services.s3.storage.errors import BucketExists, NoSuchBucket
from sagehen.services.s3.storage.files import BlobFiles, Draft
from sagehen.services.s3.storage.records import NEW_BUCKET, Bucket, BucketSettings
from sagehen.services.s3.storage.store import SmallObject
from sagehen.services.s3.storage.uploads import Uploads
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["DEFAULT_KEEPING", "Bookkeeping", "Keeping", "find_bucket"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Keeping:
    """How long files without a row are kept."""

    trash_seconds: float = 86_400
    """seconds from the trash to deletion"""
    grace_seconds: float = 3600
    """seconds before a new file may go to the trash: its row may not be committed yet"""


DEFAULT_KEEPING = Keeping()
LONGEST_WRITE_SECONDS = 600
"""seconds for which a file may wait for its row to be committed"""


class Bookkeeping:
    """The part of an ObjectStore that does not depend on where objects are.

    Args:
        root: the folder of drafts and parts.
        writes: the group commit; None makes one.
    """

    def __init__(
        self,
        database: Database,
        root: Path,
        clock: Clock,
        writes: GroupCommit | None = None,
        keeping: Keeping = DEFAULT_KEEPING,
    ) -> None:
        self._database = database
        self._clock = clock
        self._files: BlobFiles = BlobFiles(root)
        self._writes = writes or GroupCommit(database)
        self._keeping = keeping
        self._started_at = clock.now()
        self._thrown_away = 0
        self._in_trash = 0
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
        return [False] * len(smalls)

    def read_rows(
        self, connection: Connection, keys: Sequence[tuple[str, str]]
    ) -> list[SmallObject]:
        return []

    def recover(self) -> int:
        if not self._is_pair():
            return 0
        count = self._files.put_back(self._known)
        if count:
            extra = {"action": "recover_files", "count": count}
            log.warning("Files of objects were taken out of the trash again.", extra=extra)
        return count

    def sweep(self) -> int:
        if not self._is_pair():
            # Another installation's state would make all files look unused.
            extra: dict[str, object] = {"action": "sweep_files"}
            log.error(
                "The files of objects are not swept: nothing shows that they belong to this state.",
                extra=extra,
            )
            return 0
        now = self._clock.now()
        before = min(self._started_at, now - self._keeping.grace_seconds)
        self._files.drop_drafts(before)
        self._files.put_back(self._known)
        # Writes whose outcome is unknown, or whose removals failed, leave files after the start.
        before = max(before, now - max(self._keeping.grace_seconds, LONGEST_WRITE_SECONDS))
        moved = self._files.sweep(before, now, self._known)
        if moved:
            log.warning(
                "Files of objects that the state does not know were moved to objects/trash.",
                extra={"action": "sweep_files", "count": moved},
            )
        self._files.empty_trash(now - self._keeping.trash_seconds, self._known)
        self._thrown_away += moved
        self._in_trash = self._files.trash_size()
        return moved

    def measured(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        return {
            "ObjectFilesThrownAway": {(): self._thrown_away},
            "ObjectFilesInTrash": {(): self._in_trash},
        }

    def _is_pair(self) -> bool:
        with self._database.read() as connection:
            own = rows.state_id(connection)
        return own is not None and own == self._files.pair_id

    def _known(self, blob_ids: list[str]) -> set[str]:
        with self._database.read() as connection:
            return rows.known_blobs(connection, blob_ids)

    def _drop_bucket(self, connection: Connection, name: str) -> list[str]:
        """Returns ids of blobs whose files may be removed."""
        uploads = rows.uploads_of(connection, name)
        gone = [blob for upload in uploads for blob in self.uploads.drop(connection, upload)]
        rows.delete_bucket(connection, name)
        return gone


def find_bucket(connection: Connection, name: str, *, lock: bool = False) -> Bucket:
    """Locks the bucket until the transaction ends, with `lock`. Raises NoSuchBucket."""
    bucket = rows.find_bucket(connection, name, lock=lock)
    if bucket is None:
        raise NoSuchBucket(f"There is no bucket {name}.")
    return bucket
