"""Assembles control's parts for messaging, inference services and transform jobs."""

import os
import random
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from sqlalchemy import Connection
from starlette.routing import Route

from sagehen.app.roles.common import Start
from sagehen.base.address import public_url
from sagehen.base.clock import SYSTEM
from sagehen.base.settings import Settings
from sagehen.frame.arns import ArnMaker
from sagehen.frame.asgi import BodyBudget
from sagehen.frame.context import Record
from sagehen.frame.own_paths.access import OwnSite
from sagehen.services.inference_service.app import InferenceServices
from sagehen.services.inference_service.intake import Counts, JobIntake
from sagehen.services.inference_service.jobs import ServiceJobs
from sagehen.services.inference_service.own_paths import service_routes
from sagehen.services.inference_service.services import Services
from sagehen.services.inference_service.slots import Slots
from sagehen.services.inference_service.sweeps import Housekeeping, InferenceSweeps
from sagehen.services.messaging.events.deliveries import resolve_target
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.messaging.events.records import Event
from sagehen.services.messaging.outbox.deliverer import Deliverer, send_with
from sagehen.services.messaging.outbox.destinations import Resolve
from sagehen.services.messaging.outbox.http import HttpSender
from sagehen.services.messaging.outbox.limits import ConcurrencyLimits
from sagehen.services.messaging.outbox.mail import MailSender
from sagehen.services.messaging.outbox.outbox import Outbox
from sagehen.services.messaging.outbox.store import DELIVERIES_DUE
from sagehen.services.messaging.sns import topic_store
from sagehen.services.messaging.sns.deliveries import SubscriptionResolver
from sagehen.services.messaging.sns.envelopes import Links, seal
from sagehen.services.messaging.sns.records import Notice
from sagehen.services.messaging.sns.signing import load_signer
from sagehen.services.messaging.sqs.arrivals import Arrivals
from sagehen.services.messaging.sqs.message_store import MESSAGES_SENT
from sagehen.services.messaging.sweeps import TopicSweeps
from sagehen.services.monitoring.alarms.actions import (
    AlarmActions,
    AlarmEvent,
    Notification,
    PolicyInvoker,
)
from sagehen.services.monitoring.alarms.configuration import AlarmChanges
from sagehen.services.monitoring.alarms.loop import AlarmLoop
from sagehen.services.monitoring.alarms.managed import ManagedAlarms
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.creation import create_training_job_row
from sagehen.services.sagemaker.training.operations import stop_training_job_row
from sagehen.services.sagemaker.training.records import TrainingJobRecord
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from sagehen.state.leadership import Leadership
from sagehen.state.shared_secrets import share_secret

__all__ = ["AlarmParts", "Inference", "Notices", "runner_command"]


