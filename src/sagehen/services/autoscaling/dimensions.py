"""The scalable dimensions of the namespace `sagemaker`, and the ids of their resources."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["COPIES", "DIMENSIONS", "INSTANCES", "PROVISIONED_CONCURRENCY", "Dimension"]

INSTANCES = "sagemaker:variant:DesiredInstanceCount"
PROVISIONED_CONCURRENCY = "sagemaker:variant:DesiredProvisionedConcurrency"
COPIES = "sagemaker:inference-component:DesiredCopyCount"


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One thing of a resource that can be scaled."""

    resource_id: re.Pattern[str]
    """its groups are named as CloudWatch's dimensions of the resource's metrics are"""
    form: str
    """of the resource id, for messages"""
    count: str
    """what is counted, in the texts of activities"""
    is_built: bool = True


_NAME = r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}"
_VARIANT = re.compile(f"endpoint/(?P<EndpointName>{_NAME})/variant/(?P<VariantName>{_NAME})")
_COMPONENT = re.compile(f"inference-component/(?P<InferenceComponentName>{_NAME})")

DIMENSIONS: Mapping[str, Dimension] = {
    INSTANCES: Dimension(
        resource_id=_VARIANT,
        form="endpoint/ENDPOINT/variant/VARIANT",
        count="instance count",
    ),
    PROVISIONED_CONCURRENCY: Dimension(
        resource_id=_VARIANT,
        form="endpoint/ENDPOINT/variant/VARIANT",
        count="provisioned concurrency",
    ),
    COPIES: Dimension(
        resource_id=_COMPONENT,
        form="inference-component/COMPONENT",
        count="copy count",
        is_built=False,
    ),
}
