"""Ends the multipart uploads of runners that were killed.

A runner's uploads carry the id of its job: one that nobody else knows of, as its answer was lost,
is found, too.
"""

import logging

from sagehen.base.retry import AWAY
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.state.database import Database

__all__ = ["LeftUploads"]

log = logging.getLogger(__name__)


class LeftUploads:
    """All methods block."""

    def __init__(self, database: Database, objects: ObjectStore) -> None:
        self._database = database
        self._uploads = objects.uploads
        self.may_exist = True
        """so at start: an earlier control may have been killed before it came to them"""

    def abort_of(self, job_id: str) -> None:
        """Aborts the uploads of a job that has no runner now."""
        for upload in self._uploads.owned(job_id):
            self._uploads.abort(upload)

    def abort_all(self) -> None:
        """Aborts the uploads of ended jobs; those that cannot be aborted now remain."""
        try:
            uploads = self._uploads.owned()
            owners = {upload.owner for upload in uploads if upload.owner is not None}
            with self._database.read() as connection:
                ended = transform_jobs.ended_ids(connection, owners)
            for upload in uploads:
                if upload.owner in ended:
                    self._uploads.abort(upload)
        except AWAY as error:
            log.warning("Uploads of ended transform jobs cannot be aborted yet: %s", error)
            return
        self.may_exist = False
