"""`/_sagehen/transform-jobs/{job}`: the progress of a transform job."""

from typing import Any

from sagehen.base.clock import Clock
from sagehen.base.errors import NotFound
from sagehen.frame.own_paths.routes import OwnPathRequest, own_route
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.progress import describe_progress
from sagehen.state.database import Database

__all__ = ["TransformPaths"]


class TransformPaths:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.routes = [own_route("/_sagehen/transform-jobs/{name}", {"GET": self._progress})]

    def _progress(self, request: OwnPathRequest) -> dict[str, Any]:
        name = request.path["name"]
        with self._database.read() as connection:
            job = transform_jobs.get(connection, name)
            if job is None:
                raise NotFound(f"There is no transform job {name[:63]!r}.")
            progress = transform_jobs.progress_of(connection, [job.job_id])[job.job_id]
        return describe_progress(job, progress, self._clock.now())
