"""The reports of all nodes as those of one agent, as pure functions."""

from collections.abc import Iterable

from sagehen.agent.instances.failures import no_capacity
from sagehen.frame.container_specs import InstanceReport, InstanceSpec, InstanceState
from sagehen.frame.job_specs import JobReport, JobSpec
from sagehen.placement.assignments import Assignments
from sagehen.placement.watched_node import WatchedNode

__all__ = ["copies", "merge_instances", "merge_jobs"]


def merge_instances(
    nodes: Iterable[WatchedNode], assignments: Assignments
) -> dict[str, InstanceReport]:
    """If an instance runs on several nodes, the report of its assigned node counts. An instance
    that waits for room is reported as starting."""
    reports = {
        waiting.key: InstanceReport(
            instance_id=waiting.key,
            state=InstanceState.FAILED if waiting.has_failed else InstanceState.STARTING,
            failure_reason=no_capacity(waiting.reason),
            owner=waiting.spec.owner,
        )
        for waiting in assignments.waiting.values()
        if isinstance(waiting.spec, InstanceSpec)
    }
    for node in nodes:
        for key, report in node.instances.items() if node.is_alive else ():
            if assignments.node_of(key) in (None, node.node_id):
                reports[key] = report
    return reports


def merge_jobs(nodes: Iterable[WatchedNode], assignments: Assignments) -> dict[str, JobReport]:
    """An attempt that waits for room leaves its place among the running jobs to others."""
    reports = {
        waiting.key: JobReport(attempt_id=waiting.key, waits_for_gpus=True)
        for waiting in assignments.waiting.values()
        if isinstance(waiting.spec, JobSpec)
    }
    for node in nodes:
        reports.update(node.jobs)
    return reports


def copies(nodes: Iterable[WatchedNode], assignments: Assignments) -> list[tuple[WatchedNode, str]]:
    """Returns instances that were started elsewhere while their node was lost."""
    return [
        (node, key)
        for node in nodes
        if node.is_alive
        for key, report in node.instances.items()
        if assignments.node_of(key) not in (None, node.node_id)
        and report.state is not InstanceState.STOPPING
    ]
