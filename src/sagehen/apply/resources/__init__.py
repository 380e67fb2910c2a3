"""The resource types that a template may use."""

from collections.abc import Mapping

from sagehen.apply.resources.autoscaling import ScalableTargetKind, ScalingPolicyKind
from sagehen.apply.resources.cloudwatch import MetricAlarmKind
from sagehen.apply.resources.events import RuleKind
from sagehen.apply.resources.inference_services import InferenceServiceKind
from sagehen.apply.resources.policies import RECORDED_KINDS
from sagehen.apply.resources.resource import ActualState, ResourceKind, comparable
from sagehen.apply.resources.s3 import BucketKind
from sagehen.apply.resources.sagemaker import EndpointConfigKind, EndpointKind, ModelKind
from sagehen.apply.resources.sns import SubscriptionKind, TopicKind
from sagehen.apply.resources.sqs import QueueKind

__all__ = ["KINDS", "ActualState", "ResourceKind", "comparable"]

KINDS: Mapping[str, ResourceKind] = {
    kind.type: kind
    for kind in (
        MetricAlarmKind(),
        BucketKind(),
        EndpointConfigKind(),
        EndpointKind(),
        InferenceServiceKind(),
        ModelKind(),
        QueueKind(),
        RuleKind(),
        ScalableTargetKind(),
        ScalingPolicyKind(),
        SubscriptionKind(),
        TopicKind(),
        *RECORDED_KINDS,
    )
}
