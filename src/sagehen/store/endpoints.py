"""The endpoints: what serves and what is to serve, one row each. Their instances stay elsewhere."""

from sqlalchemy import JSON, Column, Double, String, Table, Text

from sagehen.domain.records import EndpointRecord
from sagehen.store.named import Named
from sagehen.store.tables import METADATA

__all__ = ["ENDPOINTS", "all", "delete", "get", "get_for_update", "insert", "list_page", "update"]

ENDPOINTS = Named(
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
