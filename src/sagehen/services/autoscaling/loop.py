"""The loop of scheduled actions, of activities that end, and of bounds that are not yet applied."""

import math
from collections.abc import Coroutine, Sequence
from typing import Any

from sagehen.base.clock import Clock
from sagehen.base.concurrency import in_thread
from sagehen.frame.leased_loop import LeasedLoop
from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.activities import HISTORY_SECONDS
from sagehen.services.autoscaling.autoscaler import Autoscaler
from sagehen.services.autoscaling.records import ScalableTargetRecord, ScheduledActionRecord
from sagehen.services.autoscaling.resources import Capacity
from sagehen.services.autoscaling.scheduled_runs import run_action
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership

__all__ = ["LEASE_NAME", "ScalingLoop"]

LEASE_NAME = "autoscaling"
SWEEP_SECONDS = 3600.0
ENDED_ACTION_SECONDS = 86_400.0
"""how long an action is shown that will not run again"""
MAX_ACTIVITIES = 1000
"""of a scalable target"""


class ScalingLoop(LeasedLoop):
    """Does the work that no alarm calls for: schedules, and activities that end."""

    def __init__(
        self, database: Database, autoscaler: Autoscaler, clock: Clock, leadership: Leadership
    ) -> None:
        super().__init__(database, clock, LEASE_NAME, leadership)
        self._database = database
        self._autoscaler = autoscaler
        self._seen: object = None
        """the version of the resources whose targets were looked at"""
        self._sweep_due = -math.inf

    def companions(self) -> Sequence[Coroutine[Any, Any, None]]:
        return []

    async def step(self) -> float | None:
        seconds = await in_thread(self._step)
        if seconds is not None:
            # A schedule that runs next year must not cost a look each second.
            self.due_in(seconds)
        return None

    def _step(self) -> float | None:
        """Returns the seconds until the next scheduled run."""
        now = self._clock.now()
        if self._clock.monotonic() >= self._sweep_due:
            self._sweep_due = self._clock.monotonic() + SWEEP_SECONDS
            self._sweep(now)
        with self._database.read() as connection:
            running = store.activities_in_progress(connection)
            due = store.due_actions(connection, now)
            version = self._autoscaler.resources.version(connection)
        if running:
            self._end_activities(now)
        if version != self._seen:
            self._adjust_all(now)
            self._seen = version
        for action in due:
            self._run(action, now)
        with self._database.read() as connection:
            next_at = store.next_due_at(connection)
        return None if next_at is None else max(0.0, next_at - self._clock.now())

    def _end_activities(self, now: float) -> None:
        with self._database.read() as connection:
            running = store.activities_in_progress(connection)
            keys = {activity.key[:2] for activity in running}
            capacities = self._autoscaler.resources.capacities(connection, keys)
        waits = all(
            (capacity := capacities.get(activity.key[:2])) is not None
            and capacity.desired == activity.desired
            and not capacity.is_settled
            for activity in running
        )
        if waits:
            return
        with self._database.write() as connection:
            self._lease.lease.check(connection, now)
            running = store.activities_in_progress(connection)
            self._autoscaler.end_activities(connection, running, now)

    def _adjust_all(self, now: float) -> None:
        """Brings counts between their bounds after a deployment, which begins with those of its
        configuration, and where the resource was busy before."""
        with self._database.read() as connection:
            targets = store.all_targets(connection)
            keys = {target.key[:2] for target in targets}
            capacities = self._autoscaler.resources.capacities(connection, keys)
        for target in targets:
            capacity = capacities.get(target.key[:2])
            if capacity is not None and _needs_look(target, capacity):
                self._adjust(target, now)

    def _adjust(self, seen: ScalableTargetRecord, now: float) -> None:
        with self._database.write() as connection:
            self._lease.lease.check(connection, now)
            target = store.target_by_id(connection, seen.target_id)
            capacity = target and self._autoscaler.capacity(connection, target.key)
            if target and capacity and _needs_look(target, capacity):
                adjusted = self._autoscaler.adjust(connection, target, capacity, now)
                store.put_target(connection, adjusted)

    def _run(self, seen: ScheduledActionRecord, now: float) -> None:
        """Runs a due action: bounds, count, activities and the next time in one transaction."""
        with self._database.write() as connection:
            self._lease.lease.check(connection, now)
            target = store.target_by_id(connection, seen.target_id)
            action = target and store.find_action(connection, target.target_id, seen.name)
            if target and action and action.next_at is not None and action.next_at <= now:
                run_action(connection, self._autoscaler, target, action, now)

    def _sweep(self, now: float) -> None:
        with self._database.write() as connection:
            store.forget_old_activities(connection, now - HISTORY_SECONDS)
            store.forget_surplus_activities(connection, MAX_ACTIVITIES)
            store.forget_ended_actions(connection, now - ENDED_ACTION_SECONDS)


def _needs_look(target: ScalableTargetRecord, capacity: Capacity) -> bool:
    return target.adjusted_for != capacity.deployment and capacity.not_scalable is None
