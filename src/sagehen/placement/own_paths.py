"""The own paths of a cluster: its nodes, and draining one."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.routing import Route

from sagehen.agent.messages import InstanceList
from sagehen.base.concurrency import in_thread
from sagehen.base.errors import NotFound, SagehenError
from sagehen.frame.container_specs import InstanceOwner
from sagehen.frame.job_specs import JobList
from sagehen.frame.nodes import NodeDescription
from sagehen.frame.own_paths.routes import OwnPathRequest, own_route
from sagehen.placement import store
from sagehen.placement.fleet import Fleet
from sagehen.placement.node_loop import NODES_CHANGED
from sagehen.placement.records import NodeRecord
from sagehen.placement.watched_node import NodeAgent
from sagehen.state.database import Database, notify

__all__ = ["NodePaths"]

ANSWER_SECONDS = 2.0


class NodePaths:
    """`GET /_sagehen/cluster`, and `PUT /_sagehen/cluster/nodes/{id}/drain` or `…/serve`."""

    def __init__(
        self,
        database: Database,
        fleet: Fleet,
        connect: Callable[[NodeRecord, int], NodeAgent],
    ) -> None:
        """`connect` makes the client of a node's agent, for a control that does not lead."""
        self._database = database
        self._fleet = fleet
        self._connect = connect
        self.routes: list[Route] = [
            own_route("/_sagehen/cluster", {"GET": self.status}),
            own_route(
                "/_sagehen/cluster/nodes/{id}/drain",
                {"PUT": lambda request: self._drain(request, True)},
            ),
            own_route(
                "/_sagehen/cluster/nodes/{id}/serve",
                {"PUT": lambda request: self._drain(request, False)},
            ),
        ]

    async def status(self, request: OwnPathRequest) -> dict[str, Any]:
        """Describes all known nodes; those that do not answer have no processes."""
        records = await in_thread(self._read)
        epoch = max((record.epoch for record in records), default=0)
        views = await asyncio.gather(*(self._look(record, epoch) for record in records))
        return {"nodes": [_describe(*each) for each in zip(records, views, strict=True)]}

    async def _look(self, record: NodeRecord, epoch: int) -> "_View | None":
        """Asks a node; None where it does not answer. The leader knows which nodes are lost."""
        watched = {node.node_id: node for node in self._fleet.nodes}
        agent = self._connect(record, epoch)
        try:
            if watched and not watched[record.node_id].is_alive:
                return None
            async with asyncio.timeout(ANSWER_SECONDS):
                return _View(await agent.describe(), await agent.instances(), await agent.jobs())
        except (SagehenError, TimeoutError, KeyError):
            return None
        finally:
            agent.close()

    def _read(self) -> list[NodeRecord]:
        with self._database.read() as connection:
            return store.list_nodes(connection)

    def _drain(self, request: OwnPathRequest, is_draining: bool) -> dict[str, Any]:
        node_id = request.path["id"]
        with self._database.write() as connection:
            if not store.set_draining(connection, node_id, is_draining):
                raise NotFound(
                    f"There is no node {node_id}. `sagehen cluster status` lists the nodes."
                )
            notify(connection, NODES_CHANGED)
        return {"id": node_id, "draining": is_draining}


class _View(NamedTuple):
    """A node's description of itself."""

    description: NodeDescription
    instances: InstanceList
    jobs: JobList


def _describe(record: NodeRecord, view: _View | None) -> dict[str, Any]:
    reports = view.instances.instances if view is not None else ()
    jobs = view.jobs.jobs if view is not None else ()
    return {
        "id": record.node_id,
        "address": record.gateway_address,
        "head": record.has_control,
        "state": _state(record, view),
        "instances": sorted(report.instance_id for report in reports),
        "transform_instances": sum(
            report.owner is InstanceOwner.TRANSFORM_JOB for report in reports
        ),
        "jobs": sorted(job.attempt_id for job in jobs if job.outcome is None),
        "pids": list(view.description.pids) if view is not None else [],
    }


def _state(record: NodeRecord, view: _View | None) -> str:
    if view is None:
        return "lost"
    return "draining" if record.is_draining else "ready"
