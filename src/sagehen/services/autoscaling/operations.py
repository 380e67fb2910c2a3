"""The operations of Application Auto Scaling, by name."""

from sagehen.frame.context import Operation
from sagehen.services.autoscaling.activities import describe_scaling_activities
from sagehen.services.autoscaling.scaling_policies import (
    delete_scaling_policy,
    describe_scaling_policies,
    get_predictive_scaling_forecast,
    put_scaling_policy,
)
from sagehen.services.autoscaling.scheduled_actions import (
    delete_scheduled_action,
    describe_scheduled_actions,
    put_scheduled_action,
)
from sagehen.services.autoscaling.targets import (
    deregister_scalable_target,
    describe_scalable_targets,
    list_tags_for_resource,
    register_scalable_target,
    tag_resource,
    untag_resource,
)

__all__ = ["OPERATIONS"]

OPERATIONS: dict[str, Operation] = {
    "DeleteScalingPolicy": delete_scaling_policy,
    "DeleteScheduledAction": delete_scheduled_action,
    "DeregisterScalableTarget": deregister_scalable_target,
    "DescribeScalableTargets": describe_scalable_targets,
    "DescribeScalingActivities": describe_scaling_activities,
    "DescribeScalingPolicies": describe_scaling_policies,
    "DescribeScheduledActions": describe_scheduled_actions,
    "GetPredictiveScalingForecast": get_predictive_scaling_forecast,
    "ListTagsForResource": list_tags_for_resource,
    "PutScalingPolicy": put_scaling_policy,
    "PutScheduledAction": put_scheduled_action,
    "RegisterScalableTarget": register_scalable_target,
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
}
