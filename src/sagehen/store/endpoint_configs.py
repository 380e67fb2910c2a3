"""The endpoint configs: one row each."""

from sqlalchemy import JSON, Column, Connection, Double, String, Table

from sagehen.domain.records import EndpointConfigRecord
from sagehen.store import rows
from sagehen.store.listing import ListQuery, page
from sagehen.store.tables import METADATA

__all__ = ["ENDPOINT_CONFIGS", "delete", "get", "insert", "list_page"]

ENDPOINT_CONFIGS = Table(
    "endpoint_configs",
    METADATA,
    Column("key", String(63), primary_key=True),
    Column("name", String(63), nullable=False),
    Column("arn", String(256), nullable=False),
    Column("created_at", Double, nullable=False, index=True),
    Column("definition", JSON(none_as_null=True), nullable=False),
)


def insert(connection: Connection, record: EndpointConfigRecord) -> None:
    """Add an endpoint config; raises AlreadyExists."""
    rows.insert_named(connection, ENDPOINT_CONFIGS, record, record.name)


def get(connection: Connection, name: str) -> EndpointConfigRecord | None:
    """The endpoint config of that name, whatever its case."""
    found = rows.select_records(
        connection,
        ENDPOINT_CONFIGS,
        EndpointConfigRecord,
        ENDPOINT_CONFIGS.c.key == rows.name_key(name),
    )
    return found[0] if found else None


def delete(connection: Connection, name: str) -> bool:
    """Drop the endpoint config of that name; False where there is none."""
    return rows.delete_where(
        connection, ENDPOINT_CONFIGS, ENDPOINT_CONFIGS.c.key == rows.name_key(name)
    )


def list_page(
    connection: Connection, query: ListQuery
) -> tuple[list[EndpointConfigRecord], str | None]:
    """One page and the next page's token; raises Invalid on a bad token."""
    return page(connection, ENDPOINT_CONFIGS, EndpointConfigRecord, query)
