"""The agent of a cluster's node: behind TLS for the controls and the agents of other nodes, and
with a lease of the controls."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.applications import Starlette
from starlette.routing import Route

from sagehen.agent.agent import Agent
from sagehen.agent.cluster_app import create_cluster_app
from sagehen.agent.container_relay import ContainerRelay
from sagehen.agent.control_lease import ControlLease
from sagehen.agent.neighbours.directory import ArtifactDirectory
from sagehen.agent.neighbours.fetcher import NeighbourFetcher
from sagehen.agent.neighbours.holdings import Announcer, HeldModels
from sagehen.agent.neighbours.nodes import KnownNodes, NodeCalls
from sagehen.agent.neighbours.result_stores import StoreCopies, stores_route
from sagehen.agent.neighbours.routes import holders_route, neighbour_routes
from sagehen.agent.node_description import describe_node
from sagehen.app.roles.common import Start, serving_tls
from sagehen.base.clock import SYSTEM, Clock
from sagehen.base.cluster_certificates import client_context, server_context
from sagehen.base.settings import Settings
from sagehen.frame import container_relay
from sagehen.frame.arns import ArnMaker
from sagehen.frame.nodes import NodeDescription
from sagehen.frame.routes import RouteFileReader
from sagehen.gateway.routing.inflight import InflightSums
from sagehen.gateway.routing.node_requests import count_requests
from sagehen.services.monitoring.logs.node_requests import log_route

__all__ = ["ClusterMember"]


@dataclass(frozen=True)
class _Logs:
    """The context of requests for logs."""

    settings: Settings
    clock: Clock
    arns: ArnMaker


class ClusterMember:
    """The parts of an agent that only a node of a cluster has."""

    def __init__(self, start: Start) -> None:
        self._home = start.home
        self._logs = _Logs(start.settings, SYSTEM, ArnMaker.of(start.settings))
        self._listener = start.sockets[0]
        self._node_id = start.home.node_id.read_text().strip()
        cut_off = start.settings.cluster_cut_off_seconds
        self.lease = ControlLease(uuid.uuid4().hex, start.home.cluster / "epoch", cut_off, SYSTEM)
        self._nodes = KnownNodes(self._node_id, start.home.routes)
        self._calls = NodeCalls(client_context(start.home.cluster), SYSTEM)
        self._directory = ArtifactDirectory(SYSTEM)
        self._models = HeldModels()
        self.fetcher = NeighbourFetcher(self._nodes, self._calls, self._directory, SYSTEM)

    def attach(self, agent: Agent) -> None:
        """Called before the agent starts."""
        agent.artifacts.on_change = self._models.note

    @property
    def own_routes(self) -> list[Route]:
        """For the gateways of this machine."""
        return [holders_route(self.fetcher.holders)]

    @asynccontextmanager
    async def serving(self, agent: Agent, app: Starlette) -> AsyncIterator[None]:
        """Serves the controls and the agents of the cluster, and relays controls' connections to
        containers, until the block ends."""

        async def describe() -> NodeDescription:
            gpus = agent.list_gpus()
            return await asyncio.to_thread(describe_node, self._node_id, self.lease.run_id, gpus)

        routes = RouteFileReader(self._home.routes, SYSTEM)
        results = self._home.offline_results
        outstanding = InflightSums(self._home.inflight_table).outstanding
        cluster_app = create_cluster_app(
            app,
            self.lease,
            describe,
            agent.specs,
            self._home.routes,
            self._models,
            partial(count_requests, routes, self._node_id, outstanding),
            [log_route(self._logs)],
            [
                *neighbour_routes(agent.artifacts, self._directory, self.fetcher.waiting),
                stores_route(results),
            ],
        )
        stores = StoreCopies(self._node_id, results, self._home.routes, routes, self._calls, SYSTEM)
        announcer = Announcer(agent.artifacts, self._nodes, self._calls, self._directory, SYSTEM)
        tasks = [
            asyncio.create_task(self.lease.watch(agent.stop_jobs, agent.stop_instances)),
            asyncio.create_task(announcer.run()),
            asyncio.create_task(stores.run()),
        ]
        relay = ContainerRelay(agent.container_address, self.lease.check_epoch, SYSTEM)
        self.lease.on_new_epoch = relay.cut_older
        context = server_context(self._home.cluster)
        others = {container_relay.ALPN: relay.accept}
        try:
            async with serving_tls(self._listener, context, cluster_app, others):
                yield
        finally:
            relay.close()
            for task in tasks:
                task.cancel()
            self.fetcher.close()
