"""Builds the dispatcher from the settings."""

import random
from collections.abc import Callable

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.home import Home
from sagehen.base.retry import RetryPolicy
from sagehen.base.settings import Settings
from sagehen.frame.container_relay import LOCAL_ACCESS, ContainerAccess
from sagehen.frame.context import Record
from sagehen.frame.routes import RouteFileReader
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.async_inference.dispatch.attempt import RequestAttempt
from sagehen.services.sagemaker.async_inference.dispatch.claims import LeasedRequest
from sagehen.services.sagemaker.async_inference.dispatch.completion import Endings
from sagehen.services.sagemaker.async_inference.dispatch.containers import Containers
from sagehen.services.sagemaker.async_inference.dispatch.data_log import RequestDataLog
from sagehen.services.sagemaker.async_inference.dispatch.dispatcher import AsyncDispatcher
from sagehen.services.sagemaker.async_inference.dispatch.inputs import Inputs
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainers
from sagehen.services.sagemaker.async_inference.dispatch.invoke import ContainerInvoker
from sagehen.services.sagemaker.async_inference.dispatch.notices import MAX_BODY_BYTES
from sagehen.services.sagemaker.async_inference.dispatch.outputs import OutputWriter
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from sagehen.state.leadership import Leadership

__all__ = ["make_dispatcher"]

THREADS = 32
"""Threads for the object store; many, because small writes share one wait for the disk."""
DATABASE_RETRY_SECONDS = 60.0


def make_dispatcher(
    settings: Settings,
    home: Home,
    database: Database,
    writes: GroupCommit,
    objects: ObjectStore,
    record: Record,
    clock: Clock,
    leadership: Leadership,
    access: ContainerAccess = LOCAL_ACCESS,
) -> AsyncDispatcher:
    threads = Threads(THREADS, "dispatch")
    routes = RouteFileReader(home.routes, clock)
    routed = RoutedContainers(
        routes, clock, settings.async_concurrency, random.random, access.own_node_id
    )

    retry = RetryPolicy(clock, settings.async_store_patience_seconds)

    def make_work(release_slot: Callable[[LeasedRequest], None]) -> RequestAttempt:
        invoker = ContainerInvoker(
            objects=objects,
            inputs=Inputs(database, objects, threads, clock, settings.max_async_input_bytes),
            containers=Containers(clock, access.connector),
            threads=threads,
            retry=retry,
            clock=clock,
            max_response_bytes=settings.max_async_response_bytes,
            release_slot=release_slot,
        )
        in_database = RetryPolicy(clock, DATABASE_RETRY_SECONDS)
        return RequestAttempt(
            database=database,
            writes=writes,
            invoker=invoker,
            outputs=OutputWriter(objects, threads, MAX_BODY_BYTES),
            endings=Endings(writes, objects, in_database, record, settings.region, clock),
            threads=threads,
            retry=retry,
            data_log=RequestDataLog(home.logs / "endpoints", settings.container_log_bytes, clock),
            clock=clock,
            max_redeliveries=settings.max_async_redeliveries,
            leads=lambda: leadership.is_leader,
        )

    return AsyncDispatcher(
        writes, routed, make_work, clock, leadership, settings.max_async_in_flight
    )
