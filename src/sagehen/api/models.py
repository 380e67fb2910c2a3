"""CreateModel, DescribeModel, ListModels, DeleteModel."""

from typing import Any

from sagehen.api.call import Call
from sagehen.api.containers import check_containers
from sagehen.api.listing import as_time, read_page
from sagehen.api.refusals import existing, missing
from sagehen.api.tags import check_tags
from sagehen.domain.records import ModelRecord
from sagehen.errors import AlreadyExists
from sagehen.store import models, tags

__all__ = ["create_model", "delete_model", "describe_model", "list_models"]


def create_model(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Store a model whose data can be read and whose image can be run."""
    given_tags = check_tags(params.get("Tags", []))
    check_containers(call, params)
    name = params["ModelName"]
    record = ModelRecord(
        name=name,
        arn=call.arns.sagemaker("model", name),
        created_at=call.clock.now(),
        definition={key: value for key, value in params.items() if key != "Tags"},
    )
    with call.database.write() as connection:
        try:
            models.insert(connection, record)
        except AlreadyExists as error:
            raise existing("model", record.arn) from error
        tags.put(connection, record.arn, given_tags)
    return {"ModelArn": record.arn}


def describe_model(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """The model as it was created, with SageMaker's defaults filled in."""
    name = params["ModelName"]
    with call.database.read() as connection:
        record = models.get(connection, name)
    if record is None:
        raise missing("model", call.arns.sagemaker("model", name))
    return {
        "EnableNetworkIsolation": False,
        **_with_modes(record.definition),
        "ModelArn": record.arn,
        "CreationTime": as_time(record.created_at),
    }


def list_models(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of models."""
    return read_page(call, params, models.list_page, "Models", _summarize)


def delete_model(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Drop the model. Endpoints that run it are not touched: they have a copy."""
    name = params["ModelName"]
    arn = call.arns.sagemaker("model", name)
    with call.database.write() as connection:
        if not models.delete(connection, name):
            raise missing("model", arn)
        tags.drop(connection, arn)
    return {}


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


def _summarize(record: ModelRecord) -> dict[str, Any]:
    return {
        "ModelName": record.name,
        "ModelArn": record.arn,
        "CreationTime": as_time(record.created_at),
    }
