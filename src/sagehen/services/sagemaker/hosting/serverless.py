"""ServerlessConfig: its checks, which raise AwsError, the plan it becomes, and changes of it."""

from collections.abc import Iterable
from typing import Any

import msgspec

from sagehen.frame.gpus import FRACTION_VARIABLE
from sagehen.services.sagemaker.errors import refused
from sagehen.services.sagemaker.hosting.containers import containers_of, offline_results_of
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    ModelRecord,
    ServerlessPlan,
    VariantPlan,
)
from sagehen.wire.errors import AwsError

__all__ = [
    "change_serverless",
    "check_conversion",
    "check_serverless",
    "check_serverless_models",
    "describe_serverless",
    "least_instances",
    "plan_serverless",
]

MEMORY_STEP_MB = 1024

_NOT_OF_VARIANT = {
    "InstanceType": "InstanceType",
    "InitialInstanceCount": "InitialInstanceCount",
    "AcceleratorType": "Elastic Inference (AcceleratorType)",
    "ManagedInstanceScaling": "ManagedInstanceScaling",
    "RoutingConfig": "RoutingConfig",
    "InstancePools": "a pool of instance types (InstancePools)",
    "VolumeSizeInGB": "VolumeSizeInGB",
    "CoreDumpConfig": "core dumps (CoreDumpConfig)",
    "EnableSSMAccess": "EnableSSMAccess",
}


def check_serverless(params: dict[str, Any]) -> None:
    """Checks the ServerlessConfig of CreateEndpointConfig's parameters, all but the models."""
    variants = params["ProductionVariants"]
    if not any("ServerlessConfig" in variant for variant in variants):
        return
    if len(variants) > 1:
        raise _not_with_serverless(f"more than one production variant (there are {len(variants)})")
    # EnableCapture defaults to true.
    if params.get("DataCaptureConfig", {"EnableCapture": False}).get("EnableCapture", True):
        raise _not_with_serverless("data capture (DataCaptureConfig with EnableCapture)")
    for member in ("VpcConfig", "EnableNetworkIsolation", "KmsKeyId"):
        if params.get(member):
            raise _not_with_serverless(member)
    for variant in variants:
        for member, feature in _NOT_OF_VARIANT.items():
            if member in variant:
                raise _not_with_serverless(feature)
        _check_numbers(variant["ServerlessConfig"])


def check_serverless_models(definition: dict[str, Any], models: Iterable[ModelRecord]) -> None:
    if not any("ServerlessConfig" in variant for variant in definition["ProductionVariants"]):
        return
    for model in models:
        containers = containers_of(model.definition)
        if len(containers) > 1:
            raise _not_with_serverless(
                f"inference pipelines and other models of several containers (model {model.name})"
            )
        for feature in _unsupported(model.definition, containers[0]):
            raise _not_with_serverless(f"{feature} (model {model.name})")


def _unsupported(definition: dict[str, Any], container: dict[str, Any]) -> Iterable[str]:
    results = offline_results_of(definition)
    if container.get("Mode") == "MultiModel":
        yield "multi-model endpoints"
    if "ModelDataSource" in container:
        yield "ModelDataSource"
    if definition.get("VpcConfig"):
        yield "a VPC (VpcConfig)"
    if definition.get("EnableNetworkIsolation"):
        yield "network isolation (EnableNetworkIsolation)"
    if FRACTION_VARIABLE in container.get("Environment", {}):
        yield f"GPUs ({FRACTION_VARIABLE})"
    if results is not None and results.only:
        yield "SAGEHEN_OFFLINE_RESULTS_ONLY: it runs no model"


def plan_serverless(config: dict[str, Any] | None) -> ServerlessPlan | None:
    if config is None:
        return None
    return ServerlessPlan(
        memory_mb=config["MemorySizeInMB"],
        max_concurrency=config["MaxConcurrency"],
        provisioned_concurrency=config.get("ProvisionedConcurrency"),
    )


def least_instances(plan: ServerlessPlan) -> int:
    """Instances that always run; how many provisioned concurrency needs, only their slots tell."""
    return 0 if plan.provisioned_concurrency is None else 1


def describe_serverless(plan: ServerlessPlan) -> dict[str, Any]:
    config = {"MemorySizeInMB": plan.memory_mb, "MaxConcurrency": plan.max_concurrency}
    if plan.provisioned_concurrency is not None:
        config["ProvisionedConcurrency"] = plan.provisioned_concurrency
    return config


def change_serverless(variant: VariantPlan, change: dict[str, Any]) -> VariantPlan:
    """Returns a variant with a member of DesiredWeightsAndCapacities applied, but for its
    weight."""
    config = change.get("ServerlessUpdateConfig")
    if variant.serverless is None:
        if config is not None:
            raise refused(
                f"Production variant {variant.name} is not serverless, so ServerlessUpdateConfig "
                "cannot change it. Give its DesiredInstanceCount."
            )
        return variant
    if "DesiredInstanceCount" in change:
        raise refused(
            f"Production variant {variant.name} is serverless, so it has no DesiredInstanceCount. "
            "Give a ServerlessUpdateConfig."
        )
    if config is None:
        return variant
    plan = variant.serverless
    changed = msgspec.structs.replace(
        plan,
        max_concurrency=config.get("MaxConcurrency", plan.max_concurrency),
        provisioned_concurrency=config.get("ProvisionedConcurrency", plan.provisioned_concurrency),
    )
    _check_numbers(describe_serverless(changed))
    return msgspec.structs.replace(
        variant, serverless=changed, instance_count=least_instances(changed)
    )


def check_conversion(current: Deployment, target: Deployment) -> None:
    """Refuses an update from instances to serverless, as SageMaker does."""
    if not _is_serverless(current) and _is_serverless(target):
        raise refused(
            "An endpoint with instances cannot be updated to a serverless one (ServerlessConfig). "
            "Create another endpoint; only the other way is supported."
        )


def _is_serverless(deployment: Deployment) -> bool:
    return any(variant.serverless is not None for variant in deployment.variants)


def _check_numbers(config: dict[str, Any]) -> None:
    memory, most = config["MemorySizeInMB"], config["MaxConcurrency"]
    provisioned = config.get("ProvisionedConcurrency")
    if memory % MEMORY_STEP_MB:
        raise refused(
            f"MemorySizeInMB is {memory}; it must be 1024, 2048, 3072, 4096, 5120 or 6144."
        )
    if provisioned is not None and provisioned > most:
        raise refused(
            f"ProvisionedConcurrency ({provisioned}) must be at most MaxConcurrency ({most})."
        )


def _not_with_serverless(feature: str) -> AwsError:
    return refused(f"ServerlessConfig is not supported with {feature}.")
