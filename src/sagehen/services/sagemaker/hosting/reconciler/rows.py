"""The rows of endpoints and their instances, as the passes of the reconciler see them.

They are kept in memory between passes: reading all of them takes most of a pass with many
endpoints. A pass reads anew what others have written since.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.records import EndpointQueue, QueueMode
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.reconciler.plan import EndpointStep
from sagehen.services.sagemaker.hosting.records import EndpointRecord, InstanceRecord

__all__ = [
    "EndpointRows",
    "KnownRows",
    "make_rows",
    "read_backlogs",
    "rows_after",
    "starts_on_demand",
]

MAX_READ_ALONE = 200
"""endpoints; with more, all are read"""


@dataclass(frozen=True)
class EndpointRows:
    """Rows by endpoint name; instances may remain of deleted endpoints."""

    endpoints: Mapping[str, EndpointRecord]
    instances: Mapping[str, tuple[InstanceRecord, ...]]

    @property
    def names(self) -> list[str]:
        return sorted(self.endpoints.keys() | self.instances.keys())

    @property
    def instance_ids(self) -> set[str]:
        return {instance.instance_id for group in self.instances.values() for instance in group}


def make_rows(
    endpoints: Iterable[EndpointRecord],
    instances: Iterable[InstanceRecord],
) -> EndpointRows:
    groups: defaultdict[str, list[InstanceRecord]] = defaultdict(list)
    for instance in instances:
        groups[instance.endpoint_name].append(instance)
    return EndpointRows(
        {endpoint.name: endpoint for endpoint in endpoints},
        {name: tuple(group) for name, group in groups.items()},
    )


def rows_after(rows: EndpointRows, planned: Mapping[str, EndpointStep]) -> EndpointRows:
    endpoints = dict(rows.endpoints)
    groups = dict(rows.instances)
    for name, step in planned.items():
        if step.gone is not None:
            del endpoints[name]
        elif step.endpoint is not None:
            endpoints[name] = step.endpoint
        changed = {instance.instance_id: instance for instance in step.changed}
        remaining = [
            instance
            for instance in groups.get(name, ())
            if instance.instance_id not in step.dropped
        ]
        groups[name] = (
            *(changed.get(instance.instance_id, instance) for instance in remaining),
            *step.added,
        )
        if not groups[name]:
            del groups[name]
    return EndpointRows(endpoints, groups)


class KnownRows:
    """All rows of endpoints and instances, as of the last `refresh` and the steps noted since.

    Only this control writes rows of instances.
    """

    def __init__(self) -> None:
        self.endpoints: dict[str, EndpointRecord] = {}
        self.instances: dict[str, tuple[InstanceRecord, ...]] = {}
        """by endpoint, which may be deleted already"""
        self.endpoint_of: dict[str, str] = {}
        """the endpoint of each instance"""
        self.on_demand: set[str] = set()
        """endpoints some of whose instances are started by calls"""
        self._versions: dict[str, endpoints.Version] | None = None

    @property
    def rows(self) -> EndpointRows:
        return EndpointRows(self.endpoints, self.instances)

    def forget(self) -> None:
        """Has the next `refresh` read everything."""
        self._versions = None

    @property
    def are_forgotten(self) -> bool:
        return self._versions is None

    def refresh(self, connection: Connection) -> set[str]:
        """Returns the names of endpoints whose rows are read anew."""
        versions = endpoints.versions(connection)
        before, self._versions = self._versions, versions
        if before is None:
            return self._read_all(connection)
        names = {name for name, _ in before.items() ^ versions.items()}
        if not names:
            return names
        if len(names) > MAX_READ_ALONE:
            return self._read_all(connection)
        found = make_rows(
            endpoints.several(connection, names), instances.of_endpoints(connection, names)
        )
        for name in names:
            self._put(name, found.endpoints.get(name), found.instances.get(name, ()))
        return names

    def note(self, name: str, rows: EndpointRows) -> None:
        """Notes how this control has left the rows of an endpoint."""
        endpoint = rows.endpoints.get(name)
        self._put(name, endpoint, rows.instances.get(name, ()))
        if self._versions is not None:
            self._versions.pop(name, None)
            if endpoint is not None:
                self._versions[name] = endpoint.modified_at, endpoint.status.value

    def _read_all(self, connection: Connection) -> set[str]:
        found = make_rows(endpoints.all(connection), instances.all(connection))
        names = {*self.endpoints, *self.instances, *found.names}
        for name in names:
            self._put(name, found.endpoints.get(name), found.instances.get(name, ()))
        return names

    def _put(
        self, name: str, endpoint: EndpointRecord | None, group: tuple[InstanceRecord, ...]
    ) -> None:
        for instance in self.instances.pop(name, ()):
            self.endpoint_of.pop(instance.instance_id, None)
        self.endpoints.pop(name, None)
        self.on_demand.discard(name)
        if group:
            self.instances[name] = group
            self.endpoint_of.update((each.instance_id, name) for each in group)
        if endpoint is not None:
            self.endpoints[name] = endpoint
            if starts_on_demand(endpoint):
                self.on_demand.add(name)


def starts_on_demand(endpoint: EndpointRecord) -> bool:
    return endpoint.running is not None or any(
        variant.starts_on_demand
        for deployment in (endpoint.current, endpoint.target)
        if deployment is not None
        for variant in deployment.all_variants
    )


def read_backlogs(connection: Connection, rows: KnownRows) -> dict[str, int]:
    """Returns the unfinished requests of asynchronous endpoints, if any scales from zero."""
    on_demand = (rows.endpoints[name] for name in rows.on_demand)
    if not any(each.current is not None and each.current.asynchronous for each in on_demand):
        return {}
    return {
        queue.endpoint_name: queue.leased + _startable(queue)
        for queue in async_requests.endpoint_queues(connection)
    }


def _startable(queue: EndpointQueue) -> int:
    return 0 if queue.mode is QueueMode.PAUSED else queue.queued
