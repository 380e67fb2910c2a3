"""The loop of endpoints with an agent in memory, and short words for what tests do with it."""

import asyncio
import random
from collections.abc import Callable
from contextlib import asynccontextmanager

import msgspec

from sagehen.frame.routes import RouteTable
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.reconciler.loop import (
    EndpointLoop,
)
from sagehen.services.sagemaker.hosting.reconciler.routes import routed_ids
from sagehen.services.sagemaker.hosting.records import EndpointRecord, EndpointStatus
from sagehen.services.sagemaker.offline_results.builds import StoreBuilds
from sagehen.state.leadership import Leadership
from support.fleet import NAME, deployment, endpoint
from support.offline_results import MemoryBuilds

__all__ = ["CREATING", "D1", "D2", "Control"]


D1, D2 = deployment("d1", 2), deployment("d2", 1)

CREATING = endpoint(EndpointStatus.CREATING, target=D1)


class Control:
    """One loop, and short words for what tests do with it."""

    def __init__(self, database, agent, home, clock, holder="one") -> None:
        self.database, self.agent, self.home, self.clock = database, agent, home, clock
        self.store_builds = MemoryBuilds(home.offline_results)
        self.builds = StoreBuilds(home.offline_results, self.store_builds.build, clock)
        self.loop = EndpointLoop(
            database,
            agent,
            self.builds,
            home,
            clock,
            Leadership(database, clock, holder),
            random.Random(holder),
        )
        self.builds.on_change = self.loop.hint
        self.passes = 0
        """That have ended."""
        self._run_pass = self.loop._pass.run
        self.loop._pass.run = self._counted

    def _counted(self, *given):
        try:
            return self._run_pass(*given)
        finally:
            self.passes += 1

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.loop.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def write(self, record: EndpointRecord) -> None:
        """What an operation does: a row, then a hint."""
        with self.database.write() as connection:
            if not endpoints.update(connection, record):
                endpoints.insert(connection, record)
        self.loop.hint()

    def record(self) -> EndpointRecord | None:
        with self.database.read() as connection:
            return endpoints.get(connection, NAME)

    def status(self) -> EndpointStatus | None:
        record = self.record()
        return record.status if record else None

    def rows(self) -> set[str]:
        with self.database.read() as connection:
            return {one.instance_id for one in instances.all(connection)}

    def routed(self) -> set[str]:
        if not self.home.routes.exists():
            return set()
        table = msgspec.json.decode(self.home.routes.read_bytes(), type=RouteTable)
        return routed_ids(table.routes)

    def at_rest(self, count: int) -> bool:
        """In service with so many instances, and no others anywhere; time goes on meanwhile."""
        self.clock.advance(0.01)
        serves = self.status() is EndpointStatus.IN_SERVICE
        rows = self.rows()
        return serves and len(rows) == count and rows == self.routed() == set(self.agent.states)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop work, without any time passing, until it is so."""
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def slept(self, seconds: float) -> None:
        """Until the loop sleeps for so long, and does nothing else."""
        await self.until(lambda: self.clock.sleeps_until(self.clock.time + seconds))

    async def in_time(self, condition: Callable[[], bool]) -> None:
        """The same, while seconds pass: the loop may begin to wait for one only after it is seen
        that it will have to."""

        def holds() -> bool:
            self.clock.advance(1.0)
            return condition()

        await self.until(holds)

    async def in_service(self, *, count: int = 2) -> None:
        await self.until(lambda: self.status() is EndpointStatus.IN_SERVICE)
        await self.until(lambda: len(self.routed()) == count)
