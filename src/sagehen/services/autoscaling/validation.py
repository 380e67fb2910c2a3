"""Checks of requests that botocore's model cannot express; all raise AwsError."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec

from sagehen.frame.paging import read_token, write_token
from sagehen.services.autoscaling.dimensions import DIMENSIONS, Dimension
from sagehen.services.autoscaling.errors import invalid, invalid_token, not_built
from sagehen.services.autoscaling.policies.facts import StepAdjustment
from sagehen.services.autoscaling.records import NAMESPACE, TargetKey
from sagehen.services.autoscaling.tracking_alarms import PREDEFINED_METRICS

__all__ = [
    "MAX_STEPS",
    "check_bounds",
    "check_policy",
    "check_predictive",
    "optional_key",
    "page_size",
    "read_position",
    "seconds_of",
    "target_key",
    "write_position",
]

MAX_STEPS = 20
LARGEST_REQUEST_BYTES = 50 * 1024
"""of a policy with metric math"""
LARGEST_TARGET = 2.0**360
LARGEST_CAPACITY = 2**31 - 1


def target_key(params: Mapping[str, Any]) -> TargetKey:
    """Returns the scalable target that a request names."""
    dimension = params["ScalableDimension"]
    _check_namespace(params["ServiceNamespace"])
    if dimension not in DIMENSIONS:
        raise invalid("Unsupported service namespace, resource type or scalable dimension")
    described = _built(dimension)
    resource_id = params["ResourceId"]
    if described.resource_id.fullmatch(resource_id) is None:
        raise invalid(
            "Unsupported service namespace, resource type or scalable dimension: the resource id "
            f"of {dimension} has the form {described.form}, unlike {resource_id[:128]!r}."
        )
    return TargetKey(resource_id, dimension)


def optional_key(params: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Returns the resource id and the dimension by which a Describe operation filters."""
    _check_namespace(params["ServiceNamespace"])
    resource_id, dimension = params.get("ResourceId"), params.get("ScalableDimension")
    if dimension is not None and dimension not in DIMENSIONS:
        raise invalid("Unsupported service namespace, resource type or scalable dimension")
    return resource_id, dimension


def _check_namespace(namespace: str) -> None:
    if namespace != NAMESPACE:
        raise not_built(
            f"scaling resources of {namespace}", f"The service namespace {NAMESPACE} is served."
        )


def _built(dimension: str) -> Dimension:
    described = DIMENSIONS[dimension]
    if not described.is_built:
        raise not_built(f"the scalable dimension {dimension}")
    return described


def page_size(params: Mapping[str, Any], most: int) -> int:
    size: int = params.get("MaxResults", most)
    if not 1 <= size <= most:
        raise invalid(f"MaxResults must be between 1 and {most}, not {size}.")
    return size


def read_position(token: str | None, parts: int) -> tuple[str, ...] | None:
    """Returns what the last record of the page before is ordered by."""
    if token is None:
        return None
    try:
        position = msgspec.json.decode(read_token(token, invalid_token), type=tuple[str, ...])
    except msgspec.MsgspecError:
        raise invalid_token() from None
    if len(position) != parts:
        raise invalid_token()
    return position


def write_position(*position: str) -> str:
    return write_token(msgspec.json.encode(position).decode())


def seconds_of(moment: datetime | float | None) -> float | None:
    return moment.timestamp() if isinstance(moment, datetime) else moment


def check_bounds(minimum: int, maximum: int, allowed: int, dimension: str) -> None:
    """`allowed` is the least minimum of the resource."""
    for name, value in (("MinCapacity", minimum), ("MaxCapacity", maximum)):
        if not 0 <= value <= LARGEST_CAPACITY:
            raise invalid(f"{name} must be from 0 to {LARGEST_CAPACITY}, not {value}.")
    if maximum < 1:
        raise invalid("MaxCapacity must be at least 1.")
    if minimum > maximum:
        raise invalid(
            f"MinCapacity must not be greater than MaxCapacity: {minimum} is more than {maximum}."
        )
    if minimum < allowed:
        raise invalid(
            f"The minimum value that the resource can accept for {dimension} is {allowed}, so "
            f"MinCapacity cannot be {minimum}. Only variants of asynchronous endpoints, and those "
            "that start on demand, can have no instance."
        )


