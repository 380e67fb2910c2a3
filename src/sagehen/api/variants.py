"""What the variants of an endpoint config must be, and the plans they become when deployed."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sagehen.api.async_configs import check_async_config
from sagehen.api.containers import container_specs
from sagehen.api.execution import execution_mode
from sagehen.api.refusals import not_built, refused
from sagehen.api.shadow_variants import check_shadow, shadows_of, variants_of
from sagehen.domain.instance_types import require_instance_type
from sagehen.domain.records import ModelRecord, VariantPlan
from sagehen.domain.routes import RoutingStrategy
from sagehen.errors import Invalid

__all__ = ["check_config", "check_weights", "plan_variant"]

STARTUP_SECONDS = 480
"""How long a container may take to answer `/ping`: SageMaker's default."""
DOWNLOAD_SECONDS = 3600
"""How long its model data may take to arrive: SageMaker's default is not known, its most is."""

_UNBUILT = {
    "ExplainerConfig": "explanations (ExplainerConfig)",
    "CrossRegionTrafficConfig": "traffic across regions (CrossRegionTrafficConfig)",
}
_UNBUILT_OF_VARIANT = {
    "ServerlessConfig": "serverless inference (ServerlessConfig)",
    "InstancePools": "a pool of instance types (InstancePools)",
    "VariantInstanceProvisionTimeoutInSeconds": "a pool of instance types (InstancePools)",
    "AcceleratorType": "Elastic Inference (AcceleratorType)",
    "AcceleratorPartitionLayouts": "partitioned GPUs (AcceleratorPartitionLayouts)",
    "CoreDumpConfig": "core dumps (CoreDumpConfig)",
}


def check_config(params: dict[str, Any]) -> None:
    """Check what CreateEndpointConfig is given, but for whether its models exist.

    Raises:
        AwsError: SageMaker would refuse it, or Sagehen cannot run it.
    """
    check_shadow(params)
    check_async_config(params)
    _refuse_unbuilt(params, _UNBUILT)
    # The member's own default is that capture is on.
    if "DataCaptureConfig" in params and params["DataCaptureConfig"].get("EnableCapture", True):
        raise not_built("data capture (DataCaptureConfig with EnableCapture)")
    if params.get("MetricsConfig", {}).get("EnableEnhancedMetrics"):
        raise not_built("enhanced metrics (MetricsConfig with EnableEnhancedMetrics)")
    variants = variants_of(params)
    names = [variant["VariantName"] for variant in variants]
    if len({name.lower() for name in names}) < len(names):
        raise refused("The names of variants must differ; these are " + _said(names))
    for variant in variants:
        _check_variant(variant)
    check_weights(_weights(params["ProductionVariants"]), _weights(shadows_of(params)))


def check_weights(weights: Iterable[float], shadow_weights: Iterable[float] = ()) -> None:
    """Weights are shares of the production variants' sum, so there has to be one.

    Raises:
        AwsError: all of `weights` are 0, or one is no finite number.
    """
    if not all(map(math.isfinite, shadow_weights)):
        raise refused("The weight of a shadow variant must be finite.")
    total = sum(weights)
    if not (math.isfinite(total) and total > 0):
        raise refused(
            "The weights of an endpoint's production variants must be finite and their sum "
            "greater than 0."
        )


def plan_variant(
    variant: dict[str, Any], model: ModelRecord, versions: Mapping[str, str]
) -> VariantPlan:
    """What a variant of a stored config should run, its model copied into it.

    `versions` are ETags of model data, by address.
    """
    startup = variant.get("ContainerStartupHealthCheckTimeoutInSeconds", STARTUP_SECONDS)
    download = variant.get("ModelDataDownloadTimeoutInSeconds", DOWNLOAD_SECONDS)
    return VariantPlan(
        name=variant["VariantName"],
        instance_type=variant["InstanceType"],
        instance_count=variant["InitialInstanceCount"],
        weight=variant.get("InitialVariantWeight", 1.0),
        containers=container_specs(model.definition, versions),
        mode=execution_mode(model.definition),
        strategy=RoutingStrategy(
            variant.get("RoutingConfig", {}).get("RoutingStrategy", RoutingStrategy.RANDOM)
        ),
        startup_timeout_seconds=startup,
        download_timeout_seconds=download,
    )


def _check_variant(variant: dict[str, Any]) -> None:
    _refuse_unbuilt(variant, _UNBUILT_OF_VARIANT)
    name = variant["VariantName"]
    if "ManagedInstanceScaling" in variant:
        raise refused("ManagedInstanceScaling is only supported for inference component endpoints.")
    if "ModelName" not in variant:
        raise not_built(f"an inference component endpoint (variant {name} has no ModelName)")
    for member in ("InstanceType", "InitialInstanceCount"):
        if member not in variant:
            raise refused(f"Production variant {name} needs {member}.")
    try:
        require_instance_type(variant["InstanceType"])
    except Invalid as error:
        raise refused(str(error)) from error
    strategy = variant.get("RoutingConfig", {}).get("RoutingStrategy", RoutingStrategy.RANDOM)
    if strategy not in list(RoutingStrategy):
        raise not_built(f"the routing strategy {strategy}")


def _refuse_unbuilt(params: dict[str, Any], unbuilt: dict[str, str]) -> None:
    for member, feature in unbuilt.items():
        # An empty list asks for nothing; an empty structure may ask for all its defaults.
        if member in params and params[member] != []:
            raise not_built(feature)


def _weights(variants: Iterable[dict[str, Any]]) -> list[float]:
    return [variant.get("InitialVariantWeight", 1.0) for variant in variants]


def _said(names: list[str]) -> str:
    return ", ".join(names) + "."
