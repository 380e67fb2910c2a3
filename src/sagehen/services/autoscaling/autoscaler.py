"""Changes desired counts, each in one transaction with its activity, and ends the activities.

A new desired count and its activity are committed together, so a kill loses neither and repeats
neither. Whether the count has been reached is seen later, from the resource itself.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.activities import (
    change_activity,
    failed,
    failed_message,
    is_same_failure,
    succeeded,
)
from sagehen.services.autoscaling.policies.facts import LastScaling
from sagehen.services.autoscaling.records import (
    NAMESPACE,
    ActivityRecord,
    ActivityStatus,
    PolicyRecord,
    ScalableTargetRecord,
    TargetKey,
)
from sagehen.services.autoscaling.resources import (
    Alarms,
    Capacity,
    PutEvent,
    ScalableResources,
    ScalingEvent,
)
from sagehen.wire.errors import AwsError

__all__ = ["Autoscaler"]

log = logging.getLogger(__name__)


class Autoscaler:
    """Scales resources. Every method works in its caller's transaction."""

    def __init__(self, resources: ScalableResources, alarms: Alarms, put_event: PutEvent) -> None:
        self.resources = resources
        self.alarms = alarms
        self._put_event = put_event

    def capacity(self, connection: Connection, key: TargetKey) -> Capacity | None:
        return self.resources.capacity(connection, key.resource_id, key.dimension)

    def change(
        self,
        connection: Connection,
        target: ScalableTargetRecord,
        capacity: Capacity,
        desired: int,
        cause: str,
        now: float,
        before: int | None = None,
        is_retry: bool = False,
    ) -> ActivityRecord:
        """Sets the desired count and writes the activity, failed if the service refuses the count.

        Args:
            before: see `LastScaling`; None for a change that starts no cooldown.
            is_retry: leaves out an activity that failed for the same reason as the last one.
        """
        activity = change_activity(
            target.key, cause, now, desired=desired, capacity=capacity.desired, before=before
        )
        try:
            self.resources.set_desired(
                connection, target.resource_id, target.dimension, desired, now
            )
        except AwsError as error:
            activity = failed(activity, failed_message(error), now)
            if is_retry and _is_told(connection, activity):
                return activity
        store.add_activity(connection, activity)
        _log_activity(activity)
        return activity

    def adjust(
        self, connection: Connection, target: ScalableTargetRecord, capacity: Capacity, now: float
    ) -> ScalableTargetRecord:
        """Brings the desired count between the bounds; returns the target, which is not stored.

        While the resource takes no change, nothing happens: the loop adjusts it later, as it does
        when the service has refused the count.
        """
        minimum, maximum = target.minimum, target.maximum
        desired = min(max(capacity.desired, minimum), maximum)
        if desired != capacity.desired:
            if capacity.not_scalable is not None:
                return msgspec.structs.replace(target, adjusted_for=None)
            bound = "minimum" if desired == minimum else "maximum"
            cause = f"{bound} capacity was set to {desired}"
            activity = self.change(connection, target, capacity, desired, cause, now, is_retry=True)
            reason = f"The {cause}."
            target = msgspec.structs.replace(target, last_decision=reason, decided_at=now)
            if activity.status is ActivityStatus.FAILED:
                return msgspec.structs.replace(target, adjusted_for=None)
        return msgspec.structs.replace(target, adjusted_for=capacity.deployment)

    def end_activities(
        self, connection: Connection, activities: Iterable[ActivityRecord], now: float
    ) -> bool:
        """Ends those of `activities` whose count has been reached, or never will be; returns
        whether any ended."""
        ended = [
            self._end(connection, activity, after, now)
            for activity in activities
            if (after := self._ended(connection, activity, now)) is not None
        ]
        return bool(ended)

    def _ended(
        self, connection: Connection, activity: ActivityRecord, now: float
    ) -> ActivityRecord | None:
        capacity = self.capacity(connection, activity.key)
        if capacity is None:
            reason = "The resource does not exist any more."
            return failed(activity, reason, now, ActivityStatus.UNFULFILLED)
        if capacity.desired == activity.desired:
            return succeeded(activity, now) if capacity.is_settled else None
        if capacity.is_settled and capacity.failure is not None:
            return failed(activity, capacity.failure, now, ActivityStatus.UNFULFILLED)
        reason = f"The desired count was set to {capacity.desired} by another change."
        return failed(activity, reason, now, ActivityStatus.OVERRIDDEN)

    def _end(
        self, connection: Connection, before: ActivityRecord, after: ActivityRecord, now: float
    ) -> ActivityRecord:
        store.update_activity(connection, after)
        _log_activity(after)
        target = store.find_target(connection, after.key, lock=True)
        if target is not None and after.status is ActivityStatus.SUCCESSFUL:
            if before.before is not None:
                store.put_target(connection, _after_scaling(target, after, now))
            self._report_maximum(connection, target, after, now)
        return after

    def _report_maximum(
        self,
        connection: Connection,
        target: ScalableTargetRecord,
        activity: ActivityRecord,
        now: float,
    ) -> None:
        """Sends the event of a target that has been scaled out to its maximum: the only event that
        Application Auto Scaling has."""
        desired, old = activity.desired, activity.capacity
        if desired is None or old is None or not old < desired >= target.maximum:
            return
        detail = {
            "startTime": _iso(activity.started_at),
            "endTime": _iso(now),
            "newDesiredCapacity": desired,
            "oldDesiredCapacity": old,
            "minCapacity": target.minimum,
            "maxCapacity": target.maximum,
            "resourceId": target.resource_id,
            "scalableDimension": target.dimension,
            "serviceNamespace": NAMESPACE,
            "statusCode": activity.status.value,
            "scaledToMax": True,
            "direction": "scale-out",
        }
        self._put_event(connection, ScalingEvent(now, detail))

    def deregister(self, connection: Connection, target: ScalableTargetRecord, now: float) -> None:
        """Deletes a target with its policies, their alarms, its scheduled actions and tags."""
        for policy in store.policies_of(connection, target.target_id):
            self.delete_alarms(connection, policy, now)
        tags.drop(connection, target.arn)
        store.delete_target(connection, target.target_id)
        extra = {"action": "deregister_target", "resource": target.resource_id}
        log.info("A scalable target is gone.", extra=extra)

    def deregister_all(self, connection: Connection, prefix: str, now: float) -> None:
        """Deregisters the targets whose resource id begins with `prefix`: the resource goes."""
        for target in store.targets_of(connection, prefix):
            self.deregister(connection, target, now)

    def delete_alarms(self, connection: Connection, policy: PolicyRecord, now: float) -> None:
        if policy.alarms:
            self.alarms.delete(connection, [alarm.alarm_name for alarm in policy.alarms], now)


