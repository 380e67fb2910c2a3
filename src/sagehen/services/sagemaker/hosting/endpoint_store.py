"""The table of endpoints."""

from collections.abc import Collection

from sqlalchemy import JSON, Column, Connection, Double, String, Table, Text, select

from sagehen.frame.named_records import NamedTable
from sagehen.services.sagemaker.hosting.records import EndpointRecord
from sagehen.state.rows import METADATA, name_key, select_records

__all__ = [
    "ENDPOINTS",
    "all",
    "delete",
    "first_variant",
    "get",
    "get_for_update",
    "insert",
    "list_page",
    "several",
    "update",
    "versions",
]

Version = tuple[float, str]
"""when an endpoint was modified, and its status: every operation that writes one changes it"""

ENDPOINTS = NamedTable(
    Table(
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
        Column("running", JSON(none_as_null=True)),
    ),
    EndpointRecord,
)

insert = ENDPOINTS.insert
get = ENDPOINTS.get
get_for_update = ENDPOINTS.get_for_update
all = ENDPOINTS.all
update = ENDPOINTS.update
delete = ENDPOINTS.delete
list_page = ENDPOINTS.list_page


def first_variant(connection: Connection, name: str) -> str | None:
    """Returns None if the endpoint does not serve."""
    endpoint = get(connection, name)
    if endpoint is None or endpoint.current is None:
        return None
    return endpoint.current.variants[0].name


_VERSIONS = select(*(ENDPOINTS.table.c[name] for name in ("name", "modified_at", "status")))


def versions(connection: Connection) -> dict[str, Version]:
    """Returns the version of each endpoint by name: for a thousand, in a hundredth of the time that
    reading them takes."""
    rows = connection.execute(_VERSIONS)
    return {name: (modified_at, status) for name, modified_at, status in rows}


def several(connection: Connection, names: Collection[str]) -> list[EndpointRecord]:
    """Returns those that there are, of a few hundred names at most."""
    keys = [name_key(name) for name in names]
    table = ENDPOINTS.table
    return select_records(connection, table, EndpointRecord, table.c.key.in_(keys))
