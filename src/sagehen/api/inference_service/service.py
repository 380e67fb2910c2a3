"""A service as it is in force: what is kept of it, and what that means."""

import logging
from dataclasses import dataclass

from pydantic import ValidationError
from sqlalchemy import Connection

from sagehen.domain.inference_service import ServiceRecord
from sagehen.domain.names import ArnMaker
from sagehen.settings.inference_service import InferenceServiceSettings
from sagehen.store import inference_services

__all__ = ["Service", "load_service", "load_valid_service"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    record: ServiceRecord
    settings: InferenceServiceSettings

    @property
    def stage(self) -> str:
        return self.record.stage

    def topic_arn(self, arns: ArnMaker) -> str:
        return arns.sns(self.settings.topic_name)


def load_service(connection: Connection, stage: str, lock: bool = False) -> Service | None:
    """The service at `stage`; with `lock`, nobody else takes or frees its slots until this
    transaction ends."""
    record = inference_services.get(connection, stage, lock)
    if record is None:
        return None
    return Service(record, InferenceServiceSettings.model_validate(record.given))


def load_valid_service(connection: Connection, stage: str, lock: bool = False) -> Service | None:
    """The same, and None also where its settings are none any more, by a newer version's rules: of
    its jobs the ends have to be told even then."""
    try:
        return load_service(connection, stage, lock)
    except ValidationError as error:
        about = {"action": "load_service", "stage": stage}
        log.error("An inference service has to be put again: %s", error, extra=about)
        return None
