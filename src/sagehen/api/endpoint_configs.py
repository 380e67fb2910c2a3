"""CreateEndpointConfig, DescribeEndpointConfig, ListEndpointConfigs, DeleteEndpointConfig."""

from typing import Any

from sagehen.api.call import Call
from sagehen.api.listing import as_time, read_page
from sagehen.api.refusals import existing, missing
from sagehen.api.shadow_variants import check_shadow_models, shadows_of, variants_of
from sagehen.api.tags import check_tags
from sagehen.api.variants import check_config
from sagehen.domain.records import EndpointConfigRecord
from sagehen.errors import AlreadyExists
from sagehen.store import endpoint_configs, models, tags

__all__ = [
    "create_endpoint_config",
    "delete_endpoint_config",
    "describe_endpoint_config",
    "list_endpoint_configs",
]


def create_endpoint_config(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Store a config whose models exist and whose every part Sagehen can run."""
    given_tags = check_tags(params.get("Tags", []))
    check_config(params)
    name = params["EndpointConfigName"]
    record = EndpointConfigRecord(
        name=name,
        arn=call.arns.sagemaker("endpoint-config", name),
        created_at=call.clock.now(),
        definition={key: value for key, value in params.items() if key != "Tags"},
    )
    with call.database.write() as connection:
        used = []
        for variant in variants_of(params):
            model = models.get(connection, variant["ModelName"])
            if model is None:
                raise missing("model", call.arns.sagemaker("model", variant["ModelName"]))
            used.append(model)
        check_shadow_models(params, used)
        try:
            endpoint_configs.insert(connection, record)
        except AlreadyExists as error:
            raise existing("endpoint configuration", record.arn) from error
        tags.put(connection, record.arn, given_tags)
    return {"EndpointConfigArn": record.arn}


def describe_endpoint_config(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """The config as it was created, with SageMaker's defaults filled in."""
    name = params["EndpointConfigName"]
    with call.database.read() as connection:
        record = endpoint_configs.get(connection, name)
    if record is None:
        raise missing("endpoint configuration", call.arns.sagemaker("endpoint-config", name))
    described = {key: value for key, value in record.definition.items() if value != []}
    described["ProductionVariants"] = _with_weights(record.definition["ProductionVariants"])
    if shadows := shadows_of(record.definition):
        described["ShadowProductionVariants"] = _with_weights(shadows)
    return {
        "EnableNetworkIsolation": False,
        **described,
        "EndpointConfigArn": record.arn,
        "CreationTime": as_time(record.created_at),
    }


def list_endpoint_configs(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of configs."""
    return read_page(call, params, endpoint_configs.list_page, "EndpointConfigs", _summarize)


def delete_endpoint_config(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Drop the config. Endpoints that were made from it are not touched: they have a copy."""
    name = params["EndpointConfigName"]
    arn = call.arns.sagemaker("endpoint-config", name)
    with call.database.write() as connection:
        if not endpoint_configs.delete(connection, name):
            raise missing("endpoint configuration", arn)
        tags.drop(connection, arn)
    return {}


def _with_weights(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"InitialVariantWeight": 1.0, **variant} for variant in variants]


def _summarize(record: EndpointConfigRecord) -> dict[str, Any]:
    return {
        "EndpointConfigName": record.name,
        "EndpointConfigArn": record.arn,
        "CreationTime": as_time(record.created_at),
    }