def _is_told(connection: Connection, activity: ActivityRecord) -> bool:
    key = activity.resource_id, activity.dimension
    return any(
        is_same_failure(activity, last)
        for _, last in store.activities(connection, key, False, None, 1)
    )


def _after_scaling(
    target: ScalableTargetRecord, activity: ActivityRecord, now: float
) -> ScalableTargetRecord:
    """Begins the cooldown: it counts from the end of an activity."""
    assert activity.desired is not None
    assert activity.capacity is not None
    assert activity.before is not None
    last = LastScaling(ended_at=now, before=activity.before)
    if activity.desired > activity.capacity:
        # A scale-out ends the cooldown of a scale-in.
        return msgspec.structs.replace(target, last_out=last, last_in=None)
    return msgspec.structs.replace(target, last_in=last)


def _iso(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _log_activity(activity: ActivityRecord) -> None:
    level = (
        logging.INFO
        if activity.status in (ActivityStatus.IN_PROGRESS, ActivityStatus.SUCCESSFUL)
        else logging.WARNING
    )
    extra = {
        "action": "scaling_activity",
        "activity": activity.activity_id,
        "resource": activity.resource_id,
        "status": activity.status.value,
        "desired": activity.desired,
        "cause": activity.cause,
        "message_text": activity.message,
    }
    log.log(level, "A scaling activity has a new status.", extra=extra)
