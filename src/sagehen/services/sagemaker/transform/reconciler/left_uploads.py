"""Ends the multipart uploads of runners that were killed.

The next runner of a job does that itself: these are of jobs that have none.
"""

import contextlib
import logging

import msgspec

from sagehen.base.errors import NotFound
from sagehen.base.retry import AWAY
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.job_records import TransformProgress
from sagehen.state.database import Database

__all__ = ["LeftUploads"]

log = logging.getLogger(__name__)


class LeftUploads:
    def __init__(self, database: Database, objects: ObjectStore) -> None:
        self._database = database
        self._objects = objects
        self.may_exist = True
        """so at start: an earlier control may have been killed before it came to them"""

    def abort_all(self) -> None:
        """Aborts the uploads of ended jobs; those that cannot be aborted now remain. Blocks."""
        with self._database.read() as connection:
            left = transform_jobs.progress_with_uploads(connection)
        try:
            for progress in left:
                self._abort(progress)
        except AWAY as error:
            log.warning("Uploads of ended transform jobs cannot be aborted yet: %s", error)
            return
        self.may_exist = False

    def _abort(self, progress: TransformProgress) -> None:
        for upload in progress.uploads:
            with contextlib.suppress(NotFound):
                stored = self._objects.uploads.get(upload.bucket, upload.key, upload.upload_id)
                self._objects.uploads.abort(stored)
        with self._database.write() as connection:
            transform_jobs.save_progress(connection, msgspec.structs.replace(progress, uploads=()))
