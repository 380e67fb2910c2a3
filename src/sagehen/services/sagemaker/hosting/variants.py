"""Checks of an endpoint config's variants (they raise AwsError), and the plans they become."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sagehen.base.errors import Invalid
from sagehen.frame.instance_types import require_instance_type, serverless_type
from sagehen.frame.routes import RoutingStrategy
from sagehen.services.sagemaker.async_inference.config import check_async_config
from sagehen.services.sagemaker.errors import not_built, refuse_unbuilt, refused
from sagehen.services.sagemaker.hosting.containers import (
    container_specs,
    containers_of,
    execution_mode,
    offline_results_of,
    scales_from_zero,
)
from sagehen.services.sagemaker.hosting.records import ModelRecord, VariantPlan
from sagehen.services.sagemaker.hosting.serverless import (
    check_serverless,
    least_instances,
    plan_serverless,
)
from sagehen.wire.errors import AwsError

__all__ = [
    "check_config",
    "check_offline_models",
    "check_shadow",
    "check_shadow_models",
    "check_weights",
    "plan_variant",
    "shadows_of",
    "variants_of",
]

_NOT_WITH_SHADOWS = {
    "ServerlessConfig": "serverless inference (ServerlessConfig)",
    "AcceleratorType": "Elastic Inference (AcceleratorType)",
}


def shadows_of(definition: dict[str, Any]) -> list[dict[str, Any]]:
    return list(definition.get("ShadowProductionVariants", ()))


def variants_of(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns all variants, the shadow last."""
    return [*definition["ProductionVariants"], *shadows_of(definition)]


def check_shadow(params: dict[str, Any]) -> None:
    """Checks what goes with a shadow variant, all but the models."""
    if not shadows_of(params):
        return
    counts = len(params["ProductionVariants"]), len(shadows_of(params))
    if counts != (1, 1):
        raise refused(
            "With ShadowProductionVariants there has to be one production variant and one shadow "
            "variant; there are {} and {}.".format(*counts)
        )
    if "AsyncInferenceConfig" in params:
        raise _not_with_shadows("asynchronous inference (AsyncInferenceConfig)")
    for variant in variants_of(params):
        for member, feature in _NOT_WITH_SHADOWS.items():
            if member in variant:
                raise _not_with_shadows(feature)
        if variant.get("InstanceType", "").startswith("ml.inf1."):
            raise _not_with_shadows(f"Inf1 instances ({variant['InstanceType']})")


def check_shadow_models(definition: dict[str, Any], models: Iterable[ModelRecord]) -> None:
    if not shadows_of(definition):
        return
    for model in models:
        containers = containers_of(model.definition)
        if len(containers) > 1:
            raise _not_with_shadows(f"models of several containers (model {model.name})")
        if any(container.get("Mode") == "MultiModel" for container in containers):
            raise _not_with_shadows(f"multi-model endpoints (model {model.name})")


def check_offline_models(definition: dict[str, Any], models: Iterable[ModelRecord]) -> None:
    """Refuses offline results that would never be used. `models`: those of `variants_of`."""
    shadows = [variant["VariantName"] for variant in shadows_of(definition)]
    for variant, model in zip(variants_of(definition), models, strict=True):
        if offline_results_of(model.definition) is None:
            continue
        if "AsyncInferenceConfig" in definition:
            raise refused(
                "AsyncInferenceConfig is not supported with offline results "
                f"(SAGEHEN_OFFLINE_RESULTS of model {model.name}): asynchronous requests wait "
                "until an instance can answer."
            )
        if variant["VariantName"] in shadows:
            raise _not_with_shadows(
                f"offline results (SAGEHEN_OFFLINE_RESULTS of model {model.name}), as nobody gets "
                "the answers of a shadow variant"
            )


def _not_with_shadows(feature: str) -> AwsError:
    return refused(f"Shadow variants are not supported with {feature}.")


STARTUP_SECONDS = 480
"""Until `/ping` answers: SageMaker's default."""
SERVERLESS_STARTUP_SECONDS = 180
"""the same for serverless variants"""
DOWNLOAD_SECONDS = 3600
"""For model data: SageMaker's maximum; its default is not known."""

_UNBUILT = {
    "ExplainerConfig": "explanations (ExplainerConfig)",
    "CrossRegionTrafficConfig": "traffic across regions (CrossRegionTrafficConfig)",
}
_UNBUILT_OF_VARIANT = {
    "InstancePools": "a pool of instance types (InstancePools)",
    "VariantInstanceProvisionTimeoutInSeconds": "a pool of instance types (InstancePools)",
    "AcceleratorType": "Elastic Inference (AcceleratorType)",
    "AcceleratorPartitionLayouts": "partitioned GPUs (AcceleratorPartitionLayouts)",
    "CoreDumpConfig": "core dumps (CoreDumpConfig)",
}


