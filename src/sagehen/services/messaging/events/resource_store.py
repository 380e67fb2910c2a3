"""SQL of EventBridge's connections and API destinations."""

from sqlalchemy import Connection, Table, func, select

from sagehen.services.messaging.events.records import EventResource
from sagehen.services.messaging.events.tables import CONNECTIONS, DESTINATIONS
from sagehen.state import rows

__all__ = ["EVENT_CONNECTIONS", "EVENT_DESTINATIONS", "EventResources"]


class EventResources:
    """Records of one kind."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._c = table.c

    def insert(self, connection: Connection, record: EventResource) -> bool:
        """Returns False if the name is taken."""
        return rows.insert_new(connection, self._table, record)

    def get(self, connection: Connection, name: str, lock: bool = False) -> EventResource | None:
        mine = self._c.name == name
        found = rows.select_records(connection, self._table, EventResource, mine, lock=lock)
        return found[0] if found else None

    def by_arn(self, connection: Connection, arn: str) -> EventResource | None:
        """Returns None if the name now belongs to another resource."""
        found = self.get(connection, arn.split("/")[1]) if arn.count("/") == 2 else None
        return found if found is not None and found.arn == arn else None

    def page(
        self, connection: Connection, prefix: str, after: str, limit: int
    ) -> list[EventResource]:
        # Not LIKE, which ignores case in SQLite.
        wanted = (func.substr(self._c.name, 1, len(prefix)) == prefix) & (self._c.name > after)
        return rows.select_records(
            connection, self._table, EventResource, wanted, order=[self._c.name], limit=limit
        )

    def count(self, connection: Connection) -> int:
        return connection.scalar(select(func.count()).select_from(self._table)) or 0

    def update(self, connection: Connection, record: EventResource) -> None:
        rows.update_where(connection, self._table, record, self._c.name == record.name)

    def delete(self, connection: Connection, name: str) -> bool:
        return rows.delete_where(connection, self._table, self._c.name == name)


EVENT_CONNECTIONS = EventResources(CONNECTIONS)
EVENT_DESTINATIONS = EventResources(DESTINATIONS)
