"""The own paths of a cluster: its nodes, draining one, and leaving it."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Connection
from starlette.routing import Route

from sagehen.agent.messages import InstanceList
from sagehen.base.concurrency import in_thread
from sagehen.base.errors import Conflict, NotFound, SagehenError, Unavailable
from sagehen.frame.container_specs import InstanceOwner
from sagehen.frame.job_specs import JobList
from sagehen.frame.nodes import NodeDescription, Resources
from sagehen.frame.own_paths.routes import OwnPathRequest, own_route
from sagehen.placement import store
from sagehen.placement.fleet import Fleet
from sagehen.placement.metrics import node_state
from sagehen.placement.node_loop import NODES_CHANGED
from sagehen.placement.records import NodeRecord
from sagehen.placement.watched_node import NodeAgent
from sagehen.state.database import Database, notify

__all__ = ["NodePaths"]

ANSWER_SECONDS = 2.0


class NodePaths:
    """`GET /_sagehen/cluster`, and `PUT /_sagehen/cluster/nodes/{id}/drain`, `…/serve` or
    `…/leave`."""

    def __init__(
        self,
        database: Database,
        fleet: Fleet,
        connect: Callable[[NodeRecord, int], NodeAgent],
        own_node_id: str = "",
    ) -> None:
        """`connect` makes the client of a node's agent, for a control that does not lead."""
        self.is_leaving = False
        """this control's own server stops"""
        self.may_grow = False
        """nodes may be added for what has no room, as by Ray's autoscaler"""
        self._own_left = False
        """as its row said when it was read last"""
        self._own_node_id = own_node_id
        self._database = database
        self._fleet = fleet
        self._connect = connect
        self.routes: list[Route] = [
            own_route("/_sagehen/cluster", {"GET": self.status}),
            own_route("/_sagehen/cluster/nodes/{id}/drain", {"PUT": self._drain}),
            own_route("/_sagehen/cluster/nodes/{id}/serve", {"PUT": self._serve}),
            own_route("/_sagehen/cluster/nodes/{id}/leave", {"PUT": self._leave}),
        ]

    async def status(self, request: OwnPathRequest) -> dict[str, Any]:
        """Describes all known nodes; those that do not answer have no processes. Only the control
        that leads knows what is reserved and what waits for room, and whose version it does not
        understand."""
        records = await in_thread(self._read)
        views = await self._look_at(records)
        watched = {node.node_id: node for node in self._fleet.nodes}
        nodes = [_describe(*each) for each in zip(records, views, strict=True)]
        for node in nodes:
            if node["id"] in watched:
                node["leader"] = node["id"] == self._own_node_id
                node["reserved"] = _sizes(self._fleet.reserved(node["id"]))
                node["without_room"] = self._fleet.without_room(node["id"])
                if watched[node["id"]].heartbeat.refusal:
                    node["state"] = "other version"
        return {
            "nodes": nodes,
            "waiting": self._fleet.waiting,
            "problems": list(self._fleet.other_problems()),
            "of_leader": bool(watched),
            "may_grow": self.may_grow,
        }

    async def _look_at(self, records: list[NodeRecord]) -> "list[_View | None]":
        epoch = max((record.epoch for record in records), default=0)
        return await asyncio.gather(*(self._look(record, epoch) for record in records))

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

    def follow_own(self, record: NodeRecord) -> None:
        """Takes this machine's row, whenever it has been read: another control may have been asked
        to let this node take work again."""
        if self._own_left and not record.is_leaving:
            self.is_leaving = False
        self._own_left = record.is_leaving

    async def _drain(self, request: OwnPathRequest) -> dict[str, Any]:
        node_id = request.path["id"]
        if not (await self._others_take_work(node_id)).do_answer:
            raise Conflict(
                f"No other node takes work, so the instances on {node_id} could not move. Add a "
                "node, or let a drained one take work: `sagehen cluster drain NODE --undo`. To "
                "stop the whole cluster, stop its servers."
            )
        await in_thread(lambda: self._change(node_id, store.set_draining))
        return {"id": node_id, "draining": True}

    async def _serve(self, request: OwnPathRequest) -> dict[str, Any]:
        """Lets a node take work that was drained, or that left and did not stop. A server that
        stops repeats that it leaves."""
        node_id = request.path["id"]
        await in_thread(lambda: self._change(node_id, store.set_serving))
        if node_id == self._own_node_id:
            self.is_leaving = False
        return {"id": node_id, "draining": False}

    async def _leave(self, request: OwnPathRequest) -> dict[str, Any]:
        """Has the instances of endpoints move away, because the node's server stops. Its server
        repeats the request until `instances` is 0, or `can_move` is false. Raises Unavailable while
        nodes that are needed do not answer."""
        node_id = request.path["id"]
        others = await self._others_take_work(node_id)
        self.is_leaving = self.is_leaving or node_id == self._own_node_id
        if others.own is None or (others.are_known and not others.do_answer):
            raise Unavailable("Nodes of the cluster do not answer now.")
        if others.do_answer:
            await in_thread(lambda: self._change(node_id, store.set_leaving))
        instances = others.own.instances.instances
        of_endpoints = sum(each.owner is InstanceOwner.ENDPOINT for each in instances)
        return {"id": node_id, "instances": of_endpoints, "can_move": others.do_answer}

    async def _others_take_work(self, node_id: str) -> "_Others":
        """Raises NotFound."""
        records = await in_thread(self._read)
        if node_id not in {record.node_id for record in records}:
            raise _unknown(node_id)
        asked = [each for each in records if each.node_id == node_id or each.takes_work]
        views = await self._look_at(asked)
        answers = {record.node_id: view for record, view in zip(asked, views, strict=True) if view}
        own = answers.pop(node_id, None)
        are_known = any(each.node_id != node_id for each in asked)
        return _Others(are_known, bool(answers), own)

    def _change(self, node_id: str, change: Callable[[Connection, str], bool]) -> None:
        """Raises NotFound."""
        with self._database.write() as connection:
            if not change(connection, node_id):
                raise _unknown(node_id)
            notify(connection, NODES_CHANGED)


def _unknown(node_id: str) -> NotFound:
    return NotFound(f"There is no node {node_id}. `sagehen cluster status` lists the nodes.")


class _View(NamedTuple):
    """A node's description of itself."""

    description: NodeDescription
    instances: InstanceList
    jobs: JobList


class _Others(NamedTuple):
    """The other nodes that take new work, and the own answer of the node that is asked about."""

    are_known: bool
    do_answer: bool
    own: _View | None


def _describe(record: NodeRecord, view: _View | None) -> dict[str, Any]:
    reports = view.instances.instances if view is not None else ()
    jobs = view.jobs.jobs if view is not None else ()
    return {
        "id": record.node_id,
        "address": record.gateway_address,
        "head": record.has_control,
        "state": node_state(record, answers=view is not None),
        "version": record.version,
        "capacity": _sizes(record.resources),
        "instances": sorted(report.instance_id for report in reports),
        "transform_instances": sum(
            report.owner is InstanceOwner.TRANSFORM_JOB for report in reports
        ),
        "jobs": sorted(job.attempt_id for job in jobs if job.outcome is None),
        "pids": list(view.description.pids) if view is not None else [],
    }


def _sizes(resources: Resources) -> dict[str, float]:
    return {
        "cpus": resources.cpus,
        "memory_gib": resources.memory_bytes / 2**30,
        "gpus": resources.gpus,
    }
