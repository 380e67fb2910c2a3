"""Which node each instance or attempt is on, or is to be on, and who waits for room."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sagehen.frame.container_specs import InstanceSpec
from sagehen.frame.job_specs import JobSpec
from sagehen.placement.choice import NodeLoad, Workload, choose_node, describe_lack
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

    workloads: dict[str, Workload] = field(default_factory=dict)
    """of everything that is known to run, to be started or to wait"""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """in the order of arrival"""
    _nodes: dict[str, _Assigned] = field(default_factory=dict)

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

    def release(self, key: str) -> None:
        self._nodes.pop(key, None)

    def note_ending(self, key: str) -> None:
        """Notes a request to end: when the node reports the work no more, it has ended."""
        if key in self._nodes:
            self._nodes[key].is_ending = True

    def release_lost(self, nodes: Mapping[str, WatchedNode], now: float) -> None:
        """Releases what is on nodes that are gone, and what nobody has asked for any more."""
        for key, assigned in list(self._nodes.items()):
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
        return choose_node(workload, self._loads(key, nodes))

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
        reason = describe_lack(workload, self._loads(key, nodes))
        waiting = self.waiting.get(key)
        if waiting is None or waiting.has_failed:
            waiting = self.waiting[key] = Waiting(key, spec, workload, now, reason)
        waiting.reason = reason
        return waiting

    def describe_waiting(self) -> list[dict[str, str]]:
        """Returns what no node has room for, and why."""
        return [{"id": each.key, "reason": each.reason} for each in self.waiting.values()]

    def finish(self, key: str) -> None:
        """Notes that an attempt has ended, and needs nothing."""
        self.workloads.pop(key, None)

    def forget_unknown(self, keep: Callable[[str], bool]) -> None:
        """Drops the workloads of what is gone."""
        for key in list(self.workloads):
            if key not in self._nodes and key not in self.waiting and not keep(key):
                del self.workloads[key]

    def _loads(self, key: str, nodes: Iterable[WatchedNode]) -> list[NodeLoad]:
        by_node: dict[str, list[Workload]] = {}
        for other, assigned in self._nodes.items():
            if other != key and other in self.workloads:
                by_node.setdefault(assigned.node_id, []).append(self.workloads[other])
        return [
            NodeLoad(
                node_id=node.node_id,
                total=node.record.resources,
                workloads=by_node.get(node.node_id, ()),
                models=node.models,
            )
            for node in nodes
            if node.is_alive and node.record.takes_work
        ]
