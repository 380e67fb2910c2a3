"""Creates, changes and deletes services: that of sagehen.toml at control's start, others by
request."""

import logging
from functools import partial
from typing import Any

import msgspec
from pydantic import ValidationError
from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.base.errors import AlreadyExists, Conflict, Invalid, NotFound, SagehenError
from sagehen.base.settings import Settings
from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.frame.arns import ArnMaker
from sagehen.services.inference_service import (
    job_store as inference_jobs,
)
from sagehen.services.inference_service import (
    service_store as inference_services,
)
from sagehen.services.inference_service.jobs import StopJob
from sagehen.services.inference_service.notices import ensure_topic, unsubscribe_addresses
from sagehen.services.inference_service.records import (
    InferenceState,
    ServiceRecord,
    ServiceSource,
)
from sagehen.services.inference_service.service import (
    Service,
    ServiceInvalid,
    describe_errors,
    load_service,
    load_valid_service,
    undeclared_reason,
)
from sagehen.services.inference_service.slots import Slots
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["Services"]

log = logging.getLogger(__name__)


class Services:
    """Every method blocks: call it from a thread."""

    def __init__(
        self,
        database: Database,
        writes: GroupCommit,
        objects: ObjectStore,
        settings: Settings,
        slots: Slots,
        stop_job: StopJob,
        clock: Clock,
    ) -> None:
        self._database = database
        self._writes = writes
        self._objects = objects
        self._settings = settings
        self._slots = slots
        self._stop_job = stop_job
        self._clock = clock
        self._arns = ArnMaker.of(settings)

    def begin(self) -> None:
        """Stores the service of the settings; keeps one of earlier settings, with a warning."""
        own = self._settings.inference_service
        self._warn_of_undeclared()
        if not own.is_on:
            return
        if own.emails and self._settings.smtp_host is None:
            log.warning(
                "Nobody gets mail of inference jobs: the setting smtp_host names no mail server.",
                extra={"action": "begin", "stage": own.stage},
            )
        try:
            self._make_bucket(own)
        except (SagehenError, OSError) as error:
            # Jobs are refused until the bucket exists; all else works.
            log.error("The bucket cannot be made: %s", error, extra={"action": "begin"})
        given = {**own.model_dump(mode="json", exclude_unset=True), "stage": own.stage}

        self._writes.run(
            partial(self._save, stage=own.stage, given=given, source=ServiceSource.SETTINGS)
        )

    def all(self) -> dict[str, Any]:
        with self._database.read() as connection:
            records = inference_services.all_services(connection)
            return {"services": [self._shown(connection, record) for record in records]}

    def get(self, stage: str) -> dict[str, Any]:
        with self._database.read() as connection:
            return self._shown_at(connection, stage)

    def put(self, stage: str, body: bytes) -> dict[str, Any]:
        """Raises Invalid; Conflict if the service is in sagehen.toml or being deleted."""
        given = _read(body)
        if given.setdefault("stage", stage) != stage:
            raise Invalid(f"stage is {given['stage']!r}, but the path says {stage!r}.")
        settings = _checked(given)
        if settings.emails and self._settings.smtp_host is None:
            raise Invalid("emails need a mail server: set smtp_host, and restart the server.")
        with self._database.read() as connection:
            self._refuse_change(inference_services.get(connection, stage))
        self._make_bucket(settings)

        def keep(connection: Connection) -> dict[str, Any]:
            self._refuse_change(inference_services.get(connection, stage, lock=True))
            self._save(connection, stage, given, ServiceSource.API)
            return self._shown_at(connection, stage)

        return self._writes.run(keep)

    def delete(self, stage: str) -> dict[str, Any]:
        """Removes its queued jobs with a notice, and stops the running ones.

        Each step is a transaction that can be repeated after an interruption. Stopping jobs publish
        their ends.

        Raises NotFound; Conflict if the service is in sagehen.toml.
        """
        closed, removed = self._writes.run(partial(self._close, stage=stage))
        active = self._active(stage)
        for name, job_id in active:
            self._writes.run(partial(self._stop_job, name=name, job_id=job_id))
        self._writes.run(partial(_drop, closing=closed))
        return {"stage": stage, "removed_jobs": removed, "stopped_jobs": len(active)}

    def _close(self, connection: Connection, stage: str) -> tuple[ServiceRecord, int]:
        """Stops requests and empties the queue; returns the number of removed jobs too."""
        record = inference_services.get(connection, stage, lock=True)
        if record is None:
            raise NotFound(f"There is no inference service at {stage!r}.")
        self._refuse_declared(record)
        closing = msgspec.structs.replace(record, closing=True)
        inference_services.update(connection, closing)
        return closing, self._empty_queue(connection, stage)

    def _empty_queue(self, connection: Connection, stage: str) -> int:
        service = load_valid_service(connection, stage, lock=True)
        waiting = inference_jobs.in_state(connection, stage, InferenceState.QUEUED)
        for job in waiting:
            self._slots.remove(connection, service, job)
        return len(waiting)

    def _active(self, stage: str) -> list[tuple[str, str]]:
        with self._database.read() as connection:
            jobs = inference_jobs.in_state(connection, stage, InferenceState.ACTIVE)
            return [(job.job_name, job.job_id or "") for job in jobs]

    def _save(
        self, connection: Connection, stage: str, given: dict[str, Any], source: ServiceSource
    ) -> None:
        """Stores a changed service; makes a missing topic."""
        now = self._clock.now()
        stored = inference_services.get(connection, stage, lock=True)
        record = ServiceRecord(
            stage=stage,
            source=source,
            given=given,
            created_at=stored.created_at if stored else now,
            modified_at=now,
            emails=stored.emails if stored else (),
        )
        if stored and (stored.given, stored.source, stored.closing) == (given, source, False):
            record = stored
        elif stored is None:
            inference_services.insert(connection, record)
        service = Service(record, _checked(given))
        if stored is not None:
            record = unsubscribe_addresses(connection, stored, service, self._arns, now)
            service = Service(record, service.settings)
        record = ensure_topic(connection, service, service.topic_arn(self._arns), now)
        if record != stored:
            inference_services.update(connection, record)
        # The limit may have been raised.
        self._slots.fill(connection, Service(record, service.settings))

    def _warn_of_undeclared(self) -> None:
        with self._database.read() as connection:
            records = inference_services.all_services(connection)
        for record in records:
            reason = self._undeclared_reason(record)
            if reason is not None:
                log.warning("%s", reason, extra={"action": "begin", "stage": record.stage})

    def _undeclared_reason(self, record: ServiceRecord) -> str | None:
        return undeclared_reason(record, self._settings.inference_service)

    def _refuse_declared(self, record: ServiceRecord) -> None:
        of_settings = record.source is ServiceSource.SETTINGS
        if of_settings and self._undeclared_reason(record) is None:
            raise Conflict(_READ_ONLY)

    def _refuse_change(self, record: ServiceRecord | None) -> None:
        if record is None:
            return
        self._refuse_declared(record)
        if record.closing:
            raise Conflict("This service is being deleted; DELETE it again to go on with that.")

    def _make_bucket(self, settings: InferenceServiceSettings) -> None:
        assert settings.s3_bucket is not None
        try:
            self._objects.bucket(settings.s3_bucket)
        except NotFound:
            try:
                self._objects.create_bucket(settings.s3_bucket)
            except AlreadyExists:
                return  # made meanwhile

    def _shown_at(self, connection: Connection, stage: str) -> dict[str, Any]:
        record = inference_services.get(connection, stage)
        if record is None:
            raise NotFound(f"There is no inference service at {stage!r}.")
        return self._shown(connection, record)

    def _shown(self, connection: Connection, record: ServiceRecord) -> dict[str, Any]:
        stage = record.stage
        settings, problem = None, self._undeclared_reason(record)
        try:
            service = load_service(connection, stage)
            settings = service.settings.model_dump(mode="json") if service else None
        except ServiceInvalid as error:
            problem = str(error)
        return {
            "stage": stage,
            "path": f"/{stage}/inference",
            "source": record.source,
            "topic_arn": self._arns.sns(record.topic_name),
            "closing": record.closing,
            "given": record.given,
            "settings": settings,
            "problem": problem,
            "active_jobs": sum(inference_jobs.active_by_type(connection, stage).values()),
            "queued_jobs": inference_jobs.queued(connection, stage),
            "created_at": record.created_at,
            "modified_at": record.modified_at,
        }


_READ_ONLY = (
    "This service is the one of sagehen.toml: change the section [inference_service] there."
)


def _drop(connection: Connection, closing: ServiceRecord) -> None:
    """Does nothing if another DELETE was faster and the stage has a new service."""
    stored = inference_services.get(connection, closing.stage, lock=True)
    if stored is not None and stored.closing and stored.created_at == closing.created_at:
        inference_services.delete_service(connection, closing.stage)


def _read(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"The body is not a JSON object: {error}") from error


def _checked(given: dict[str, Any]) -> InferenceServiceSettings:
    try:
        settings = InferenceServiceSettings.model_validate(given)
    except ValidationError as error:
        raise Invalid(describe_errors(error)) from error
    if not settings.is_on:
        raise Invalid("s3_bucket is missing.")
    return settings
