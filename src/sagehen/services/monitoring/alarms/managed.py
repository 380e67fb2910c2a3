"""Alarms that another service makes for itself, such as those of a scaling policy."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection

from sagehen.services.monitoring.alarms.configuration import AlarmChanges

__all__ = ["ManagedAlarms"]


class ManagedAlarms:
    """Changes alarms in the other service's transaction; `now` is in seconds since the epoch."""

    def __init__(self, changes: AlarmChanges) -> None:
        self._changes = changes

    def put(self, connection: Connection, definition: Mapping[str, Any], now: float) -> str:
        """Makes or replaces an alarm; returns its ARN.

        Args:
            definition: the parameters of PutMetricAlarm.

        Raises:
            AwsError: as PutMetricAlarm.
        """
        return self._changes.put_metric_alarm(connection, definition, {}, now).arn

    def delete(self, connection: Connection, names: Collection[str], now: float) -> None:
        """Deletes those that exist, even if composite alarms name them."""
        self._changes.delete(connection, names, now, force=True)
