"""The reports of all nodes as those of one agent."""

from collections.abc import Iterable, Sequence, Set
from typing import TypeVar

from sagehen.agent.changes import Changes
from sagehen.agent.instances.failures import no_capacity
from sagehen.base.clock import Clock
from sagehen.frame.container_specs import InstanceReport, InstanceSpec, InstanceState
from sagehen.frame.job_specs import JobReport, JobSpec
from sagehen.placement.assignments import Assignments
from sagehen.placement.watched_node import WatchedNode

__all__ = ["MergedReports", "copies", "merge_instances", "merge_jobs"]


Report = TypeVar("Report", InstanceReport, JobReport)


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


def copies(
    nodes: Iterable[WatchedNode], assignments: Assignments, keys: Set[str] | None = None
) -> list[tuple[WatchedNode, str]]:
    """Returns instances that were started elsewhere while their node was lost; with `keys`, of
    these."""
    return [
        (node, key)
        for node in nodes
        if node.is_alive
        for key in (node.instances if keys is None else node.instances.keys() & keys)
        if assignments.node_of(key) not in (None, node.node_id)
        and node.instances[key].state is not InstanceState.STOPPING
    ]


class MergedReports:
    """The last merged reports, and their versions."""

    def __init__(self, clock: Clock) -> None:
        self.instances: dict[str, InstanceReport] = {}
        self.jobs: dict[str, JobReport] = {}
        self.instance_changes = Changes(clock)
        self.job_changes = Changes(clock)

    def merge_all(self, nodes: Sequence[WatchedNode], assignments: Assignments) -> None:
        """Wakes the reconcilers, unless nothing is new for them."""
        instances = merge_instances(nodes, assignments)
        if instances != self.instances:
            self.instances = instances
            self.instance_changes.announce()
        jobs = merge_jobs(nodes, assignments)
        if jobs != self.jobs:
            self.jobs = jobs
            self.job_changes.announce()

    def merge_some(
        self, keys: Iterable[str], nodes: Sequence[WatchedNode], assignments: Assignments
    ) -> None:
        """The same as `merge_all` where nothing waits, and only these reports are different."""
        instances_differ = jobs_differ = False
        for key in keys:
            instance, job = None, None
            for node in nodes:
                own = assignments.node_of(key) in (None, node.node_id)
                if node.is_alive and own:
                    instance = node.instances.get(key, instance)
                job = node.jobs.get(key, job)
            instances_differ |= _put(self.instances, key, instance)
            jobs_differ |= _put(self.jobs, key, job)
        if instances_differ:
            self.instance_changes.announce()
        if jobs_differ:
            self.job_changes.announce()


def _put(reports: dict[str, Report], key: str, report: Report | None) -> bool:
    """Returns whether that is different."""
    if reports.get(key) == report:
        return False
    if report is None:
        del reports[key]
    else:
        reports[key] = report
    return True
