"""Loads a service with validated settings, and tells whether it is paused."""

import logging
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from sagehen.base.errors import Unavailable
from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.frame.arns import ArnMaker
from sagehen.services.inference_service import service_store as inference_services
from sagehen.services.inference_service.records import ServiceRecord, ServiceSource

__all__ = [
    "Service",
    "ServiceInvalid",
    "ServiceUndeclared",
    "describe_errors",
    "load_service",
    "load_valid_service",
    "undeclared_reason",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    record: ServiceRecord
    settings: InferenceServiceSettings

    @property
    def stage(self) -> str:
        return self.record.stage

    def topic_arn(self, arns: ArnMaker) -> str:
        return arns.sns(self.record.topic_name)


class ServiceInvalid(Unavailable):
    """This version rejects the stored settings."""


class ServiceUndeclared(Unavailable):
    """The service is paused: its settings are missing on this server."""


def undeclared_reason(record: ServiceRecord, own: InferenceServiceSettings) -> str | None:
    """Returns why a service is paused and what to do; None where it is not.

    Without its sagehen.toml section, the images of its jobs may be missing. The state does not
    record this: another server on it may have the section.
    """
    is_declared = own.is_on and own.stage == record.stage
    if record.source is not ServiceSource.SETTINGS or is_declared:
        return None
    return (
        f"The inference service at {record.stage!r} takes no new jobs and begins none of those "
        "that wait: it was described by settings that this server was not started with. Start the "
        "server with its section [inference_service]; or delete it, with its jobs: sagehen "
        f"inference-service delete {record.stage}"
    )


def load_service(connection: Connection, stage: str, lock: bool = False) -> Service | None:
    """With `lock`, the service's slots cannot change elsewhere until the transaction ends. Raises
    ServiceInvalid."""
    record = inference_services.get(connection, stage, lock)
    if record is None:
        return None
    try:
        return Service(record, InferenceServiceSettings.model_validate(record.given))
    except ValidationError as error:
        raise ServiceInvalid(
            f"The settings of the inference service at {stage!r} are not valid any more: "
            f"{describe_errors(error)} PUT it again, with what this version takes."
        ) from error


def load_valid_service(connection: Connection, stage: str, lock: bool = False) -> Service | None:
    """Returns None for invalid settings too: ends of jobs must be published even then."""
    try:
        return load_service(connection, stage, lock)
    except ServiceInvalid as error:
        log.error("%s", error, extra={"action": "load_service", "stage": stage})
        return None


def describe_errors(error: ValidationError) -> str:
    """Returns one sentence per error."""
    return " ".join(_describe_error(fault) for fault in error.errors())


def _describe_error(fault: Any) -> str:
    name = ".".join(str(part) for part in fault["loc"])
    message = fault["msg"].removeprefix("Value error, ")
    return f"{name}: {message}." if name else f"{message}."