def check_predictive(policy_type: str | None, params: Mapping[str, Any]) -> None:
    if policy_type == "PredictiveScaling" or "PredictiveScalingPolicyConfiguration" in params:
        raise invalid(
            "PredictiveScaling is not supported for the service namespace sagemaker. The supported "
            "policy types are StepScaling and TargetTrackingScaling."
        )


_MEMBERS = {
    "TargetTrackingScaling": "TargetTrackingScalingPolicyConfiguration",
    "StepScaling": "StepScalingPolicyConfiguration",
}


def check_policy(policy_type: str, params: Mapping[str, Any], dimension: str) -> dict[str, Any]:
    """Returns the configuration of the policy's type."""
    member = _MEMBERS[policy_type]
    other = next(name for name in _MEMBERS.values() if name != member)
    if other in params:
        raise invalid(f"A policy of type {policy_type} has no {other}.")
    if member not in params:
        raise invalid(f"A policy of type {policy_type} needs a {member}.")
    configuration: dict[str, Any] = params[member]
    if policy_type == "StepScaling":
        _check_steps(configuration)
    else:
        _check_tracking(configuration, dimension)
    return configuration


def _check_tracking(configuration: Mapping[str, Any], dimension: str) -> None:
    target = configuration["TargetValue"]
    if not 0 < target <= LARGEST_TARGET:
        raise invalid(
            f"TargetValue must be greater than 0 and at most 2^360, not {target:g}: the capacity "
            "is computed in proportion to the metric divided by the target."
        )
    for name in ("ScaleOutCooldown", "ScaleInCooldown"):
        _check_not_negative(configuration, name)
    predefined = configuration.get("PredefinedMetricSpecification")
    customized = configuration.get("CustomizedMetricSpecification")
    if (predefined is None) == (customized is None):
        raise invalid(
            "Exactly one of PredefinedMetricSpecification and CustomizedMetricSpecification has to "
            "be given."
        )
    if predefined is not None:
        _check_predefined(predefined, dimension)
    elif customized is not None:
        _check_customized(customized)


def _check_predefined(specification: Mapping[str, Any], dimension: str) -> None:
    name = specification["PredefinedMetricType"]
    metric = PREDEFINED_METRICS.get(name)
    if metric is None or metric.dimension != dimension:
        fitting = sorted(
            kind for kind, other in PREDEFINED_METRICS.items() if other.dimension == dimension
        )
        raise invalid(
            f"The predefined metric type {name} is not for the scalable dimension {dimension}. "
            f"For it there are: {', '.join(fitting)}."
        )
    if "ResourceLabel" in specification:
        raise invalid(f"ResourceLabel is not supported for the predefined metric type {name}.")


def _check_customized(specification: Mapping[str, Any]) -> None:
    single = ("MetricName", "Namespace", "Dimensions", "Statistic", "Unit")
    queries = specification.get("Metrics")
    if queries is None:
        if missing := [
            name for name in ("MetricName", "Namespace", "Statistic") if name not in specification
        ]:
            raise invalid(
                f"CustomizedMetricSpecification needs {' and '.join(missing)}, or Metrics for "
                "metric math."
            )
        return
    if both := [name for name in single if name in specification]:
        raise invalid(f"CustomizedMetricSpecification has Metrics, so it cannot have {both[0]}.")
    if len(msgspec.json.encode(specification)) > LARGEST_REQUEST_BYTES:
        raise invalid(f"The request is over {LARGEST_REQUEST_BYTES} bytes.")
    _check_queries(queries)


