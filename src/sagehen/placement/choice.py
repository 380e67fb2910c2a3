"""Chooses the node of an instance or a job, as pure functions.

The instances of a variant are spread, so that the loss of one machine takes few of them. Among
nodes with as few of them, one that holds the model is preferred, and then the fullest: so large
instance types find room.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sagehen.frame.nodes import Resources

__all__ = ["NodeLoad", "Workload", "choose_node", "describe_lack"]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The needs of an instance or a job, and the group that it belongs to."""

    resources: Resources
    group: str = ""
    """of instances that are spread; empty for those that are not"""
    models: frozenset[str] = frozenset()
    """model data, as `model_version` names it"""
    instance_type: str = ""
    is_job: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeLoad:
    """A node that may take new work, with what it has already."""

    node_id: str
    total: Resources
    workloads: Sequence[Workload] = ()
    models: frozenset[str] = frozenset()
    """model data that it has on disk"""

    @property
    def free(self) -> Resources:
        return self.total - sum((each.resources for each in self.workloads), Resources())


def choose_node(needed: Workload, nodes: Sequence[NodeLoad]) -> str | None:
    """Returns None where no node has room."""
    fitting = [(node, node.free) for node in nodes if needed.resources.fits_in(node.free)]
    if not fitting:
        return None

    def rank(candidate: tuple[NodeLoad, Resources]) -> tuple[int, int, float, str]:
        node, free = candidate
        siblings = sum(1 for each in node.workloads if needed.group and each.group == needed.group)
        missing = needed.models - node.models
        # Those of other work there are being fetched at least.
        missing -= missing and frozenset().union(*(each.models for each in node.workloads))
        return siblings, len(missing), _free_share(node.total, free), node.node_id

    return min(fitting, key=rank)[0].node_id


def _free_share(total: Resources, free: Resources) -> float:
    """Returns the share of the resource that is scarcest on the node."""
    shares = [
        free.cpus / total.cpus if total.cpus else 1.0,
        free.memory_bytes / total.memory_bytes if total.memory_bytes else 1.0,
        free.gpus / total.gpus if total.gpus else 1.0,
    ]
    return min(shares)


def describe_lack(needed: Workload, nodes: Sequence[NodeLoad]) -> str:
    """Says why no node has room, and what to do."""
    resources = needed.resources
    parts = [f"{resources.cpus:g} vCPUs", f"{resources.memory_bytes / 2**30:g} GiB of memory"]
    if resources.gpus:
        parts.append(f"{resources.gpus:g} GPUs")
    needs = f"{needed.instance_type or 'It'} needs {', '.join(parts)}"
    if any(resources.fits_in(node.total) for node in nodes):
        return f"{needs}, which no node of the cluster has free now"
    return (
        f"{needs}; none of the cluster's {len(nodes)} nodes is that large: add one, or choose "
        "a smaller instance type"
    )
