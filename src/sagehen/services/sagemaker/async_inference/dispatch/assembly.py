"""Builds the dispatcher from the settings."""

import random
from collections.abc import Callable

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.home import Home
from sagehen.base.retry import RetryPolicy
from sagehen.base.settings import Settings
from sagehen.frame.context import Record
from sagehen.frame.routes import RouteFileReader
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.async_inference.dispatch.attempt import RequestAttempt
from sagehen.services.sagemaker.async_inference.dispatch.claims import LeasedRequest
from sagehen.services.sagemaker.async_inference.dispatch.completion import Endings
from sagehen.services.sagemaker.async_inference.dispatch.data_log import DataLog
from sagehen.services.sagemaker.async_inference.dispatch.dispatcher import AsyncDispatcher
from sagehen.services.sagemaker.async_inference.dispatch.inputs import Inputs
from sagehen.services.sagemaker.async_inference.dispatch.instances import RoutedContainers
from sagehen.services.sagemaker.async_inference.dispatch.invoke import Asker, Containers
from sagehen.services.sagemaker.async_inference.dispatch.notices import MOST_BODY_BYTES
from sagehen.services.sagemaker.async_inference.dispatch.outputs import OutputWriter
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["make_dispatcher"]

THREADS = 32
"""Threads for the object store; many, because small writes share one wait for the disk."""
DATABASE_PATIENCE_SECONDS = 60.0


def make_dispatcher(
    settings: Settings,
    home: Home,
    database: Database,
    writes: GroupCommit,
    objects: ObjectStore,
    record: Record,
    clock: Clock,
    holder: str,
) -> AsyncDispatcher:
    """Args:
    holder: names the home and its machine, not the process.
    """
    threads = Threads(THREADS, "dispatch")
    routes = RouteFileReader(home.routes, clock)
    places = RoutedContainers(routes, clock, settings.async_concurrency, random.random)

    patience = RetryPolicy(clock, settings.async_store_patience_seconds)

    def make_work(let_go: Callable[[LeasedRequest], None]) -> RequestAttempt:
        asker = Asker(
            objects=objects,
            inputs=Inputs(database, objects, threads, clock, settings.max_async_input_bytes),
            containers=Containers(),
            threads=threads,
            patience=patience,
            clock=clock,
            most_response_bytes=settings.max_async_response_bytes,
            let_go=let_go,
        )
        in_database = RetryPolicy(clock, DATABASE_PATIENCE_SECONDS)
        return RequestAttempt(
            database=database,
            writes=writes,
            asker=asker,
            outputs=OutputWriter(objects, threads, MOST_BODY_BYTES),
            endings=Endings(writes, objects, in_database, record, settings.region, clock),
            threads=threads,
            patience=patience,
            data_log=DataLog(home.logs / "endpoints", settings.container_log_bytes, clock),
            clock=clock,
            most_redeliveries=settings.max_async_redeliveries,
        )

    return AsyncDispatcher(writes, places, make_work, clock, holder, settings.max_async_in_flight)
