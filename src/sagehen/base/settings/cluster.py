"""The settings of servers on several machines."""

from pydantic import Field

from sagehen.base.settings.section import Section

__all__ = ["ClusterSettings"]


class ClusterSettings(Section):
    """More than one machine."""

    cluster: str | None = Field(
        None,
        pattern=r"^(state|local:[1-9][0-9]?|auto|[^:\s]+:[0-9]+)$",
        description="The cluster that this server belongs to: the address of a Ray cluster as "
        "`host:port` (`auto`: the one that this machine is in), `local:3` for a small one of three "
        "nodes on this machine, or `state` for the servers that share the state, without Ray. Also "
        "`--cluster`. Default: this machine alone.",
    )
    cluster_token: str | None = Field(
        None,
        description="What `sagehen cluster token` prints on a machine of the cluster. Another "
        "server needs it once, to join.",
    )
    cluster_host: str | None = Field(
        None,
        description="The address of this machine at which others of the cluster reach it; default: "
        "`host`, or, where that is 127.0.0.1 or 0.0.0.0, the address of the route to the head of "
        "Ray or to the database.",
    )
    cluster_port: int | None = Field(
        None,
        ge=1,
        le=65533,
        description="The first of three ports at `cluster_host` that other machines of the cluster "
        "reach: for the agent, for requests between gateways, and for nodes without a control. The "
        "same on all machines; default: free ports, which are others after each start.",
    )
    cluster_cpus: float | None = Field(
        None,
        gt=0,
        description="vCPUs of this machine for instances and jobs of the cluster `state`; default: "
        "all. In a Ray cluster, Ray's own count.",
    )
    cluster_memory_gib: float | None = Field(
        None, gt=0, description="The same for memory; default: all that the machine has."
    )
    cluster_cut_off_seconds: float = Field(
        900,
        ge=30,
        description="How long the instances of endpoints on a node serve without any control; then "
        "they stop. Jobs stop after 8 seconds.",
    )
    cluster_leave_seconds: float = Field(
        60,
        ge=0,
        description="How long a node that is stopped waits until the instances of endpoints that "
        "run there serve on other nodes; 0: it does not wait.",
    )
    cluster_capacity_wait_seconds: float = Field(
        900,
        gt=0,
        description="How long an instance waits for a node with enough free vCPUs, memory and GPUs "
        "for its type; then it has failed with InsufficientInstanceCapacity.",
    )
