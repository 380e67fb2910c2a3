"""A service as it is in force: what is kept of it, and what that means."""

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
    "load_service",
    "load_valid_service",
    "say_faults",
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
    """What is kept of a service is no setting any more, by a newer version's rules."""


class ServiceUndeclared(Unavailable):
    """The service is paused: settings made it, and those of this server no longer have it."""


def undeclared_reason(record: ServiceRecord, own: InferenceServiceSettings) -> str | None:
    """Why a service is paused, and what is to be done; None where it is not.

    A service of settings that this server was started without takes no new jobs and begins none of
    its waiting jobs: sagehen.toml may be missing, with the images that those jobs need. Nothing of
    the state says so, for another server of the same state may have the section.

    Args:
        own: the settings of this server.
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
    """The service at `stage`; with `lock`, nobody else takes or frees its slots until this
    transaction ends. Raises ServiceInvalid."""
    record = inference_services.get(connection, stage, lock)
    if record is None:
        return None
    try:
        return Service(record, InferenceServiceSettings.model_validate(record.given))
    except ValidationError as error:
        raise ServiceInvalid(
            f"The settings of the inference service at {stage!r} are not valid any more: "
            f"{say_faults(error)} PUT it again, with what this version takes."
        ) from error


def load_valid_service(connection: Connection, stage: str, lock: bool = False) -> Service | None:
    """The same, and None also where its settings are none any more: of its jobs the ends have to
    be told even then."""
    try:
        return load_service(connection, stage, lock)
    except ServiceInvalid as error:
        log.error("%s", error, extra={"action": "load_service", "stage": stage})
        return None


def say_faults(error: ValidationError) -> str:
    """What is wrong with settings, a sentence each."""
    return " ".join(_say(fault) for fault in error.errors())


def _say(fault: Any) -> str:
    name = ".".join(str(part) for part in fault["loc"])
    message = fault["msg"].removeprefix("Value error, ")
    return f"{name}: {message}." if name else f"{message}."