def _check_queries(queries: Sequence[Mapping[str, Any]]) -> None:
    ids = [query["Id"] for query in queries]
    if len(set(ids)) < len(ids):
        raise invalid("The Ids of Metrics have to differ.")
    for query in queries:
        if not (query["Id"][:1].isalpha() and query["Id"][:1].islower()):
            raise invalid(f"The Id {query['Id'][:64]!r} does not begin with a lower-case letter.")
        if ("Expression" in query) == ("MetricStat" in query):
            raise invalid(f"Metric {query['Id']} needs one of Expression and MetricStat.")
        metric = query.get("MetricStat", {}).get("Metric")
        if metric is not None and not {"Namespace", "MetricName"} <= metric.keys():
            raise invalid(f"The Metric of {query['Id']} needs a Namespace and a MetricName.")
    if sum(query.get("ReturnData", True) for query in queries) != 1:
        raise invalid("Exactly one of Metrics has to have a ReturnData that is true.")


def _check_steps(configuration: Mapping[str, Any]) -> None:
    if "AdjustmentType" not in configuration:
        raise invalid("StepScalingPolicyConfiguration needs an AdjustmentType.")
    given = configuration.get("StepAdjustments", [])
    if not 1 <= len(given) <= MAX_STEPS:
        raise invalid(f"There have to be 1 to {MAX_STEPS} StepAdjustments, not {len(given)}.")
    _check_not_negative(configuration, "Cooldown")
    kind = configuration["AdjustmentType"]
    if "MinAdjustmentMagnitude" in configuration:
        if kind != "PercentChangeInCapacity":
            raise invalid(f"MinAdjustmentMagnitude does not go with the AdjustmentType {kind}.")
        if configuration["MinAdjustmentMagnitude"] < 1:
            raise invalid("MinAdjustmentMagnitude must be at least 1.")
    steps = [msgspec.convert(step, StepAdjustment) for step in given]
    if kind == "ExactCapacity" and any(step.scaling_adjustment < 0 for step in steps):
        raise invalid("A ScalingAdjustment of ExactCapacity must not be negative.")
    _check_intervals(steps)


def _check_intervals(steps: Sequence[StepAdjustment]) -> None:
    """Refuses gaps, overlaps and a half line that no step covers."""
    bounds = [
        (step.metric_interval_lower_bound, step.metric_interval_upper_bound) for step in steps
    ]
    for lower, upper in bounds:
        if lower is None and upper is None:
            raise invalid("A step adjustment needs a lower or an upper bound.")
        for bound in (lower, upper):
            if bound is not None and not math.isfinite(bound):
                raise invalid(
                    f"The bound {bound} of a step adjustment is not a finite number. Leave a bound "
                    "out for infinity."
                )
        if lower is not None and upper is not None and upper <= lower:
            raise invalid(
                f"The MetricIntervalUpperBound {upper:g} is not greater than the "
                f"MetricIntervalLowerBound {lower:g}."
            )
    if (
        sum(lower is None for lower, _ in bounds) > 1
        or sum(upper is None for _, upper in bounds) > 1
    ):
        raise invalid("At most one step may have no lower bound, and one no upper bound.")
    ordered = sorted(bounds, key=lambda bound: (bound[0] is not None, bound[0] or 0.0))
    for (_, upper), (lower, _) in pairwise(ordered):
        if upper != lower:
            raise invalid("Between the intervals of step adjustments there is a gap or an overlap.")
    lowest, highest = ordered[0][0], ordered[-1][1]
    if lowest is not None and lowest < 0:
        raise invalid("With a negative lower bound one step has to have no lower bound.")
    if highest is not None and highest > 0:
        raise invalid("With a positive upper bound one step has to have no upper bound.")


def _check_not_negative(configuration: Mapping[str, Any], name: str) -> None:
    if configuration.get(name, 0) < 0:
        raise invalid(f"{name} must not be negative.")
