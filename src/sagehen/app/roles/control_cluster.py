"""Assembles control's parts for several machines."""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psutil

from sagehen import __version__
from sagehen.agent.client import AgentClient, NodeClient
from sagehen.app.api.application import OPERATIONS
from sagehen.app.cluster import read_addresses
from sagehen.app.control_relay import serving_control_door
from sagehen.app.leader_relay import LeaderRelay
from sagehen.app.roles.common import Start
from sagehen.app.roles.control_ray import RaySource
from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import client_context, server_name
from sagehen.base.credentials import load_token
from sagehen.base.errors import NotLeading, SagehenError
from sagehen.frame.container_relay import ContainerAccess, RelayNodes
from sagehen.frame.context import AsyncOperation, Operation
from sagehen.frame.nodes import Resources
from sagehen.frame.relay_connector import RelayConnector
from sagehen.frame.routes import RouteFileReader
from sagehen.http1.pool import Tls
from sagehen.placement.fleet import Fleet
from sagehen.placement.log_nodes import ClusterLogs
from sagehen.placement.metrics import measure_nodes
from sagehen.placement.node_loop import NodeLoop
from sagehen.placement.own_paths import NodePaths
from sagehen.placement.ray_app import RayClient
from sagehen.placement.records import NodeRecord
from sagehen.placement.requests_in_flight import RequestsInFlight
from sagehen.services.monitoring.logs.cluster import cluster_operations
from sagehen.services.sagemaker.hosting.reconciler.endpoints import ClusterNodes
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership

__all__ = ["ClusterParts"]

FIRST_ROUTES_SECONDS = 20.0
LOOK_SECONDS = 0.05
RELAY_NODES_SECONDS = 1.0
"""between looks at which nodes answer"""


class ClusterParts:
    """The fleet, in place of this machine's agent. Must be created in control's event loop."""

    def __init__(self, start: Start, database: Database, leadership: Leadership) -> None:
        self._settings, self._home = start.settings, start.home
        self._listener = start.sockets[0]
        self._addresses = read_addresses(start.home)
        self._context = client_context(start.home.cluster)
        self._leadership = leadership
        self.relay = LeaderRelay(
            start.home,
            self._addresses.node_id,
            lambda: leadership.is_leader,
            load_token(start.home.token),
            SYSTEM,
            lambda: leadership.outage,
        )
        self.fleet = Fleet(
            self._connect,
            self._addresses.node_id,
            start.home.routes,
            start.settings.cluster_capacity_wait_seconds,
            SYSTEM,
            self._addresses.control,
        )
        self._connector = RelayConnector(self._relay_nodes)
        self.access = ContainerAccess(self._addresses.node_id, self._connector, self._relay_nodes)
        self.on_relay_nodes: Callable[[], None] = lambda: None
        """called when other nodes are reached"""
        routes = RouteFileReader(start.home.routes, SYSTEM)
        self.requests = RequestsInFlight(lambda: self.fleet.nodes, routes)
        self._ray = self._make_ray(start)
        if self._ray is not None:
            self.fleet.other_problems = self._ray.problems
        self._loop = NodeLoop(
            database,
            self.fleet,
            lambda: leadership.epoch,
            self._describe_own,
            start.settings.cluster_cut_off_seconds,
            SYSTEM,
            self._ray,
        )
        self.nodes = ClusterNodes(
            routes=lambda: self.fleet.node_routes, leaving=lambda: self.fleet.leaving
        )
        node_id = self._addresses.node_id
        self.paths = NodePaths(database, self.fleet, self._client_in_epoch, node_id)
        self.paths.may_grow = self._ray is not None
        self._loop.on_own = self.paths.follow_own
        self.logs = ClusterLogs(database, lambda: self.fleet.nodes, self._client_in_epoch)
        self.paths.routes += self.logs.routes

    @property
    def operations(self) -> Mapping[str, Mapping[str, Operation | AsyncOperation]]:
        return {**OPERATIONS, "logs": dict(cluster_operations(self.logs))}

    def _make_ray(self, start: Start) -> RaySource | None:
        if start.settings.cluster == "state":
            return None
        return RaySource(start, RayClient(start.home.ray_socket), self.fleet.reservations, SYSTEM)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves nodes without a control until the block ends. Waits before for the first route
        table, which another control sends if it leads: a server that reports ready should know its
        endpoints."""
        deadline = SYSTEM.monotonic() + FIRST_ROUTES_SECONDS
        while not self._home.routes.exists() and SYSTEM.monotonic() < deadline:
            await SYSTEM.sleep(LOOK_SECONDS)
        async with serving_control_door(self._listener, self._home):
            yield

    def measured(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        return measure_nodes(self.fleet, self._addresses.node_id, self._leadership.epoch)

    def hint(self) -> None:
        """Has the nodes looked at now."""
        self._loop.hint()

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self._loop.run(), self._follow_relay_nodes()]

    def _relay_nodes(self) -> RelayNodes | None:
        """Returns how containers of other nodes are reached; None while another control leads."""
        epoch = self._leadership.epoch
        if epoch is None:
            return None
        certificates = str(self._home.cluster)
        return RelayNodes(epoch=epoch, addresses=self.fleet.reached, certificates=certificates)

    async def _follow_relay_nodes(self) -> None:
        known: RelayNodes | None = None
        while True:
            nodes = self._relay_nodes()
            if nodes != known:
                known = nodes
                self._connector.cut_lost()
                self.on_relay_nodes()
            await SYSTEM.sleep(RELAY_NODES_SECONDS)

    def _connect(self, record: NodeRecord) -> NodeClient:
        return self._client(record, self._leading_epoch)

    def _client(self, record: NodeRecord, epoch: Callable[[], int]) -> NodeClient:
        tls = Tls(self._context, server_name(record.node_id))
        return NodeClient(record.agent_address, tls, epoch, SYSTEM)

    def _client_in_epoch(self, record: NodeRecord, epoch: int) -> NodeClient:
        return self._client(record, lambda: epoch)

    def _leading_epoch(self) -> int:
        epoch = self._leadership.epoch
        if epoch is None:
            raise NotLeading
        return epoch

    async def _describe_own(self) -> NodeRecord:
        addresses = self._addresses
        # The leader looks at all nodes anyway, and must not wait twice for a Ray that hangs.
        if self._ray is not None and (self._ray.own is None or not self._leadership.is_leader):
            await self._ray.look()
        of_ray = self._ray.own if self._ray is not None else None
        return NodeRecord(
            node_id=addresses.node_id,
            agent_address=addresses.agent,
            peer_address=addresses.peer,
            gateway_address=addresses.gateway,
            resources=of_ray.resources if of_ray else await self._own_resources(),
            has_control=True,
            ray_id=of_ray.ray_id if of_ray else "",
            version=__version__,
        )

    async def _own_resources(self) -> Resources:
        memory = self._settings.cluster_memory_gib
        return Resources(
            cpus=self._settings.cluster_cpus or len(os.sched_getaffinity(0)),
            memory_bytes=int(memory * 2**30) if memory else psutil.virtual_memory().total,
            gpus=await self._count_gpus(),
        )

    async def _count_gpus(self) -> int:
        try:
            return len((await AgentClient(self._home.agent_socket).gpus()).gpus)
        except SagehenError:
            return 0  # asked again later
