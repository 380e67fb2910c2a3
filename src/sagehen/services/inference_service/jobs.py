"""Describes, lists and stops the jobs of a service."""

from functools import partial
from typing import Any, Protocol

from sqlalchemy import Connection

from sagehen.base.errors import Conflict, Invalid, NotFound
from sagehen.services.inference_service import job_store as inference_jobs
from sagehen.services.inference_service.answers import describe
from sagehen.services.inference_service.records import InferenceJobRecord, InferenceState
from sagehen.services.inference_service.service import Service, load_service
from sagehen.services.inference_service.slots import Slots
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["ServiceJobs", "StopJob"]

PAGE = 50
LARGEST_PAGE = 100


class StopJob(Protocol):
    """Stops a training job, unless it has ended."""

    def __call__(self, connection: Connection, name: str, job_id: str) -> None: ...


class ServiceJobs:
    """Handles requests about jobs. Every method blocks: call it from a thread."""

    def __init__(
        self, database: Database, writes: GroupCommit, slots: Slots, stop_job: StopJob
    ) -> None:
        self._database = database
        self._writes = writes
        self._slots = slots
        self._stop_job = stop_job

    def describe(self, service: Service, name: str) -> dict[str, Any]:
        with self._database.read() as connection:
            return describe(connection, _existing(connection, service.stage, name))

    def page(self, service: Service, query: dict[str, str]) -> dict[str, Any]:
        """Returns the newest jobs, or those after `after`; raises Invalid."""
        if any("\0" in value for value in query.values()):
            raise Invalid("The query has a character that no name has.")
        limit = _limit(query.get("limit"))
        after = query.get("after")
        with self._database.read() as connection:
            if after is not None and inference_jobs.get(connection, service.stage, after) is None:
                raise Invalid(
                    f"after must be the `next` of a page; the service has no job {after!r}."
                )
            only = {name: query[name] for name in ("type",) if name in query}
            jobs = inference_jobs.page(connection, service.stage, after, limit + 1, **only)
            described = [describe(connection, job) for job in jobs[:limit]]
        more = len(jobs) > limit
        return {"jobs": described, "next": described[-1]["jobName"] if more else None}

    def stop(self, service: Service, name: str) -> dict[str, Any]:
        """Removes the job from the queue or stops its training job, unless it has ended."""
        with self._database.read() as connection:
            job = _existing(connection, service.stage, name)
        if job.state is InferenceState.QUEUED:
            self._writes.run(partial(self._remove, stage=service.stage, name=name))
        # The job may have begun in between.
        return self._writes.run(partial(self._stop, stage=service.stage, name=name))

    def _remove(self, connection: Connection, stage: str, name: str) -> None:
        service = load_service(connection, stage, lock=True)
        if service is None:
            raise Conflict("The service was deleted.")
        job = _existing(connection, stage, name)
        if job.state is InferenceState.QUEUED:
            self._slots.remove(connection, service, job)

    def _stop(self, connection: Connection, stage: str, name: str) -> dict[str, Any]:
        """Does not lock the service: the end of a training job takes that lock second."""
        job = _existing(connection, stage, name)
        if job.state is InferenceState.ACTIVE:
            self._stop_job(connection, name=job.job_name, job_id=job.job_id or "")
        return describe(connection, job)


def _existing(connection: Connection, stage: str, name: str) -> InferenceJobRecord:
    job = inference_jobs.get(connection, stage, name) if "\0" not in name else None
    if job is None:
        raise NotFound(f"There is no job {name!r} of this service.")
    return job


def _limit(text: str | None) -> int:
    if text is None:
        return PAGE
    if text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= LARGEST_PAGE:
        return int(text)
    raise Invalid(f"limit must be a number from 1 to {LARGEST_PAGE}.")
