"""The types of resources that a template may have."""

from collections.abc import Mapping

from sagehen.apply.kinds.inference_services import InferenceServiceKind
from sagehen.apply.kinds.kind import Kind, Live, comparable
from sagehen.apply.kinds.s3 import BucketKind
from sagehen.apply.kinds.sagemaker import EndpointConfigKind, EndpointKind, ModelKind
from sagehen.apply.kinds.sns import SubscriptionKind, TopicKind
from sagehen.apply.kinds.sqs import QueueKind

__all__ = ["KINDS", "Kind", "Live", "comparable"]

KINDS: Mapping[str, Kind] = {
    kind.type: kind
    for kind in (
        BucketKind(),
        EndpointConfigKind(),
        EndpointKind(),
        InferenceServiceKind(),
        ModelKind(),
        QueueKind(),
        SubscriptionKind(),
        TopicKind(),
    )
}
