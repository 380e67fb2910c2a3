"""Refuses updates that would take away or change a variant that Application Auto Scaling scales."""

from sqlalchemy import Connection

from sagehen.services.autoscaling.store import targets_of
from sagehen.services.sagemaker.errors import refused
from sagehen.services.sagemaker.hosting.records import Deployment, EndpointRecord, VariantPlan

__all__ = ["check_scaled_variants"]


def check_scaled_variants(
    connection: Connection, record: EndpointRecord, current: Deployment, target: Deployment
) -> None:
    """Refuses an update that removes a scaled variant or changes its instance type. The memory of a
    serverless variant may change."""
    prefix = f"endpoint/{record.name}/variant/"
    scaled = {one.resource_id.rpartition("/")[2] for one in targets_of(connection, prefix)}
    if not scaled:
        return
    before = {variant.name: _kind(variant) for variant in current.all_variants}
    after = {variant.name: _kind(variant) for variant in target.all_variants}
    for name in sorted(scaled):
        if name not in after:
            raise refused(
                f"Variant {name} is a scalable target, so the endpoint configuration "
                f"{target.config_name} cannot remove it. Call DeregisterScalableTarget first."
            )
        if name in before and after[name] != before[name]:
            raise refused(
                f"Variant {name} is a scalable target, so its instance type cannot change from "
                f"{before[name]} to {after[name]}. Call DeregisterScalableTarget first."
            )


def _kind(variant: VariantPlan) -> str:
    return variant.instance_type if variant.serverless is None else "a ServerlessConfig"