class AlarmParts:
    """CloudWatch's alarms, and what they do to other services."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        leadership: Leadership,
        invoke_policy: PolicyInvoker,
    ) -> None:
        arns = ArnMaker.of(settings)
        actions = AlarmActions(
            publish=_publish, put_event=partial(_put_event, arns), invoke_policy=invoke_policy
        )
        self.changes = AlarmChanges(arns=arns, actions=actions, max_alarms=settings.max_alarms)
        self.managed = ManagedAlarms(self.changes)
        most_items = settings.max_alarm_history_items
        self._loop = AlarmLoop(database, SYSTEM, leadership, actions, most_items)

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self._loop.run()]


def _publish(connection: Connection, notification: Notification) -> bool:
    notice = Notice(
        message_id=str(uuid.uuid4()),
        topic_arn=notification.topic_arn,
        subject=notification.subject,
        message=notification.message,
        published_at=notification.published_at,
    )
    return topic_store.publish(connection, notice)


def _put_event(arns: ArnMaker, connection: Connection, event: AlarmEvent) -> None:
    put_event(
        connection,
        Event(
            event_id=str(uuid.uuid4()),
            source="aws.cloudwatch",
            detail_type=event.detail_type,
            account=arns.account_id,
            region=arns.region,
            happened_at=event.happened_at,
            resources=(event.alarm_arn,),
            detail=event.detail,
        ),
    )


class Notices:
    """Signs, delivers and awaits messages; must be created in control's event loop."""

    def __init__(
        self,
        start: Start,
        database: Database,
        writes: GroupCommit,
        record: Record,
        leadership: Leadership,
        is_told: Callable[[], bool],
    ) -> None:
        """Args:
        record: counts NotificationFailures.
        is_told: whether notifications of other controls arrive.
        """
        self._is_told = is_told
        settings = start.settings
        key = start.home.message_key
        share_secret(database, "key that signs messages", key, load_signer)
        self.signer = load_signer(key)
        links = Links(public_url(settings), self.signer.certificate_path)
        self.seal = partial(seal, links=links, sign=self.signer.sign)
        self.arrivals = Arrivals(settings.max_long_polls)
        self._http = HttpSender(settings.delivery_timeout_seconds)
        resolvers: dict[str, Resolve] = {
            "events": resolve_target,
            "sns": SubscriptionResolver(self.seal, links),
        }
        outbox = Outbox(database, writes, SYSTEM, record, random.Random(), resolvers)
        self._deliverer = Deliverer(
            outbox,
            send_with(self._http, MailSender(settings, SYSTEM), SYSTEM),
            leadership,
            ConcurrencyLimits(settings.max_deliveries, settings.max_receiver_deliveries),
            SYSTEM,
        )
        self._sweeps = TopicSweeps(writes, outbox, SYSTEM, settings.max_waiting_deliveries)
        database.listen(MESSAGES_SENT, self.arrivals.tell)
        database.commits.on_change(self._look_for_messages)
        database.listen(DELIVERIES_DUE, self._deliverer.hint)

    def _look_for_messages(self) -> None:
        """Another control may have been sent some whose notifications do not arrive."""
        if not self._is_told():
            self.arrivals.tell_all()

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self._deliverer.run(), self._sweeps.run()]

    async def close(self) -> None:
        await self._http.close()


class Inference:
    """The inference services; call `begin` before serving."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        writes: GroupCommit,
        objects: ObjectStore,
        site: OwnSite,
        bodies: BodyBudget,
    ) -> None:
        self._counts = Counts()
        training = _TrainingJobs(settings)
        own_service = settings.inference_service
        slots = Slots(training.make, SYSTEM, own_service)
        self.on_end = slots.on_end
        """runs in the transaction in which a job ends"""
        jobs = ServiceJobs(database, writes, slots, training.stop)
        intake = JobIntake(database, writes, objects, settings, slots, SYSTEM)
        self.answers = InferenceServices(
            database, intake, jobs, self._counts, site, bodies, own_service
        ).answers
        """returns False if the request is for another handler"""
        self._services = Services(database, writes, objects, settings, slots, training.stop, SYSTEM)
        housekeeping = Housekeeping(slots, SYSTEM)
        self._sweeps = InferenceSweeps(writes, SYSTEM, housekeeping.stages, housekeeping.sweep)

    def begin(self) -> None:
        self._services.begin()

    def routes(self) -> list[Route]:
        return service_routes(self._services)

    def measured(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        return self._counts.measured()

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self._sweeps.run()]


class _TrainingJobs:
    """Creates and stops training jobs in the caller's transaction."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._arns = ArnMaker.of(settings)

    def make(
        self, connection: Connection, definition: dict[str, Any], tags: dict[str, str], now: float
    ) -> TrainingJobRecord:
        return create_training_job_row(
            connection, definition, tags, settings=self._settings, arns=self._arns, now=now
        )

    def stop(self, connection: Connection, name: str, job_id: str) -> None:
        record = training_jobs.get_for_update(connection, name)
        if record is not None and record.job_id == job_id:
            stop_training_job_row(connection, record, self._arns, SYSTEM.now())


def runner_command(memory_bytes: int) -> list[str]:
    """Returns the command of a transform job's runner."""
    program = "sagehen.app.roles.transform_runner"
    limits = [f"--parent={os.getpid()}", f"--memory-bytes={memory_bytes}"]
    return [sys.executable, "-m", program, *limits]
