"""CreateEndpointConfig, DescribeEndpointConfig, ListEndpointConfigs, DeleteEndpointConfig."""

from typing import Any

from sagehen.api.async_configs import check_async_models
from sagehen.api.call import Call
from sagehen.api.definitions import ENDPOINT_CONFIGS, MODELS
from sagehen.api.shadow_variants import check_shadow_models, shadows_of, variants_of
from sagehen.api.tags import check_tags
from sagehen.api.variants import check_config

__all__ = [
    "create_endpoint_config",
    "delete_endpoint_config",
    "describe_endpoint_config",
    "list_endpoint_configs",
]

list_endpoint_configs = ENDPOINT_CONFIGS.page
delete_endpoint_config = ENDPOINT_CONFIGS.delete


def create_endpoint_config(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Store a config whose models exist and whose every part Sagehen can run."""
    given_tags = check_tags(params.get("Tags", []))
    check_config(params)
    with call.database.write() as connection:
        used = [MODELS.get(call, connection, one["ModelName"]) for one in variants_of(params)]
        check_shadow_models(params, used)
        check_async_models(params, used)
        return ENDPOINT_CONFIGS.insert(call, connection, params, given_tags)


def describe_endpoint_config(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """The config as it was created, with SageMaker's defaults filled in."""
    with call.database.read() as connection:
        record = ENDPOINT_CONFIGS.get(call, connection, params["EndpointConfigName"])
    described = {key: value for key, value in record.definition.items() if value != []}
    described["ProductionVariants"] = _with_weights(record.definition["ProductionVariants"])
    if shadows := shadows_of(record.definition):
        described["ShadowProductionVariants"] = _with_weights(shadows)
    return {"EnableNetworkIsolation": False, **described, **ENDPOINT_CONFIGS.summary(record)}


def _with_weights(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"InitialVariantWeight": 1.0, **variant} for variant in variants]
