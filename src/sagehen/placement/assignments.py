"""Which node each instance or attempt is on, or is to be on, and who waits for room."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sagehen.frame.container_specs import InstanceSpec
from sagehen.frame.job_specs import JobSpec
from sagehen.frame.nodes import Resources
from sagehen.placement.choice import LoadSum, NodeLoad, Workload, choose_node, describe_lack
from sagehen.placement.watched_node import WatchedNode

__all__ = ["Assignments", "Waiting"]

UNREPORTED_SECONDS = 30.0
"""then an assigned instance that its node does not report is thought to be unwanted"""


@dataclass
class Waiting:
    """Work that no node has room for."""

    key: str
    spec: InstanceSpec | JobSpec
    workload: Workload
    since: float
    """monotonic"""
    reason: str
    has_failed: bool = False
    """it waited for too long"""


@dataclass
class _Assigned:
    node_id: str
    at: float
    """monotonic: the last request to run it, or its last report"""
    is_ending: bool = False
    """it was asked to end"""


@dataclass
class Assignments:
    """Instances and attempts by id: no id is of both kinds. All times are monotonic."""

    waiting: dict[str, Waiting] = field(default_factory=dict)
    """in the order of arrival"""
    _workloads: dict[str, Workload] = field(default_factory=dict)
    _nodes: dict[str, _Assigned] = field(default_factory=dict)
    _loads: dict[str, LoadSum] = field(default_factory=dict)
    """by node: of all assigned work whose workload is known"""
    _counted: dict[str, tuple[str, Workload]] = field(default_factory=dict)
    """the node and the workload with which work is counted in `_loads`"""

    @property
    def workloads(self) -> Mapping[str, Workload]:
        """Those of everything that is known to run, to be started or to wait."""
        return self._workloads

    def learn(self, key: str, workload: Workload) -> None:
        self._workloads[key] = workload
        self._count(key)

    def node_of(self, key: str) -> str | None:
        assigned = self._nodes.get(key)
        return None if assigned is None else assigned.node_id

    def assign(
        self,
        key: str,
        node_id: str,
        now: float,
        *,
        is_ending: bool = False,
        keep_waiting: bool = False,
    ) -> None:
        """Notes where work runs. With `keep_waiting` it waits until its node reports it: a gap in
        the reports of an attempt would mean that it was lost."""
        if not keep_waiting:
            self.waiting.pop(key, None)
        self._nodes[key] = _Assigned(node_id, now, is_ending)
        self._count(key)

    def release(self, key: str) -> None:
        self._nodes.pop(key, None)
        self._count(key)

    def note_ending(self, key: str) -> None:
        """Notes a request to end: when the node reports the work no more, it has ended."""
        if key in self._nodes:
            self._nodes[key].is_ending = True

    def release_lost(self, nodes: Mapping[str, WatchedNode], now: float) -> None:
        """Releases what is on nodes that are gone, and what nobody has asked for any more."""
        for key in list(self._nodes):
            self.release_if_lost(key, nodes, now)

    def release_if_lost(self, key: str, nodes: Mapping[str, WatchedNode], now: float) -> None:
        assigned = self._nodes.get(key)
        if assigned is None:
            return
        node = nodes.get(assigned.node_id)
        if (
            node is None
            or self._has_ended(key, node)
            or (
                node.is_alive
                and key not in node.instances
                and key not in node.jobs
                and (assigned.is_ending or now - assigned.at > UNREPORTED_SECONDS)
            )
        ):
            self.release(key)

    def _has_ended(self, key: str, node: WatchedNode) -> bool:
        """Whether the work has ended with its node, or may be started a second time."""
        workload = self.workloads.get(key)
        if workload is not None and workload.is_job:
            return node.heartbeat.is_fenced
        return node.heartbeat.is_lost

    def choose(self, key: str, workload: Workload, nodes: Iterable[WatchedNode]) -> str | None:
        """Returns the node for new work; None while there is no room."""
        with self._without(key):
            return choose_node(workload, self._node_loads(nodes))

    def wait(
        self,
        key: str,
        spec: InstanceSpec | JobSpec,
        workload: Workload,
        nodes: Iterable[WatchedNode],
        now: float,
    ) -> Waiting:
        """Has work wait for room; work that has failed by waiting waits again."""
        self.release(key)
        reason = describe_lack(workload, self._node_loads(nodes))
        waiting = self.waiting.get(key)
        if waiting is None or waiting.has_failed:
            waiting = self.waiting[key] = Waiting(key, spec, workload, now, reason)
        waiting.reason = reason
        return waiting

    def describe_waiting(self) -> list[dict[str, str]]:
        """Returns what no node has room for, and why."""
        return [{"id": each.key, "reason": each.reason} for each in self.waiting.values()]

    def load_of(self, node_id: str) -> Resources:
        return self._loads[node_id].resources if node_id in self._loads else Resources()

    def group_of(self, key: str) -> str:
        """Returns the variant, or transform job, of an instance; empty where it is not known."""
        workload = self._workloads.get(key)
        return "" if workload is None else workload.group

    def waiting_groups(self) -> Counter[str]:
        return Counter(each.workload.group for each in self.waiting.values())

    def finish(self, key: str) -> None:
        """Notes that an attempt has ended, and needs nothing."""
        self._workloads.pop(key, None)
        self._count(key)

    def forget_unknown(
        self, keep: Callable[[str], bool], keys: Iterable[str] | None = None
    ) -> None:
        """Drops the workloads of what is gone; with `keys`, of these only."""
        for key in list(self._workloads if keys is None else self._workloads.keys() & keys):
            if key not in self._nodes and key not in self.waiting and not keep(key):
                del self._workloads[key]

    def _count(self, key: str) -> None:
        """Brings the load of the work's node up to date."""
        assigned, workload = self._nodes.get(key), self._workloads.get(key)
        counted = None if assigned is None or workload is None else (assigned.node_id, workload)
        before = self._counted.get(key)
        if counted == before:
            return
        if before is not None:
            node_id, known = before
            self._loads[node_id].remove(known)
            del self._counted[key]
        if counted is not None:
            node_id, known = counted
            self._loads.setdefault(node_id, LoadSum()).add(known)
            self._counted[key] = counted

    @contextmanager
    def _without(self, key: str) -> Iterator[None]:
        """Leaves the work itself out of its node's load while the block runs."""
        counted = self._counted.pop(key, None)
        if counted is not None:
            self._loads[counted[0]].remove(counted[1])
        try:
            yield
        finally:
            self._count(key)

    def _node_loads(self, nodes: Iterable[WatchedNode]) -> list[NodeLoad]:
        return [
            NodeLoad(
                node_id=node.node_id,
                total=node.record.resources,
                load=self._loads.get(node.node_id, LoadSum()),
                models=node.models,
            )
            for node in nodes
            if node.is_alive and node.record.takes_work
        ]
