"""The table of instances: desired ones, with their last reported state."""

from collections.abc import Collection

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Double,
    String,
    Table,
    Text,
    bindparam,
    func,
    select,
)

from sagehen.base.errors import AlreadyExists
from sagehen.frame.container_specs import InstanceState
from sagehen.services.sagemaker.hosting.records import InstanceRecord
from sagehen.state import rows
from sagehen.state.rows import METADATA

__all__ = [
    "INSTANCES",
    "all",
    "count_serving",
    "delete",
    "insert",
    "of_endpoint",
    "of_endpoints",
    "update",
]

INSTANCES = Table(
    "instances",
    METADATA,
    Column("instance_id", String(64), primary_key=True),
    Column("endpoint_name", String(63), nullable=False, index=True),
    Column("deployment_id", String(64), nullable=False),
    Column("variant_name", String(63), nullable=False),
    Column("spec", JSON(none_as_null=True), nullable=False),
    Column("state", String(32), nullable=False),
    Column("address", Text),
    Column("failure_reason", Text),
    Column("stop_at", Double),
)


def insert(connection: Connection, record: InstanceRecord) -> None:
    """Raises AlreadyExists."""
    if not rows.insert_new(connection, INSTANCES, record):
        raise AlreadyExists(f"There is an instance {record.instance_id} already.")


def update(connection: Connection, record: InstanceRecord) -> bool:
    """Returns False if the instance is gone."""
    same = INSTANCES.c.instance_id == record.instance_id
    return rows.update_where(connection, INSTANCES, record, same)


def delete(connection: Connection, instance_id: str) -> bool:
    return rows.delete_where(connection, INSTANCES, INSTANCES.c.instance_id == instance_id)


def all(connection: Connection) -> list[InstanceRecord]:
    order = [INSTANCES.c.instance_id]
    return rows.select_records(connection, INSTANCES, InstanceRecord, order=order)


def of_endpoint(connection: Connection, endpoint_name: str) -> list[InstanceRecord]:
    """Finds instances by the endpoint's name in its own case."""
    where = INSTANCES.c.endpoint_name == endpoint_name
    order = [INSTANCES.c.instance_id]
    return rows.select_records(connection, INSTANCES, InstanceRecord, where, order=order)


def of_endpoints(connection: Connection, endpoint_names: Collection[str]) -> list[InstanceRecord]:
    """Like `of_endpoint`, for a few hundred endpoints at most."""
    where = INSTANCES.c.endpoint_name.in_(list(endpoint_names))
    order = [INSTANCES.c.instance_id]
    return rows.select_records(connection, INSTANCES, InstanceRecord, where, order=order)


# Built once, as it runs each minute for each alarm of a scaled variant.
_COUNT_SERVING = select(func.count()).where(
    INSTANCES.c.endpoint_name == bindparam("of_endpoint"),
    INSTANCES.c.deployment_id == bindparam("of_deployment"),
    INSTANCES.c.variant_name == bindparam("of_variant"),
    INSTANCES.c.state == InstanceState.IN_SERVICE.value,
    INSTANCES.c.stop_at.is_(None),
)


def count_serving(
    connection: Connection, endpoint_name: str, deployment_id: str, variant_name: str
) -> int:
    values = {
        "of_endpoint": endpoint_name,
        "of_deployment": deployment_id,
        "of_variant": variant_name,
    }
    return connection.scalar(_COUNT_SERVING, values) or 0
