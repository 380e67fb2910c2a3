"""The agent of a cluster's node: behind TLS for the controls, and with a lease of theirs."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.applications import Starlette

from sagehen.agent.agent import Agent
from sagehen.agent.cluster_app import create_cluster_app
from sagehen.agent.control_lease import ControlLease
from sagehen.agent.node_description import describe_node
from sagehen.app.roles.common import Start, serving_tls
from sagehen.base.clock import SYSTEM, Clock
from sagehen.base.cluster_certificates import server_context
from sagehen.base.settings import Settings
from sagehen.frame.arns import ArnMaker
from sagehen.frame.nodes import NodeDescription
from sagehen.frame.routes import RouteFileReader
from sagehen.gateway.routing.inflight import InflightSums
from sagehen.gateway.routing.node_requests import count_requests
from sagehen.services.monitoring.logs.node_requests import log_route

__all__ = ["make_lease", "serving_cluster"]


def make_lease(start: Start) -> ControlLease:
    cut_off = start.settings.cluster_cut_off_seconds
    return ControlLease(uuid.uuid4().hex, start.home.cluster / "epoch", cut_off, SYSTEM)


@dataclass(frozen=True)
class _Logs:
    """The context of requests for logs."""

    settings: Settings
    clock: Clock
    arns: ArnMaker


@asynccontextmanager
async def serving_cluster(
    start: Start, agent: Agent, app: Starlette, lease: ControlLease
) -> AsyncIterator[None]:
    """Serves the controls of the cluster until the block ends."""
    node_id = start.home.node_id.read_text().strip()

    async def describe() -> NodeDescription:
        gpus = agent.list_gpus()
        return await asyncio.to_thread(describe_node, node_id, lease.run_id, gpus)

    routes = RouteFileReader(start.home.routes, SYSTEM)
    outstanding = InflightSums(start.home.inflight_table).outstanding
    count = partial(count_requests, routes, node_id, outstanding)
    logs = log_route(_Logs(start.settings, SYSTEM, ArnMaker.of(start.settings)))
    cluster_app = create_cluster_app(
        app, lease, describe, agent.specs, start.home.routes, count, [logs]
    )
    watch = asyncio.create_task(lease.watch(agent.stop_jobs, agent.stop_instances))
    context = server_context(start.home.cluster)
    try:
        async with serving_tls(start.sockets[0], context, cluster_app):
            yield
    finally:
        watch.cancel()
