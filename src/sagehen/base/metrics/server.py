"""Metrics of servers and of the nodes of a cluster."""

from sagehen.base.metrics.metric import OWN, Metric, MetricKind

__all__ = ["CLUSTER", "SERVER"]


def _gauge(
    name: str, exposed_as: str, unit: str, help_text: str, dimensions: tuple[str, ...] = ()
) -> Metric:
    return Metric(name, exposed_as, MetricKind.GAUGE, unit, help_text, dimensions, OWN)


SERVER = (
    _gauge(
        "BuildInfo",
        "sagehen_build_info",
        "None",
        "1 for the versions of Sagehen and Python of the server that answers.",
        ("version", "python"),
    ),
    _gauge("DatabaseUp", "sagehen_database_up", "None", "1 while the database answers, else 0."),
    _gauge(
        "DatabaseResponseTime",
        "sagehen_database_response_seconds",
        "Seconds",
        "Time that the database took for an empty query, just now.",
    ),
)

CLUSTER = (
    _gauge(
        "Nodes",
        "sagehen_nodes",
        "Count",
        "Nodes of the cluster by state, as `sagehen cluster status` shows it.",
        ("state",),
    ),
    _gauge(
        "NodeUp",
        "sagehen_node_up",
        "None",
        "1 while a node answers the control that leads, else 0.",
        ("node",),
    ),
    _gauge(
        "ClusterLeader",
        "sagehen_cluster_leader",
        "None",
        "1 for the node whose control leads.",
        ("node",),
    ),
    _gauge(
        "ClusterLeaderEpoch",
        "sagehen_cluster_leader_epoch",
        "None",
        "The epoch of the control that leads; each take-over adds 1.",
    ),
    _gauge(
        "InstancesWaitingForRoom",
        "sagehen_instances_waiting_for_room",
        "Count",
        "Instances and jobs for which no node has enough free vCPUs, memory or GPUs.",
    ),
    *(
        _gauge(name, exposed_as, unit, help_text, ("node",))
        for name, exposed_as, unit, help_text in (
            ("NodeCpus", "sagehen_node_cpus", "Count", "vCPUs of a node."),
            (
                "NodeCpusReserved",
                "sagehen_node_cpus_reserved",
                "Count",
                "vCPUs of a node that instances and jobs have reserved.",
            ),
            ("NodeMemory", "sagehen_node_memory_bytes", "Bytes", "Memory of a node."),
            (
                "NodeMemoryReserved",
                "sagehen_node_memory_reserved_bytes",
                "Bytes",
                "Memory of a node that instances and jobs have reserved.",
            ),
            ("NodeGpus", "sagehen_node_gpus", "Count", "GPUs of a node."),
            (
                "NodeGpusReserved",
                "sagehen_node_gpus_reserved",
                "Count",
                "GPUs of a node that instances and jobs have reserved.",
            ),
        )
    ),
)
