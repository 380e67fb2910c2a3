"""The rows of endpoints and their instances, as one pass of the reconciler sees them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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

__all__ = ["EndpointRows", "make_rows", "read_rows", "rows_after", "starts_on_demand"]


@dataclass(frozen=True)
class EndpointRows:
    """Rows by endpoint name; instances may remain of deleted endpoints."""

    endpoints: Mapping[str, EndpointRecord]
    instances: Mapping[str, tuple[InstanceRecord, ...]]
    backlogs: Mapping[str, int] = field(default_factory=dict)
    """unfinished requests of asynchronous endpoints that scale from zero"""

    @property
    def names(self) -> list[str]:
        return sorted(self.endpoints.keys() | self.instances.keys())

    @property
    def instance_ids(self) -> set[str]:
        return {instance.instance_id for group in self.instances.values() for instance in group}


def make_rows(
    endpoints: Iterable[EndpointRecord],
    instances: Iterable[InstanceRecord],
    backlogs: Mapping[str, int] | None = None,
) -> EndpointRows:
    groups: defaultdict[str, list[InstanceRecord]] = defaultdict(list)
    for instance in instances:
        groups[instance.endpoint_name].append(instance)
    return EndpointRows(
        {endpoint.name: endpoint for endpoint in endpoints},
        {name: tuple(group) for name, group in groups.items()},
        backlogs or {},
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
    return EndpointRows(endpoints, groups, rows.backlogs)


def read_rows(connection: Connection) -> EndpointRows:
    records = endpoints.all(connection)
    return make_rows(records, instances.all(connection), _backlogs(connection, records))


def starts_on_demand(endpoint: EndpointRecord) -> bool:
    return endpoint.running is not None or any(
        variant.starts_on_demand
        for deployment in (endpoint.current, endpoint.target)
        if deployment is not None
        for variant in deployment.all_variants
    )


def _backlogs(connection: Connection, records: Iterable[EndpointRecord]) -> dict[str, int]:
    if not any(
        record.current is not None
        and record.current.asynchronous is not None
        and starts_on_demand(record)
        for record in records
    ):
        return {}
    return {
        queue.endpoint_name: queue.leased + _startable(queue)
        for queue in async_requests.endpoint_queues(connection)
    }


def _startable(queue: EndpointQueue) -> int:
    return 0 if queue.mode is QueueMode.PAUSED else queue.queued
