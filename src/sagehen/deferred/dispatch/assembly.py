"""Puts the dispatcher together."""

import random
from collections.abc import Callable

from sagehen.clock import Clock
from sagehen.deferred.dispatch.ask import Asker
from sagehen.deferred.dispatch.data_log import DataLog
from sagehen.deferred.dispatch.dispatcher import Dispatcher
from sagehen.deferred.dispatch.endings import Endings
from sagehen.deferred.dispatch.inputs import Inputs
from sagehen.deferred.dispatch.invoke import Containers
from sagehen.deferred.dispatch.jobs import Job
from sagehen.deferred.dispatch.notices import MOST_BODY_BYTES
from sagehen.deferred.dispatch.outputs import Outputs
from sagehen.deferred.dispatch.places import Places
from sagehen.deferred.dispatch.work import Work
from sagehen.deferred.record import Record
from sagehen.home import Home
from sagehen.objects.store import ObjectStore
from sagehen.patience import Patience
from sagehen.route_file import RouteFileReader
from sagehen.settings import Settings
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from sagehen.threads import Threads

__all__ = ["make_dispatcher"]

THREADS = 32
"""That wait for the object store: as many small writes share a wait for the disk."""
DATABASE_PATIENCE_SECONDS = 60.0


def make_dispatcher(
    settings: Settings,
    home: Home,
    database: Database,
    writes: GroupedWrites,
    objects: ObjectStore,
    record: Record,
    clock: Clock,
    holder: str,
) -> Dispatcher:
    """
    Args:
        holder: names the home and its machine, not the process.
    """
    threads = Threads(THREADS, "dispatch")
    routes = RouteFileReader(home.routes, clock)
    places = Places(routes, clock, settings.async_concurrency, random.random)

    patience = Patience(clock, settings.async_store_patience_seconds)

    def make_work(let_go: Callable[[Job], None]) -> Work:
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
        in_database = Patience(clock, DATABASE_PATIENCE_SECONDS)
        return Work(
            database=database,
            writes=writes,
            asker=asker,
            outputs=Outputs(objects, threads, MOST_BODY_BYTES),
            endings=Endings(writes, objects, in_database, record, settings.region, clock),
            threads=threads,
            patience=patience,
            data_log=DataLog(home.logs / "endpoints", settings.container_log_bytes, clock),
            clock=clock,
            most_redeliveries=settings.max_async_redeliveries,
        )

    return Dispatcher(writes, places, make_work, clock, holder, settings.max_async_in_flight)
