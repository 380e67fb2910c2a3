"""Assembles control's parts for Application Auto Scaling."""

import uuid
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.frame.arns import ArnMaker
from sagehen.frame.context import RequestContext
from sagehen.services.autoscaling.autoscaler import Autoscaler
from sagehen.services.autoscaling.invocations import PolicyInvocations
from sagehen.services.autoscaling.loop import ScalingLoop
from sagehen.services.autoscaling.resources import ScalingEvent
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.messaging.events.records import Event
from sagehen.services.monitoring.alarms.actions import PolicyTrigger
from sagehen.services.monitoring.alarms.managed import ManagedAlarms
from sagehen.services.sagemaker.hosting.scaling import ENDPOINTS_SCALED, VariantResources
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership

__all__ = ["Scaling"]


class Scaling:
    """The scaling of endpoints' variants, by alarms and by schedules."""

    def __init__(
        self,
        database: Database,
        arns: ArnMaker,
        make_call: Callable[[str], RequestContext],
        alarms: ManagedAlarms,
        clock: Clock,
        leadership: Leadership,
        on_change: Callable[[], None],
    ) -> None:
        """Args:
        make_call: makes the context of calls that change counts.
        on_change: wakes the endpoints' reconciler.
        """
        resources = VariantResources(lambda: make_call(str(uuid.uuid4())))
        self.autoscaler = Autoscaler(resources, alarms, partial(_put_event, arns))
        self._invocations = PolicyInvocations(self.autoscaler)
        self._loop = ScalingLoop(database, self.autoscaler, clock, leadership)
        database.listen(ENDPOINTS_SCALED, lambda _: on_change())

    def invoke(self, connection: Connection, trigger: PolicyTrigger, now: datetime) -> str | None:
        """Runs a policy that an alarm invokes."""
        return self._invocations.invoke(connection, trigger, now)

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self._loop.run()]


def _put_event(arns: ArnMaker, connection: Connection, event: ScalingEvent) -> None:
    put_event(
        connection,
        Event(
            event_id=str(uuid.uuid4()),
            source="aws.application-autoscaling",
            detail_type="Application Auto Scaling Scaling Activity State Change",
            account=arns.account_id,
            region=arns.region,
            happened_at=event.happened_at,
            detail=event.detail,
        ),
    )
