"""Parts of unfinished uploads in another S3 service, for homes that share a state: a part that one
control has received must be there for another, which completes the upload."""

import logging
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import ObjectStore as Remote

from sagehen.base.errors import Unavailable
from sagehen.services.s3.storage.files import BlobFiles, Draft, Known
from sagehen.state.pairing import BLOB_NAME

__all__ = ["SharedParts"]

log = logging.getLogger(__name__)

FOLDER = ".sagehen/parts"
"""no bucket's name begins with a dot"""
CHUNK_BYTES = 2**20
SWEPT_AT_ONCE = 500


class SharedParts(BlobFiles):
    """Drafts are local; what is kept is in the other store. Parts of earlier versions are local."""

    def __init__(self, root: Path, remote: Remote) -> None:
        super().__init__(root)
        self._remote = remote

    def keep(self, draft: Draft) -> str:
        """Raises Unavailable if the store fails."""
        draft.settle()
        try:
            obstore.put(self._remote, _path_of(draft.blob_id), draft.path)
        except BaseError as error:
            raise _unavailable(error) from error
        draft.discard()
        return draft.blob_id

    def chunks(self, blob_id: str) -> Iterator[bytes]:
        """Yields a part's bytes. Raises Unavailable."""
        try:
            with self.open(blob_id) as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
            return
        except FileNotFoundError:
            pass
        try:
            for piece in obstore.get(self._remote, _path_of(blob_id)).stream(CHUNK_BYTES):
                yield bytes(piece)
        except (NotFoundError, FileNotFoundError, BaseError) as error:
            raise _unavailable(error) from error

    def remove(self, blob_ids: Collection[str]) -> None:
        """Ignores failures: what is left has no row, and is swept."""
        super().remove(blob_ids)
        if blob_ids:
            self._delete([_path_of(blob_id) for blob_id in blob_ids])

    def sweep(self, before: float, now: float, known: Known) -> int:
        """Also deletes old parts in the other store that have no row."""
        with suppress(BaseError):
            for batch in obstore.list(self._remote, FOLDER, chunk_size=SWEPT_AT_ONCE):
                old = {
                    meta["path"].rpartition("/")[2]: meta["path"]
                    for meta in batch
                    if meta["last_modified"].timestamp() < before
                }
                ids = [blob_id for blob_id in old if BLOB_NAME.fullmatch(blob_id)]
                gone = set(ids) - known(ids) if ids else set()
                self._delete([old[blob_id] for blob_id in gone])
        return super().sweep(before, now, known)

    def _delete(self, paths: list[str]) -> None:
        if not paths:
            return
        try:
            with suppress(FileNotFoundError, NotFoundError):
                obstore.delete(self._remote, paths)
        except (BaseError, OSError) as error:
            extra = {"action": "remove_parts", "count": len(paths)}
            log.warning("Parts of uploads stay in the store for now: %s", error, extra=extra)


def _path_of(blob_id: str) -> str:
    return f"{FOLDER}/{blob_id[:2]}/{blob_id}"


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"The object store failed: {(str(error).splitlines() or [''])[0]}")
