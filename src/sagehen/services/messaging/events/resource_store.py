"""SQL of EventBridge's connections and API destinations."""

from sqlalchemy import JSON, Column, Connection, Double, String, Table, func, select

from sagehen.services.messaging.events.records import EventResource
from sagehen.state import rows
from sagehen.state.rows import METADATA

__all__ = [
    "CONNECTIONS",
    "DESTINATIONS",
    "EVENT_CONNECTIONS",
    "EVENT_DESTINATIONS",
    "EventResources",
]


def _resources(name: str) -> Table:
    return Table(
        name,
        METADATA,
        Column("name", String(64), primary_key=True),
        Column("arn", String(256), nullable=False),
        Column("definition", JSON(none_as_null=True), nullable=False),
        Column("created_at", Double, nullable=False),
        Column("modified_at", Double, nullable=False),
    )


CONNECTIONS = _resources("event_connections")
DESTINATIONS = _resources("event_destinations")


class EventResources:
    """Records of one kind."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._c = table.c

    def insert(self, connection: Connection, record: EventResource) -> bool:
        """Returns False if the name is taken."""
        return rows.insert_new(connection, self._table, record)

    def get(self, connection: Connection, name: str, lock: bool = False) -> EventResource | None:
        where = self._c.name == name
        records = rows.select_records(connection, self._table, EventResource, where, lock=lock)
        return records[0] if records else None

    def by_arn(self, connection: Connection, arn: str) -> EventResource | None:
        """Returns None if the name now belongs to another resource."""
        record = self.get(connection, arn.split("/")[1]) if arn.count("/") == 2 else None
        return record if record is not None and record.arn == arn else None

    def page(
        self, connection: Connection, prefix: str, after: str, limit: int
    ) -> list[EventResource]:
        # Not LIKE, which ignores case in SQLite.
        where = (func.substr(self._c.name, 1, len(prefix)) == prefix) & (self._c.name > after)
        return rows.select_records(
            connection, self._table, EventResource, where, order=[self._c.name], limit=limit
        )

    def count(self, connection: Connection) -> int:
        return connection.scalar(select(func.count()).select_from(self._table)) or 0

    def update(self, connection: Connection, record: EventResource) -> None:
        rows.update_where(connection, self._table, record, self._c.name == record.name)

    def delete(self, connection: Connection, name: str) -> bool:
        return rows.delete_where(connection, self._table, self._c.name == name)


EVENT_CONNECTIONS = EventResources(CONNECTIONS)
EVENT_DESTINATIONS = EventResources(DESTINATIONS)
