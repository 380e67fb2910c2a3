"""The loop that makes instances match the endpoints' rows.

wake (api's hint · agent's report · time) → hold the lease → pass: rows, then routes → ask the agent
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

from sagehen.base.clock import Clock
from sagehen.base.concurrency import in_thread
from sagehen.base.home import Home
from sagehen.frame.container_specs import (
    InstanceOwner,
)
from sagehen.frame.leased_loop import LONGEST_REST_SECONDS, LeasedLoop
from sagehen.services.sagemaker.agent_instances import AgentInstances, InstanceAgent
from sagehen.services.sagemaker.hosting.reconciler.calls import OnDemand
from sagehen.services.sagemaker.hosting.reconciler.draining import Draining
from sagehen.services.sagemaker.hosting.reconciler.endpoints import ClusterNodes, EndpointPass
from sagehen.services.sagemaker.hosting.reconciler.routes import RouteFile
from sagehen.services.sagemaker.offline_results.stores import StoreRequest, StoreStates
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership

__all__ = [
    "LEASE_NAME",
    "EndpointLoop",
    "ResultStores",
    "new_instance_id",
]

log = logging.getLogger(__name__)

LEASE_NAME = "endpoints"


def new_instance_id(source: random.Random) -> str:
    """Returns an id like EC2's: `i-` and 17 hexadecimal digits."""
    return f"i-{source.getrandbits(68):017x}"


class ResultStores(Protocol):
    """The stores of offline results."""

    @property
    def states(self) -> StoreStates: ...

    def require(self, requests: Sequence[StoreRequest], routed: StoreStates) -> None:
        """Builds what is missing and removes the rest, in the background."""

    async def run(self) -> None:
        """Runs beside the loop."""


class EndpointLoop(LeasedLoop):
    """Changes endpoints' instances and writes the route table."""

    def __init__(
        self,
        database: Database,
        agent: InstanceAgent,
        stores: ResultStores,
        home: Home,
        clock: Clock,
        leadership: Leadership,
        source: random.Random | None = None,
        busy: Callable[[], frozenset[str]] = frozenset,
        on_routes: Callable[[], None] = lambda: None,
        on_demand: OnDemand | None = None,
        draining: Draining | None = None,
        cluster: ClusterNodes | None = None,
    ) -> None:
        """Args:
        busy: ids of instances that finish their work before they are stopped, unless their
            endpoint is deleted.
        on_routes: called after the route table changes, from any thread.
        """
        super().__init__(database, clock, LEASE_NAME, leadership)
        chosen = source or random.SystemRandom()
        self._stores = stores
        self._has_same_keys = database.is_shared
        self._busy = busy
        self._pass = EndpointPass(
            database,
            RouteFile(home.routes),
            self._lease.lease,
            lambda: new_instance_id(chosen),
            on_routes,
            on_demand,
            draining,
            cluster,
        )
        self._term: int | None = None
        """of the lease in the last step"""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._instances = AgentInstances(agent, InstanceOwner.ENDPOINT, clock, self._wake.set)

    def companions(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [self._instances.watch(), self._stores.run()]

    async def step(self) -> float | None:
        if self._term != self._lease.term:
            await in_thread(self._pass.take_over)
            self._term = self._lease.term
        reports, busy, stores = self._instances.reports, self._busy(), self._stores.states
        requests = await in_thread(lambda: self._pass.run(reports, self._clock.now(), busy, stores))
        self._stores.require(requests.stores, stores)
        self._wake_at(requests.idle_at)
        await self._instances.request(requests.start, requests.stop)
        is_told = await self._instances.keep_warm(requests.warm_images)
        if requests.wake_at is not None:
            return max(0.0, requests.wake_at - self._clock.now())
        is_settled = requests.settled and reports is not None and is_told
        return None if is_settled else LONGEST_REST_SECONDS

    def _wake_at(self, idle_at: float | None) -> None:
        """Sets a timer, so that the loop need not look each second until an instance is idle."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if idle_at is not None:
            delay = max(0.0, idle_at - self._clock.now())
            self._idle_timer = asyncio.get_running_loop().call_later(delay, self.hint)

    async def stand_by(self) -> None:
        if not self.owns_agent:
            return  # The leader sends its routes to all nodes.
        leader = await in_thread(self._lease.other_holder)
        if leader is not None:
            await in_thread(lambda: self._pass.stand_by(leader, self._address_of(leader)))

    def _address_of(self, leader: str) -> str | None:
        """Returns the address of a leader on this machine, whose keys are the same."""
        host, _, path = leader.partition(":")
        if not self._has_same_keys or host != socket.gethostname():
            return None
        try:
            url = Home(Path(path)).address.read_text()
        except OSError:
            return None  # It starts or stops, or only has the same host name.
        return f"tcp:{url.removeprefix('http://')}"
