"""Values that are computed of each endpoint's row, kept until the row changes."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import Connection

from sagehen.services.sagemaker.hosting import endpoint_store as endpoints
from sagehen.services.sagemaker.hosting.records import EndpointRecord

__all__ = ["MAX_READ_ALONE", "EndpointValues"]

T = TypeVar("T")

MAX_READ_ALONE = 200
"""endpoints; with more, all are read"""


class EndpointValues(Generic[T]):
    """A value of each endpoint of one state. Only endpoints that have changed are read: with a
    thousand, reading all takes most of the time of an operation. Safe from any thread."""

    def __init__(self, value_of: Callable[[EndpointRecord], T]) -> None:
        self._value_of = value_of
        self._lock = threading.Lock()
        self._values: dict[str, tuple[endpoints.Version, T]] = {}

    def read(self, connection: Connection) -> dict[str, T]:
        """Returns the values by endpoint, as this transaction sees them."""
        versions = endpoints.versions(connection)
        with self._lock:
            known = self._values
        new = {name for name in versions if known.get(name, _UNKNOWN)[0] != versions[name]}
        if len(new) > MAX_READ_ALONE:
            records = endpoints.all(connection)
        else:
            records = endpoints.several(connection, new) if new else []
        read = {each.name: self._value_of(each) for each in records}
        # Another transaction may have deleted an endpoint since its version was read.
        there = [name for name in versions if name in read or name not in new]
        values = {name: read[name] if name in read else known[name][1] for name in there}
        with self._lock:
            self._values = {name: (versions[name], values[name]) for name in there}
        return values


_UNKNOWN: tuple[None, None] = (None, None)
