"""The nodes of a cluster as metrics, by the control that leads."""

from collections import Counter
from collections.abc import Mapping

from sagehen.placement.fleet import Fleet
from sagehen.placement.records import NodeRecord

__all__ = ["NODE_STATES", "measure_nodes", "node_state"]

NODE_STATES = ("ready", "draining", "leaving", "stopped", "lost", "other version")


def node_state(record: NodeRecord, *, answers: bool, is_other_version: bool = False) -> str:
    """Returns the state that `sagehen cluster status` shows."""
    if is_other_version:
        return "other version"
    if record.is_leaving:
        return "leaving" if answers else "stopped"
    if not answers:
        return "lost"
    return "draining" if record.is_draining else "ready"


def measure_nodes(
    fleet: Fleet, own_node_id: str, epoch: int | None
) -> Mapping[str, Mapping[tuple[str, ...], float]]:
    """Returns nothing while another control leads."""
    if epoch is None:
        return {}
    states = Counter(dict.fromkeys(NODE_STATES, 0))
    measured: dict[str, dict[tuple[str, ...], float]] = {
        "ClusterLeader": {(own_node_id,): 1},
        "ClusterLeaderEpoch": {(): epoch},
        "InstancesWaitingForRoom": {(): len(fleet.waiting)},
    }
    for node in fleet.nodes:
        is_other = bool(node.heartbeat.refusal)
        states[node_state(node.record, answers=node.is_alive, is_other_version=is_other)] += 1
        total, reserved = node.record.resources, fleet.reserved(node.node_id)
        for name, value in (
            ("NodeUp", float(node.is_alive)),
            ("NodeCpus", total.cpus),
            ("NodeCpusReserved", reserved.cpus),
            ("NodeMemory", total.memory_bytes),
            ("NodeMemoryReserved", reserved.memory_bytes),
            ("NodeGpus", total.gpus),
            ("NodeGpusReserved", reserved.gpus),
        ):
            measured.setdefault(name, {})[node.node_id,] = value
    measured["Nodes"] = {(state,): count for state, count in states.items()}
    return measured