def check_config(params: dict[str, Any]) -> None:
    """Checks CreateEndpointConfig's parameters, all but whether its models exist."""
    check_shadow(params)
    check_async_config(params)
    check_serverless(params)
    refuse_unbuilt(params, _UNBUILT)
    # EnableCapture defaults to true.
    if "DataCaptureConfig" in params and params["DataCaptureConfig"].get("EnableCapture", True):
        raise not_built("data capture (DataCaptureConfig with EnableCapture)")
    if params.get("MetricsConfig", {}).get("EnableEnhancedMetrics"):
        raise not_built("enhanced metrics (MetricsConfig with EnableEnhancedMetrics)")
    variants = variants_of(params)
    names = [variant["VariantName"] for variant in variants]
    if len({name.lower() for name in names}) < len(names):
        raise refused("The names of variants must differ; these are " + _joined(names))
    for variant in variants:
        _check_variant(variant)
    check_weights(_weights(params["ProductionVariants"]), _weights(shadows_of(params)))


def check_weights(weights: Iterable[float], shadow_weights: Iterable[float] = ()) -> None:
    """Require a positive, finite sum: weights are shares of it."""
    if not all(map(math.isfinite, shadow_weights)):
        raise refused("The weight of a shadow variant must be finite.")
    total = sum(weights)
    if not (math.isfinite(total) and total > 0):
        raise refused(
            "The weights of an endpoint's production variants must be finite and their sum "
            "greater than 0."
        )


def plan_variant(
    variant: dict[str, Any], model: ModelRecord, versions: Mapping[str, str], isolated: bool
) -> VariantPlan:
    """Returns a variant with its model copied; `versions` are ETags of model data by address,
    `isolated` is EnableNetworkIsolation of the endpoint config."""
    is_serverless = "ServerlessConfig" in variant
    longest = SERVERLESS_STARTUP_SECONDS if is_serverless else STARTUP_SECONDS
    startup = variant.get("ContainerStartupHealthCheckTimeoutInSeconds", longest)
    download = variant.get("ModelDataDownloadTimeoutInSeconds", DOWNLOAD_SECONDS)
    results = offline_results_of(model.definition)
    runs_no_model = results is not None and results.only
    serverless = plan_serverless(variant.get("ServerlessConfig"))
    if serverless is not None:
        instance_type, count = serverless_type(serverless.memory_mb), least_instances(serverless)
    else:
        instance_type, count = variant["InstanceType"], variant["InitialInstanceCount"]
    return VariantPlan(
        name=variant["VariantName"],
        instance_type=instance_type,
        instance_count=0 if runs_no_model else count,
        weight=variant.get("InitialVariantWeight", 1.0),
        containers=container_specs(model.definition, versions, isolated),
        mode=execution_mode(model.definition),
        strategy=RoutingStrategy(
            variant.get("RoutingConfig", {}).get("RoutingStrategy", RoutingStrategy.RANDOM)
        ),
        startup_timeout_seconds=startup,
        download_timeout_seconds=download,
        offline_results=results,
        serverless=serverless,
        scales_from_zero=scales_from_zero(model.definition) and not runs_no_model,
    )


def _check_variant(variant: dict[str, Any]) -> None:
    refuse_unbuilt(variant, _UNBUILT_OF_VARIANT)
    name = variant["VariantName"]
    if "ModelName" not in variant:
        raise not_built(
            f"inference components (variant {name} has no ModelName, so its models would be "
            "inference components). Create a model and give its ModelName"
        )
    if "ManagedInstanceScaling" in variant:
        raise refused("ManagedInstanceScaling is only supported for inference component endpoints.")
    if "ServerlessConfig" not in variant:
        _check_instances(variant)
    routing = variant.get("RoutingConfig", {})
    strategy = routing.get("RoutingStrategy", RoutingStrategy.RANDOM)
    if strategy not in list(RoutingStrategy):
        raise not_built(f"the routing strategy {strategy}")
    if "PrefixAwareRoutingConfig" in routing:
        raise refused(
            "PrefixAwareRoutingConfig goes only with the RoutingStrategy PREFIX_AWARE, which is "
            f"not implemented by Sagehen yet; this one is {strategy}."
        )


def _check_instances(variant: dict[str, Any]) -> None:
    for member in ("InstanceType", "InitialInstanceCount"):
        if member not in variant:
            raise refused(f"Production variant {variant['VariantName']} needs {member}.")
    try:
        require_instance_type(variant["InstanceType"])
    except Invalid as error:
        raise refused(str(error)) from error


def _weights(variants: Iterable[dict[str, Any]]) -> list[float]:
    return [variant.get("InitialVariantWeight", 1.0) for variant in variants]


def _joined(names: list[str]) -> str:
    return ", ".join(names) + "."
