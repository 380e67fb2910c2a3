"""The table of endpoints."""

from sqlalchemy import JSON, Column, Connection, Double, String, Table, Text

from sagehen.frame.named_records import NamedTable
from sagehen.services.sagemaker.hosting.records import EndpointRecord
from sagehen.state.rows import METADATA

__all__ = [
    "ENDPOINTS",
    "all",
    "delete",
    "first_variant",
    "get",
    "get_for_update",
    "insert",
    "list_page",
    "update",
]

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
