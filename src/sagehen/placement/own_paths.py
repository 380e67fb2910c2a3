"""The own paths of a cluster: its nodes, and draining one."""

from typing import Any

from starlette.routing import Route

from sagehen.base.clock import Clock
from sagehen.base.concurrency import in_thread
from sagehen.base.errors import NotFound
from sagehen.frame.container_specs import InstanceOwner
from sagehen.frame.nodes import NodeDescription
from sagehen.frame.own_paths.routes import OwnPathRequest, own_route
from sagehen.placement import store
from sagehen.placement.fleet import Fleet
from sagehen.placement.node_loop import NODES_CHANGED
from sagehen.placement.records import NodeRecord
from sagehen.placement.watched_node import WatchedNode
from sagehen.state.database import Database, notify

__all__ = ["NodePaths"]


class NodePaths:
    """`GET /_sagehen/cluster`, and `PUT /_sagehen/cluster/nodes/{id}/drain` or `…/serve`."""

    def __init__(self, database: Database, fleet: Fleet, clock: Clock) -> None:
        self._database = database
        self._fleet = fleet
        self._clock = clock
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
        descriptions = await self._fleet.descriptions()
        watched = {node.node_id: node for node in self._fleet.nodes}
        return {
            "nodes": [
                _describe(record, watched.get(record.node_id), descriptions.get(record.node_id))
                for record in records
            ]
        }

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


def _describe(
    record: NodeRecord, node: WatchedNode | None, description: NodeDescription | None
) -> dict[str, Any]:
    reports = node.instances.values() if node is not None and node.is_alive else ()
    jobs = node.jobs.values() if node is not None and node.is_alive else ()
    return {
        "id": record.node_id,
        "address": record.gateway_address,
        "head": record.has_control,
        "state": _state(record, node),
        "instances": sorted(report.instance_id for report in reports),
        "transform_instances": sum(
            report.owner is InstanceOwner.TRANSFORM_JOB for report in reports
        ),
        "jobs": sorted(job.attempt_id for job in jobs if job.outcome is None),
        "pids": list(description.pids) if description is not None else [],
    }


def _state(record: NodeRecord, node: WatchedNode | None) -> str:
    if node is None or not node.is_alive:
        return "lost"
    return "draining" if record.is_draining else "ready"
