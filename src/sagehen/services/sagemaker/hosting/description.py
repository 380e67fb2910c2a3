"""The answers of DescribeEndpoint and ListEndpoints."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sagehen.frame.container_specs import InstanceState
from sagehen.frame.named_records import as_time
from sagehen.frame.routes import RoutingStrategy
from sagehen.services.sagemaker.hosting.records import (
    Deployment,
    EndpointRecord,
    EndpointStatus,
    InstanceRecord,
    VariantPlan,
)
from sagehen.services.sagemaker.hosting.serverless import describe_serverless

__all__ = ["describe", "summarize"]


def describe(
    record: EndpointRecord,
    instances: Sequence[InstanceRecord],
    resolve: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Returns DescribeEndpoint's output, without unset members.

    Args:
        resolve: returns the ResolvedImage of an image.

    The variants shown are those that serve; PendingDeploymentSummary shows a new deployment.
    """
    running = _running(instances)
    shown = record.current or record.target
    described: dict[str, Any] = {
        "EndpointName": record.name,
        "EndpointArn": record.arn,
        "EndpointStatus": record.status.value,
        "CreationTime": as_time(record.created_at),
        "LastModifiedTime": as_time(record.modified_at),
        "EndpointConfigName": shown.config_name if shown else None,
        "FailureReason": record.failure_reason,
        "LastDeploymentConfig": record.last_deployment_config,
        "AsyncInferenceConfig": shown.async_inference_config if shown else None,
    }
    if record.current is not None:
        described |= _current_variants(record, record.current, running)
        pending = _pending_deployment(record)
        if pending is not None:
            described["PendingDeploymentSummary"] = _pending(record, pending, running)
    for image in _deployed_images(described):
        image["ResolvedImage"] = resolve(image["SpecifiedImage"])
    return {member: value for member, value in described.items() if value is not None}


def _deployed_images(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for summary in (described, described.get("PendingDeploymentSummary", {})):
        for members in ("ProductionVariants", "ShadowProductionVariants"):
            for variant in summary.get(members, ()):
                yield from variant["DeployedImages"]


def summarize(record: EndpointRecord) -> dict[str, Any]:
    return {
        "EndpointName": record.name,
        "EndpointArn": record.arn,
        "EndpointStatus": record.status.value,
        "CreationTime": as_time(record.created_at),
        "LastModifiedTime": as_time(record.modified_at),
    }


def _running(instances: Sequence[InstanceRecord]) -> Counter[tuple[str, str]]:
    return Counter(
        (instance.deployment_id, instance.variant_name)
        for instance in instances
        if instance.state is InstanceState.IN_SERVICE and instance.stop_at is None
    )


def _pending_deployment(record: EndpointRecord) -> Deployment | None:
    """Returns the new deployment; a change of weights or counts is none."""
    current, target = record.current, record.target
    if target is None or (current and current.deployment_id == target.deployment_id):
        return None
    return target


def _current_variants(
    record: EndpointRecord, current: Deployment, running: Counter[tuple[str, str]]
) -> dict[str, Any]:
    changing = record.target if _pending_deployment(record) is None else None
    desired = {variant.name: variant for variant in (changing or current).all_variants}

    def describe(variant: VariantPlan) -> dict[str, Any]:
        count = running[current.deployment_id, variant.name]
        summary = _variant(variant, desired[variant.name], count, current)
        if variant != desired[variant.name]:
            summary["VariantStatus"] = [
                _status("Updating", record) | _scaling(variant, desired[variant.name])
            ]
        elif record.status is EndpointStatus.DELETING:
            summary["VariantStatus"] = [_status("Deleting", record)]
        return summary

    return _by_kind(current, describe)


def _pending(
    record: EndpointRecord, target: Deployment, running: Counter[tuple[str, str]]
) -> dict[str, Any]:
    def describe(variant: VariantPlan) -> dict[str, Any]:
        summary = _variant(variant, variant, running[target.deployment_id, variant.name], target)
        # A new deployment has no traffic yet.
        summary["CurrentWeight"] = 0.0
        if variant.serverless is None:
            summary["InstanceType"] = variant.instance_type
        summary["VariantStatus"] = [_status("Creating", record)]
        return summary

    return {
        "EndpointConfigName": target.config_name,
        **_by_kind(target, describe),
        "StartTime": as_time(target.deployed_at),
    }


def _by_kind(
    deployment: Deployment, describe: Callable[[VariantPlan], dict[str, Any]]
) -> dict[str, Any]:
    members = {"ProductionVariants": [describe(variant) for variant in deployment.variants]}
    if deployment.shadow is not None:
        members["ShadowProductionVariants"] = [describe(deployment.shadow)]
    return members


def _variant(
    variant: VariantPlan, desired: VariantPlan, count: int, deployment: Deployment
) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "VariantName": variant.name,
        "DeployedImages": [
            {
                "SpecifiedImage": container.image,
                "ResolutionTime": as_time(deployment.deployed_at),
            }
            for container in variant.containers
        ],
        "CurrentWeight": variant.weight,
        "DesiredWeight": desired.weight,
    }
    if variant.serverless is not None:
        summary["CurrentServerlessConfig"] = describe_serverless(variant.serverless)
        summary["DesiredServerlessConfig"] = describe_serverless(
            desired.serverless or variant.serverless
        )
    else:
        summary["CurrentInstanceCount"] = count
        summary["DesiredInstanceCount"] = desired.instance_count
    if variant.strategy is not RoutingStrategy.RANDOM:
        summary["RoutingConfig"] = {"RoutingStrategy": variant.strategy.value}
    return summary


def _status(status: str, record: EndpointRecord) -> dict[str, Any]:
    return {"Status": status, "StartTime": as_time(record.modified_at)}


def _scaling(variant: VariantPlan, desired: VariantPlan) -> dict[str, str]:
    """Returns the StatusMessage of a changed count."""
    count = desired.instance_count
    if count == variant.instance_count:
        return {}
    direction = "out" if count > variant.instance_count else "in"
    return {"StatusMessage": f"Scaling {direction} desired instance count to {count}."}
