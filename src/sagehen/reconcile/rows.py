"""The rows of all endpoints, as read, and as they will be."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sagehen.domain.records import EndpointRecord, InstanceRecord
from sagehen.reconcile.plan import Step

__all__ = ["Rows", "make_rows", "rows_after"]


@dataclass(frozen=True)
class Rows:
    """Both by endpoint name; instances may be left of endpoints that are gone."""

    endpoints: Mapping[str, EndpointRecord]
    instances: Mapping[str, tuple[InstanceRecord, ...]]

    @property
    def names(self) -> list[str]:
        """Of all endpoints that there is something to do about, in order."""
        return sorted(self.endpoints.keys() | self.instances.keys())

    @property
    def instance_ids(self) -> set[str]:
        return {one.instance_id for group in self.instances.values() for one in group}


def make_rows(endpoints: Iterable[EndpointRecord], instances: Iterable[InstanceRecord]) -> Rows:
    groups: defaultdict[str, list[InstanceRecord]] = defaultdict(list)
    for one in instances:
        groups[one.endpoint_name].append(one)
    return Rows(
        {one.name: one for one in endpoints},
        {name: tuple(group) for name, group in groups.items()},
    )


def rows_after(rows: Rows, planned: Mapping[str, Step]) -> Rows:
    """The rows once every step is taken, by endpoint name."""
    endpoints = dict(rows.endpoints)
    groups = dict(rows.instances)
    for name, step in planned.items():
        if step.gone is not None:
            del endpoints[name]
        elif step.endpoint is not None:
            endpoints[name] = step.endpoint
        changed = {one.instance_id: one for one in step.changed}
        kept = [one for one in groups.get(name, ()) if one.instance_id not in step.dropped]
        groups[name] = (*(changed.get(one.instance_id, one) for one in kept), *step.added)
    return Rows(endpoints, groups)
