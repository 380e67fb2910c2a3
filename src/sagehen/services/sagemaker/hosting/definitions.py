"""The operations of models and endpoint configs, which are stored as they were given."""

from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from sagehen.base.errors import AlreadyExists
from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.frame.named_records import NamedTable, as_time, read_page
from sagehen.services.sagemaker.async_inference.config import check_async_models
from sagehen.services.sagemaker.errors import existing, missing
from sagehen.services.sagemaker.hosting.containers import check_containers, containers_of
from sagehen.services.sagemaker.hosting.definition_store import endpoint_configs, models
from sagehen.services.sagemaker.hosting.records import (
    DefinedRecord,
    EndpointConfigRecord,
    ModelRecord,
)
from sagehen.services.sagemaker.hosting.serverless import check_serverless_models
from sagehen.services.sagemaker.hosting.variants import (
    check_config,
    check_offline_models,
    check_shadow_models,
    shadows_of,
    variants_of,
)
from sagehen.services.sagemaker.image_versions import log_versions
from sagehen.services.sagemaker.tags import check_tags

__all__ = [
    "ENDPOINT_CONFIGS",
    "MODELS",
    "Definitions",
    "create_endpoint_config",
    "create_model",
    "delete_endpoint_config",
    "delete_model",
    "describe_endpoint_config",
    "describe_model",
    "list_endpoint_configs",
    "list_models",
]

Record = TypeVar("Record", bound=DefinedRecord)


class Definitions(Generic[Record]):
    """The operations of models, or those of endpoint configs."""

    def __init__(self, records: NamedTable[Record], kind: str, resource: str, prefix: str) -> None:
        self._records = records
        self._kind = kind
        self._resource = resource
        self._prefix = prefix

    def insert(
        self,
        call: RequestContext,
        connection: Connection,
        params: dict[str, Any],
        given_tags: dict[str, str],
    ) -> dict[str, Any]:
        name = params[f"{self._prefix}Name"]
        record = self._records.kind(
            name=name,
            arn=self._arn(call, name),
            created_at=call.clock.now(),
            definition={key: value for key, value in params.items() if key != "Tags"},
        )
        try:
            self._records.insert(connection, record)
        except AlreadyExists as error:
            raise existing(self._kind, record.arn) from error
        tags.put(connection, record.arn, given_tags)
        return {f"{self._prefix}Arn": record.arn}

    def get(self, call: RequestContext, connection: Connection, name: str) -> Record:
        record = self._records.get(connection, name)
        if record is None:
            raise missing(self._kind, self._arn(call, name))
        return record

    def page(self, call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
        return read_page(call, params, self._records.list_page, f"{self._prefix}s", self.summary)

    def delete(self, call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
        """Deletes a record; endpoints have a copy."""
        name = params[f"{self._prefix}Name"]
        arn = self._arn(call, name)
        with call.database.write() as connection:
            if not self._records.delete(connection, name):
                raise missing(self._kind, arn)
            tags.drop(connection, arn)
        return {}

    def summary(self, record: Record) -> dict[str, Any]:
        return {
            f"{self._prefix}Name": record.name,
            f"{self._prefix}Arn": record.arn,
            "CreationTime": as_time(record.created_at),
        }

    def _arn(self, call: RequestContext, name: str) -> str:
        return call.arns.sagemaker(self._resource, name)


MODELS: Definitions[ModelRecord] = Definitions(models, "model", "model", "Model")
ENDPOINT_CONFIGS: Definitions[EndpointConfigRecord] = Definitions(
    endpoint_configs, "endpoint configuration", "endpoint-config", "EndpointConfig"
)


list_models = MODELS.page
delete_model = MODELS.delete


def create_model(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    given_tags = check_tags(params.get("Tags", []))
    check_containers(call, params)
    with call.database.write() as connection:
        answer = MODELS.insert(call, connection, params, given_tags)
    images = [container["Image"] for container in containers_of(params)]
    log_versions("model", params["ModelName"], images, call.settings)
    return answer


def describe_model(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Fills in SageMaker's defaults."""
    with call.database.read() as connection:
        record = MODELS.get(call, connection, params["ModelName"])
    return {
        "EnableNetworkIsolation": False,
        **_with_modes(record.definition),
        **MODELS.summary(record),
    }


def _with_modes(definition: dict[str, Any]) -> dict[str, Any]:
    described = dict(definition)
    if "PrimaryContainer" in definition:
        described["PrimaryContainer"] = {"Mode": "SingleModel", **definition["PrimaryContainer"]}
    if definition.get("Containers"):
        described["Containers"] = [
            {"Mode": "SingleModel", **container} for container in definition["Containers"]
        ]
    else:
        described.pop("Containers", None)
    return described


list_endpoint_configs = ENDPOINT_CONFIGS.page
delete_endpoint_config = ENDPOINT_CONFIGS.delete


def create_endpoint_config(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Store a config if its models exist."""
    given_tags = check_tags(params.get("Tags", []))
    check_config(params)
    with call.database.write() as connection:
        used = [
            MODELS.get(call, connection, variant["ModelName"]) for variant in variants_of(params)
        ]
        check_shadow_models(params, used)
        check_async_models(params, used)
        check_offline_models(params, used)
        check_serverless_models(params, used)
        return ENDPOINT_CONFIGS.insert(call, connection, params, given_tags)


def describe_endpoint_config(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Fills in SageMaker's defaults."""
    with call.database.read() as connection:
        record = ENDPOINT_CONFIGS.get(call, connection, params["EndpointConfigName"])
    described = {key: value for key, value in record.definition.items() if value != []}
    described["ProductionVariants"] = _with_weights(record.definition["ProductionVariants"])
    if shadows := shadows_of(record.definition):
        described["ShadowProductionVariants"] = _with_weights(shadows)
    return {"EnableNetworkIsolation": False, **described, **ENDPOINT_CONFIGS.summary(record)}


def _with_weights(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"InitialVariantWeight": 1.0, **variant} for variant in variants]
