"""The endpoints: what serves and what is to serve, one row each."""

from sqlalchemy import JSON, Column, Connection, Double, String, Table, Text

from sagehen.domain.records import EndpointRecord
from sagehen.store import rows
from sagehen.store.listing import ListQuery, page
from sagehen.store.tables import METADATA

__all__ = ["ENDPOINTS", "all", "delete", "get", "get_for_update", "insert", "list_page", "update"]

ENDPOINTS = Table(
    "endpoints",
    METADATA,
    Column("key", String(63), primary_key=True),
    Column("name", String(63), nullable=False),
    Column("arn", String(256), nullable=False),
    Column("created_at", Double, nullable=False, index=True),
    Column("modified_at", Double, nullable=False),
    Column("status", String(32), nullable=False),
    Column("failure_reason", Text),
    Column("current", JSON(none_as_null=True)),
    Column("target", JSON(none_as_null=True)),
    Column("last_deployment_config", JSON(none_as_null=True)),
)


def insert(connection: Connection, record: EndpointRecord) -> None:
    """Add an endpoint; raises AlreadyExists."""
    rows.insert_named(connection, ENDPOINTS, record, record.name)


def get(connection: Connection, name: str) -> EndpointRecord | None:
    """The endpoint of that name, whatever its case."""
    key = ENDPOINTS.c.key == rows.name_key(name)
    found = rows.select_records(connection, ENDPOINTS, EndpointRecord, key)
    return found[0] if found else None


def get_for_update(connection: Connection, name: str) -> EndpointRecord | None:
    """As `get`, and nobody else writes it until this transaction ends."""
    key = ENDPOINTS.c.key == rows.name_key(name)
    found = rows.select_records(connection, ENDPOINTS, EndpointRecord, key, lock=True)
    return found[0] if found else None


def all(connection: Connection) -> list[EndpointRecord]:
    """Every endpoint, by name."""
    return rows.select_records(connection, ENDPOINTS, EndpointRecord, order=[ENDPOINTS.c.key])


def update(connection: Connection, record: EndpointRecord) -> bool:
    """Write all of `record` over what is stored; False where the endpoint is gone.

    Hazard: read what you change in the same transaction, by `get_for_update`, or a change made in
    between is lost.
    """
    key = ENDPOINTS.c.key == rows.name_key(record.name)
    return rows.update_where(connection, ENDPOINTS, record, key)


def delete(connection: Connection, name: str) -> bool:
    """Drop the endpoint of that name; False where there is none. Its instances stay."""
    return rows.delete_where(connection, ENDPOINTS, ENDPOINTS.c.key == rows.name_key(name))


def list_page(connection: Connection, query: ListQuery) -> tuple[list[EndpointRecord], str | None]:
    """One page and the next page's token; raises Invalid on a bad token."""
    return page(connection, ENDPOINTS, EndpointRecord, query)
