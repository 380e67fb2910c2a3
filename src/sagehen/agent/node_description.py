"""Describes this node: its resources, and Sagehen's processes on it."""

import os

import psutil

from sagehen.frame.gpus import GpuList
from sagehen.frame.nodes import NodeDescription, Resources

__all__ = ["describe_node"]


def describe_node(node_id: str, run_id: str, gpus: GpuList) -> NodeDescription:
    """Blocks for some milliseconds: it looks at each process of ours."""
    return NodeDescription(
        node_id=node_id,
        run_id=run_id,
        resources=Resources(
            cpus=len(os.sched_getaffinity(0)),
            memory_bytes=psutil.virtual_memory().total,
            gpus=len(gpus.gpus),
        ),
        pids=_pids(),
    )


def _pids() -> tuple[int, ...]:
    """Returns the supervisor of this agent and everything below it."""
    try:
        supervisor = psutil.Process(os.getppid())
        return (supervisor.pid, *(each.pid for each in supervisor.children(recursive=True)))
    except psutil.NoSuchProcess:
        return (os.getpid(),)
