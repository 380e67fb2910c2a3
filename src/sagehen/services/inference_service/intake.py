"""Admits requests: checks body, white list and limit, makes the job, and counts outcomes."""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.base.errors import CommitUnknown, NotFound
from sagehen.base.retry import AWAY
from sagehen.base.settings import Settings
from sagehen.frame.arns import ArnMaker
from sagehen.services.inference_service import service_store as inference_services
from sagehen.services.inference_service.errors import Failed, Full, KeyReused, Malformed, Refused
from sagehen.services.inference_service.job_definition import (
    INPUT_CHANNEL,
    inline_key,
    job_name,
    make_definition,
    new_suffix,
)
from sagehen.services.inference_service.records import (
    AnswerRecord,
    InferenceJobRecord,
    InferenceState,
)
from sagehen.services.inference_service.request_body import InlineInput, JobBody, read_body
from sagehen.services.inference_service.service import Service, load_service
from sagehen.services.inference_service.slots import Slots
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.s3.storage.store import ObjectStore, SmallObject
from sagehen.services.sagemaker.training.validation import check_training_job
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from sagehen.wire.errors import AwsError
from sagehen.wire.services import service as service_model
from sagehen.wire.validation.validate import validate

__all__ = ["Accepted", "Counts", "JobIntake", "JobRequest"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """An authorized request."""

    body: bytes
    api_key: str
    """name of the API key; empty if none is required"""
    idempotency_key: str | None


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an accepted request, also of a repeated Idempotency-Key."""

    job_name: str
    type: str
    queued: bool
    remaining: int
    """slots of this type left then"""


class _NeedsFile(Exception):
    """The input is too large for a transaction, or objects are stored elsewhere."""


class JobIntake:
    """Accepts requests, or raises Refused."""

    def __init__(
        self,
        database: Database,
        writes: GroupCommit,
        objects: ObjectStore,
        settings: Settings,
        slots: Slots,
        clock: Clock,
    ) -> None:
        self._database = database
        self._writes = writes
        self._objects = objects
        self._settings = settings
        self._slots = slots
        self._clock = clock
        self._arns = ArnMaker.of(settings)

    async def accept(self, service: Service, request: JobRequest) -> Accepted:
        """Makes a job; on return, the job and its slot are on disk.

        Raises:
            Refused: no job was made.
            Unavailable: the state cannot be written.
        """
        body = read_body(request.body, service.settings)
        earlier = await asyncio.to_thread(self._find_earlier, service, body, request)
        if earlier is not None:
            return earlier
        job = self._job(service, body)
        await asyncio.to_thread(self._check, job, body)
        admit = partial(self._admit, stage=service.stage, job=job, request=request)
        inline = body.inline
        if inline is None:
            return await self._writes.join(admit)
        try:
            return await self._writes.join(partial(admit, inline=inline))
        except _NeedsFile:
            return await self._accept_by_file(service, job, inline, admit)

    def _find_earlier(
        self, service: Service, body: JobBody, request: JobRequest
    ) -> Accepted | None:
        """Returns the answer to a repeated request; refuses hopeless ones without a write."""
        with self._database.read() as connection:
            earlier = _earlier(connection, service.stage, body.type, request)
            if earlier is None:
                self._slots.check(connection, service, body.type)
            return earlier

    def _job(self, service: Service, body: JobBody) -> InferenceJobRecord:
        now = self._clock.now()
        name = job_name(body.type, now, new_suffix())
        return InferenceJobRecord(
            job_name=name,
            stage=service.stage,
            type=body.type,
            state=InferenceState.QUEUED,
            topic_arn=service.topic_arn(self._arns),
            definition=make_definition(body, service.settings, name, self._arns),
            created_at=now,
        )

    def _check(self, job: InferenceJobRecord, body: JobBody) -> None:
        """Checks SageMaker's rules and the input's existence, except for an inline input, put
        later."""
        definition = job.definition
        own = _without_input(definition)
        try:
            self._check_definition(own if body.inline is not None else definition)
        except AwsError as error:
            if body.input_uri is not None and self._passes(own):
                raise Malformed(f"input: {error.message}") from error
            raise Failed(error.message) from error

    def _check_definition(self, definition: dict[str, Any]) -> None:
        validate(service_model("sagemaker").operation_model("CreateTrainingJob"), definition)
        check_training_job(definition, self._settings, self._objects)

    def _passes(self, definition: dict[str, Any]) -> bool:
        try:
            self._check_definition(definition)
        except AwsError:
            return False
        return True

    def _admit(
        self,
        connection: Connection,
        *,
        stage: str,
        job: InferenceJobRecord,
        request: JobRequest,
        inline: InlineInput | None = None,
    ) -> Accepted:
        service = load_service(connection, stage, lock=True)
        if service is None or service.record.closing:
            raise NotFound(f"There is no service at {stage}.")
        if (earlier := _earlier(connection, stage, job.type, request)) is not None:
            return earlier
        if inline is not None:
            self._put_row(connection, service, job, inline)
        job, remaining = self._slots.admit(connection, service, job)
        accepted = Accepted(
            job_name=job.job_name,
            type=job.type,
            queued=job.state is InferenceState.QUEUED,
            remaining=remaining,
        )
        self._remember(connection, stage, request, accepted)
        return accepted

    async def _accept_by_file(
        self,
        service: Service,
        job: InferenceJobRecord,
        inline: InlineInput,
        admit: Callable[[Connection], Accepted],
    ) -> Accepted:
        await asyncio.to_thread(self._put, service, job, inline)
        try:
            accepted = await self._writes.join(admit)
        except CommitUnknown:
            raise  # the job may have been made
        except Exception:
            await asyncio.to_thread(self._remove_input, service, job, inline)
            raise
        if accepted.job_name != job.job_name:
            await asyncio.to_thread(self._remove_input, service, job, inline)
        return accepted

    def _put_row(
        self,
        connection: Connection,
        service: Service,
        job: InferenceJobRecord,
        inline: InlineInput,
    ) -> None:
        key = inline_key(job.job_name, inline.file_name)
        bucket = service.settings.s3_bucket or ""
        small = SmallObject(bucket, key, inline.data, _attributes(inline))
        if not self._objects.put_rows(connection, [small])[0]:
            raise _NeedsFile

    def _put(self, service: Service, job: InferenceJobRecord, inline: InlineInput) -> None:
        draft = self._objects.draft()
        draft.write(inline.data)
        key = inline_key(job.job_name, inline.file_name)
        try:
            self._objects.put(service.settings.s3_bucket or "", key, draft, _attributes(inline))
        except NotFound as error:
            raise Failed(str(error)) from error

    def _remove_input(self, service: Service, job: InferenceJobRecord, inline: InlineInput) -> None:
        """Does not raise: the request has another outcome to report."""
        key = inline_key(job.job_name, inline.file_name)
        try:
            self._objects.delete(service.settings.s3_bucket or "", [key])
        except AWAY as error:
            extra = {"action": "remove_input", "key": key}
            log.warning("The input of a request that made no job stays: %s", error, extra=extra)

    def _remember(
        self, connection: Connection, stage: str, request: JobRequest, accepted: Accepted
    ) -> None:
        if request.idempotency_key is None:
            return
        record = AnswerRecord(
            stage=stage,
            api_key=request.api_key,
            idempotency_key=request.idempotency_key,
            body_sha256=_digest(request.body),
            job_name=accepted.job_name,
            remaining=accepted.remaining,
            queued=accepted.queued,
            created_at=self._clock.now(),
        )
        inference_services.add_answer(connection, record)


def _earlier(connection: Connection, stage: str, kind: str, request: JobRequest) -> Accepted | None:
    """Raises KeyReused if the body differs."""
    if request.idempotency_key is None:
        return None
    answer = inference_services.answer(connection, stage, request.api_key, request.idempotency_key)
    if answer is None:
        return None
    if answer.body_sha256 != _digest(request.body):
        raise KeyReused("This Idempotency-Key came with another body before.")
    return Accepted(
        job_name=answer.job_name, type=kind, queued=answer.queued, remaining=answer.remaining
    )


def _without_input(definition: dict[str, Any]) -> dict[str, Any]:
    channels = definition.get("InputDataConfig", [])
    others = [channel for channel in channels if channel["ChannelName"] != INPUT_CHANNEL]
    rest = {key: value for key, value in definition.items() if key != "InputDataConfig"}
    return {**rest, "InputDataConfig": others} if others else rest


def _attributes(inline: InlineInput) -> Attributes:
    return Attributes(headers={"content-type": inline.content_type})


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Counts:
    """Counts requests by outcome since the process began. Types off the white list are lumped
    together, because callers choose them."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, ...]] = Counter()

    def accepted(self, stage: str, kind: str, queued: bool) -> None:
        self._requests[stage, kind, "Queued" if queued else "Accepted"] += 1

    def refused(self, stage: str, refused: Refused) -> None:
        kind = refused.kind if isinstance(refused, Full) else ""
        self._requests[stage, kind, type(refused).__name__] += 1

    def forbidden(self, stage: str) -> None:
        self._requests[stage, "", "Forbidden"] += 1

    def measured(self) -> dict[str, dict[tuple[str, ...], float]]:
        return {"InferenceRequests": {key: float(count) for key, count in self._requests.items()}}
