"""CreateModel, DescribeModel, ListModels, DeleteModel."""

from typing import Any

from sagehen.api.call import Call
from sagehen.api.containers import check_containers
from sagehen.api.definitions import MODELS
from sagehen.api.tags import check_tags

__all__ = ["create_model", "delete_model", "describe_model", "list_models"]

list_models = MODELS.page
delete_model = MODELS.delete


def create_model(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Store a model whose data can be read and whose image can be run."""
    given_tags = check_tags(params.get("Tags", []))
    check_containers(call, params)
    with call.database.write() as connection:
        return MODELS.insert(call, connection, params, given_tags)


def describe_model(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """The model as it was created, with SageMaker's defaults filled in."""
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
