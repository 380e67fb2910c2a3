"""A service as it is in force: what is kept of it, and what that means."""

from dataclasses import dataclass

from sqlalchemy import Connection

from sagehen.domain.inference_service import ServiceRecord
from sagehen.domain.names import ArnMaker
from sagehen.inference_settings import InferenceServiceSettings
from sagehen.store import inference_services

__all__ = ["Service", "load_service"]


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
