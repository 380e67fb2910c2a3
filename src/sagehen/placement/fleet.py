"""All nodes of a cluster as one agent: the methods by which reconcilers know the agent.

A put goes to the node that is chosen for it, or waits until one has room. What a lost node has
reported is reported no more, so that its reconciler starts it anew.

stood down ──► begins: all nodes are asked ──► ready: each has reported, or is lost ──► stood down
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence, Set
from pathlib import Path
from typing import Any

from sagehen.agent.messages import InstanceList
from sagehen.base.clock import Clock
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.frame.container_specs import (
    InstanceOwner,
    InstanceSpec,
    InstanceState,
)
from sagehen.frame.job_specs import JobList, JobSpec, StopRequest
from sagehen.frame.nodes import Resources, RunningSpecs
from sagehen.frame.routes import NodeRoute, TableText
from sagehen.placement.assignments import Assignments
from sagehen.placement.background_requests import BackgroundRequests
from sagehen.placement.choice import Workload
from sagehen.placement.merged_reports import MergedReports, copies
from sagehen.placement.questions import NodeQuestions
from sagehen.placement.records import NodeRecord
from sagehen.placement.watched_node import NodeAgent, WatchedNode
from sagehen.placement.workloads import workload_of_instance, workload_of_job

__all__ = ["Fleet"]

log = logging.getLogger(__name__)


class Fleet(NodeQuestions):
    """Must be used in the event loop, but for `hint_routes`.

    Args:
        connect: makes the client of a node's agent.
        own_node_id: whose route table control writes itself.
        routes_file: of this machine; its content is sent to all other nodes.
        capacity_wait_seconds: how long an instance waits for room, before it has failed.
        own_control_address: where nodes without a control reach this one.
    """

    def __init__(
        self,
        connect: Callable[[NodeRecord], NodeAgent],
        own_node_id: str,
        routes_file: Path,
        capacity_wait_seconds: float,
        clock: Clock,
        own_control_address: str = "",
    ) -> None:
        super().__init__(lambda: self.nodes if self._has_begun else None)
        self._connect = connect
        self._own_node_id = own_node_id
        self._own_control_address = own_control_address
        self._routes_file = routes_file
        self._wait_seconds = capacity_wait_seconds
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nodes: dict[str, WatchedNode] = {}
        self._assignments = Assignments()
        self._has_begun = False
        self._has_own_routes = False  # since this control leads; nodes may have newer ones before
        self._routes: TableText | None = None
        self._is_ready = self._is_ready_for_jobs = False
        self._reports = MergedReports(clock)
        self._requests = BackgroundRequests()
        self.on_nodes: Callable[[], None] = lambda: None
        """called when `node_routes` or `leaving` may be different"""

    # What the cluster's loop calls

    @property
    def nodes(self) -> Sequence[WatchedNode]:
        return tuple(self._nodes.values())

    async def set_nodes(self, records: Sequence[NodeRecord]) -> None:
        """Begins, or goes on, with these nodes: all that there are."""
        self._loop = asyncio.get_running_loop()
        by_id = {record.node_id: record for record in records}
        before = {node.node_id: _use(node.record) for node in self.nodes}
        for node in self.nodes:
            record = by_id.get(node.node_id)
            if record is not None and record.agent_address == node.record.agent_address:
                node.record = record
            else:
                del self._nodes[node.node_id]
                await node.close()
        for node_id, record in by_id.items():
            if node_id not in self._nodes:
                self._nodes[node_id] = self._watch(record)
        self._has_begun = True
        if before != {record.node_id: _use(record) for record in records}:
            if self._has_own_routes:
                self._send_routes()
            self.on_nodes()
        self._settle()

    async def stand_down(self) -> None:
        """Forgets everything: another control leads."""
        if not self._has_begun:
            return
        self._has_begun = self._is_ready = self._is_ready_for_jobs = self._has_own_routes = False
        nodes, self._nodes = self.nodes, {}
        for node in nodes:
            await node.close()
        self._assignments = Assignments()
        self._announce()

    def hint_routes(self) -> None:
        """Has the route table, which this control has just written or found to be right, sent to
        all nodes. Safe from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send_routes)

    @property
    def node_routes(self) -> dict[str, NodeRoute]:
        """Returns how gateways reach each node."""
        own = {self._own_node_id: self._own_control_address}
        return {
            node.node_id: NodeRoute(
                peer_address=node.record.peer_address,
                control_address=own.get(node.node_id, ""),
                # Agents ask those that have one for model data: not a machine that is gone.
                agent_address=node.record.agent_address if node.is_alive else "",
            )
            for node in self.nodes
        }

    def reservations(self) -> list[tuple[str, Resources, str]]:
        """Returns what runs or waits, what it needs, and its node; empty while it waits."""
        assignments = self._assignments
        return [
            (key, workload.resources, assignments.node_of(key) or "")
            for key, workload in assignments.workloads.items()
        ]

    @property
    def waiting(self) -> list[dict[str, str]]:
        return self._assignments.describe_waiting()

    def reserved(self, node_id: str) -> Resources:
        """Returns the needs of all instances and jobs that are assigned to a node."""
        return self._assignments.load_of(node_id)

    def without_room(self, node_id: str) -> int:
        """Returns how many instances of endpoints on a node have a successor that waits for room
        on another one."""
        node = self._nodes.get(node_id)
        here = [] if node is None else [self._assignments.group_of(key) for key in node.instances]
        return sum((Counter(filter(None, here)) & self._assignments.waiting_groups()).values())

    @property
    def leaving(self) -> frozenset[str]:
        """Returns the instances of endpoints on nodes that are drained or leave."""
        return frozenset(
            report.instance_id
            for node in self.nodes
            if not node.record.takes_work and node.is_alive
            for report in node.instances.values()
            if report.owner is InstanceOwner.ENDPOINT
        )

    # What reconcilers call: see AgentClient

    async def instances(self, since: int | None = None, wait_seconds: float = 0) -> InstanceList:
        self._require_ready()
        if since is not None:
            await self._reports.instance_changes.wait(since, wait_seconds)
            self._require_ready()
        version = self._reports.instance_changes.version
        return InstanceList(version=version, instances=tuple(self._reports.instances.values()))

    async def put_instance(self, spec: InstanceSpec) -> None:
        self._require_ready()
        node = self._place(spec.instance_id, spec, workload_of_instance(spec))
        if node is not None:
            await self._put_instance(node, spec)

    async def delete_instance(self, instance_id: str) -> None:
        self._drop_waiting(instance_id)
        assigned = self._assignments.node_of(instance_id)
        self._assignments.note_ending(instance_id)
        for node in self.nodes:
            if node.is_alive and (instance_id in node.instances or node.node_id == assigned):
                await node.call(node.agent.delete_instance(instance_id))

    async def keep_warm(self, images: Sequence[str]) -> None:
        """Tells all nodes that answer. Each pass of the reconciler repeats it."""
        self._require_ready()
        for node in self.nodes:
            if node.is_alive:
                await node.call(node.agent.keep_warm(images))

    async def jobs(self, since: int | None = None, wait_seconds: float = 0) -> JobList:
        self._require_ready_for_jobs()
        if since is not None:
            await self._reports.job_changes.wait(since, wait_seconds)
            self._require_ready_for_jobs()
        return JobList(
            version=self._reports.job_changes.version, jobs=tuple(self._reports.jobs.values())
        )

    async def put_job(self, spec: JobSpec) -> None:
        self._require_ready_for_jobs()
        node = self._place(spec.attempt_id, spec, workload_of_job(spec))
        if node is not None:
            await self._put_job(node, spec)

    async def stop_job(self, attempt_id: str, request: StopRequest | None = None) -> None:
        if not self._drop_waiting(attempt_id):
            node = self._node_of_job(attempt_id)
            await node.call(node.agent.stop_job(attempt_id, request))

    async def delete_job(self, attempt_id: str) -> None:
        if self._drop_waiting(attempt_id):
            return
        try:
            node = self._node_of_job(attempt_id)
        except NotFound:
            return
        self._assignments.note_ending(attempt_id)
        await node.call(node.agent.delete_job(attempt_id))

    # Inside

    def _watch(self, record: NodeRecord) -> WatchedNode:
        return WatchedNode(
            record,
            self._connect(record),
            self._clock,
            lambda key: key in self._assignments.workloads,
            self._learn,
            self._note_change,
            self._settle_some,
        )

    def _note_change(self) -> None:
        """A node has come or gone, or has reported for the first time."""
        self._settle()
        self.on_nodes()

    def _learn(self, specs: RunningSpecs) -> None:
        for spec in specs.instances:
            self._assignments.learn(spec.instance_id, workload_of_instance(spec))
        for job in specs.jobs:
            self._assignments.learn(job.attempt_id, workload_of_job(job))

    def _require_ready(self) -> None:
        if not self._is_ready:
            raise Unavailable("Not every node of the cluster has reported yet.")

    def _require_ready_for_jobs(self) -> None:
        self._require_ready()
        if not self._is_ready_for_jobs:
            raise Unavailable("Jobs may still run on a node that does not answer.")

    def _send_routes(self) -> None:
        self._has_own_routes = self._has_begun
        try:
            content = self._routes_file.read_bytes()
        except FileNotFoundError:
            return
        if self._routes is None or self._routes.content != content:
            self._routes = TableText(content)
        for node in self.nodes:
            if node.node_id != self._own_node_id:
                node.set_routes(self._routes)

    def _place(
        self, key: str, spec: InstanceSpec | JobSpec, workload: Workload
    ) -> WatchedNode | None:
        """Returns the node to ask; None if the work has to wait. Raises Unavailable."""
        assignments, now = self._assignments, self._clock.monotonic()
        assignments.learn(key, workload)
        node = self._nodes.get(assignments.node_of(key) or "")
        if node is not None and not node.record.takes_work and not _has_reported(node, key):
            node = None
        if node is not None and not node.is_alive:
            raise Unavailable(f"The node {node.node_id} does not answer now.")
        chosen = node.node_id if node else assignments.choose(key, workload, self.nodes)
        if chosen is None:
            if key not in assignments.waiting:
                log.warning("No node has room.", extra={"action": "no_capacity", "id": key})
            assignments.wait(key, spec, workload, self.nodes, now)
            self._announce()
            return None
        assignments.assign(key, chosen, now)
        return self._nodes[chosen]

    async def _put_instance(self, node: WatchedNode, spec: InstanceSpec) -> None:
        await self._put(spec.instance_id, node, node.agent.put_instance(spec))

    async def _put_job(self, node: WatchedNode, spec: JobSpec) -> None:
        await self._put(spec.attempt_id, node, node.agent.put_job(spec))

    async def _put(self, key: str, node: WatchedNode, request: Coroutine[Any, Any, None]) -> None:
        try:
            await node.call(request)
        except Invalid:
            self._assignments.release(key)
            raise

    def _drop_waiting(self, key: str) -> bool:
        was_waiting = self._assignments.waiting.pop(key, None) is not None
        if was_waiting:
            self._announce()
        return was_waiting

    def _node_of_job(self, attempt_id: str) -> WatchedNode:
        """Raises NotFound, or Unavailable while the node does not answer."""
        assigned = self._assignments.node_of(attempt_id)
        for node in self.nodes:
            if attempt_id in node.jobs or node.node_id == assigned:
                if not node.is_alive:
                    raise Unavailable(f"The node {node.node_id} does not answer now.")
                return node
        raise NotFound(f"There is no attempt {attempt_id}.")

    def _settle(self) -> None:
        """Brings everything up to date with what is known of the nodes."""
        if not self._has_begun:
            return
        nodes, now = self.nodes, self._clock.monotonic()
        if nodes and all(node.has_settled for node in nodes):
            self._is_ready = True
        if nodes and not any(node.may_run_jobs for node in nodes):
            self._is_ready_for_jobs = True
        self._assignments.release_lost(self._nodes, now)
        for node in nodes:
            self._adopt(node, {*node.instances, *node.jobs}, now)
        if self._is_ready:
            self._delete_copies(None)
            self._start_waiting(now)
        self._assignments.forget_unknown(self._is_reported)
        self._announce()

    def _settle_some(self, keys: Set[str]) -> None:
        """The same after reports of these instances or attempts, at a cost that depends on them."""
        if not self._is_ready or self._assignments.waiting:
            self._settle()
            return
        nodes, now = self.nodes, self._clock.monotonic()
        for key in keys:
            self._assignments.release_if_lost(key, self._nodes, now)
        for node in nodes:
            self._adopt(node, keys, now)
        self._delete_copies(keys)
        self._assignments.forget_unknown(self._is_reported, keys)
        self._reports.merge_some(keys, nodes, self._assignments)

    def _is_reported(self, key: str) -> bool:
        return any(_has_reported(node, key) for node in self._nodes.values())

    def _adopt(self, node: WatchedNode, keys: Set[str], now: float) -> None:
        assignments = self._assignments
        if not node.is_alive:
            return
        for key in node.instances.keys() & keys:
            if assignments.node_of(key) in (None, node.node_id):
                is_ending = node.instances[key].state is InstanceState.STOPPING
                assignments.assign(key, node.node_id, now, is_ending=is_ending)
        for key in node.jobs.keys() & keys:
            has_ended = node.jobs[key].outcome is not None
            assignments.assign(key, node.node_id, now, is_ending=has_ended)
            if has_ended:
                assignments.finish(key)

    def _delete_copies(self, keys: Set[str] | None) -> None:
        for node, key in copies(self.nodes, self._assignments, keys):
            self._requests.delete_copy(node, key)

    def _start_waiting(self, now: float) -> None:
        """Starts what has room by now, first come first served; the rest fails in time."""
        for waiting in list(self._assignments.waiting.values()):
            is_job = waiting.workload.is_job
            is_asked = self._assignments.node_of(waiting.key) is not None
            if is_asked or waiting.has_failed or (is_job and not self._is_ready_for_jobs):
                continue
            chosen = self._assignments.choose(waiting.key, waiting.workload, self.nodes)
            if chosen is not None:
                self._assignments.assign(waiting.key, chosen, now, keep_waiting=is_job)
                self._start(self._nodes[chosen], waiting.spec)
            elif not is_job and now - waiting.since >= self._wait_seconds:
                waiting.has_failed = True

    def _start(self, node: WatchedNode, spec: InstanceSpec | JobSpec) -> None:
        if isinstance(spec, InstanceSpec):
            self._requests.start(node, self._put_instance(node, spec))
        else:
            self._requests.start(node, self._put_job(node, spec))

    def _announce(self) -> None:
        self._reports.merge_all(self.nodes, self._assignments)


def _has_reported(node: WatchedNode, key: str) -> bool:
    return key in node.instances or key in node.jobs


def _use(record: NodeRecord) -> tuple[str, str, bool]:
    """Returns what others make of a node's record."""
    return record.peer_address, record.agent_address, record.takes_work
