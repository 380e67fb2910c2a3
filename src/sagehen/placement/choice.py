"""Chooses the node of an instance or a job, as pure functions.

The instances of a variant are spread, so that the loss of one machine takes few of them. Among
nodes with as few of them, one that holds the model is preferred, and then the fullest: so large
instance types find room.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sagehen.frame.nodes import Resources

__all__ = ["LoadSum", "NodeLoad", "Workload", "choose_node", "describe_lack"]


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


class LoadSum:
    """The sum of the needs of several workloads, to which others are added and removed."""

    def __init__(self, workloads: Iterable[Workload] = ()) -> None:
        self.resources = Resources()
        self.groups: Counter[str] = Counter()
        """instances of each group"""
        self.models: Counter[str] = Counter()
        """workloads that need the model data"""
        self._count = 0
        for each in workloads:
            self.add(each)

    def add(self, workload: Workload) -> None:
        self._count += 1
        self.resources += workload.resources
        self.models.update(workload.models)
        if workload.group:
            self.groups[workload.group] += 1

    def remove(self, workload: Workload) -> None:
        self._count -= 1
        # Fractions of GPUs are floats: nothing remains of their errors where nothing runs.
        self.resources = self.resources - workload.resources if self._count else Resources()
        for counts, keys in ((self.models, workload.models), (self.groups, [workload.group])):
            for key in keys:
                if counts[key] > 1:
                    counts[key] -= 1
                else:
                    del counts[key]


@dataclass(frozen=True, kw_only=True)
class NodeLoad:
    """A node that may take new work, with what it has already."""

    node_id: str
    total: Resources
    load: LoadSum = field(default_factory=LoadSum)
    models: frozenset[str] = frozenset()
    """model data that it has on disk"""

    @property
    def free(self) -> Resources:
        return self.total - self.load.resources


def choose_node(needed: Workload, nodes: Sequence[NodeLoad]) -> str | None:
    """Returns None where no node has room."""
    fitting = [(node, node.free) for node in nodes if needed.resources.fits_in(node.free)]
    if not fitting:
        return None

    def rank(candidate: tuple[NodeLoad, Resources]) -> tuple[int, int, float, str]:
        node, free = candidate
        siblings = node.load.groups[needed.group] if needed.group else 0
        # Those of other work there are being fetched at least.
        missing = [each for each in needed.models - node.models if each not in node.load.models]
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
        return (
            f"{needs}, which no node of the cluster has free now: add a node, or one with more "
            "(cluster_cpus, cluster_memory_gib), or choose a smaller instance type"
        )
    return (
        f"{needs}; none of the cluster's {len(nodes)} nodes is that large: add one, or choose "
        "a smaller instance type"
    )
