"""The rows of nodes, and of the cluster that they make up."""

from collections.abc import Iterable

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Integer,
    String,
    Table,
    Text,
    false,
    select,
    update,
)

from sagehen.placement.records import NodeRecord
from sagehen.state.rows import METADATA, delete_where, select_records, upsert

__all__ = [
    "CLUSTER",
    "NODES",
    "authority_of",
    "forget",
    "list_nodes",
    "note_seen",
    "put",
    "set_draining",
    "set_leaving",
    "set_serving",
]

NODES = Table(
    "nodes",
    METADATA,
    Column("node_id", String(40), primary_key=True),
    Column("agent_address", String(300), nullable=False),
    Column("peer_address", String(300), nullable=False),
    Column("gateway_address", String(300), nullable=False),
    Column("resources", JSON, nullable=False),
    Column("has_control", Boolean, nullable=False),
    Column("is_draining", Boolean, nullable=False),
    Column("ray_id", String(64), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("is_leaving", Boolean, nullable=False, server_default=false()),
    Column("version", String(40), nullable=False, server_default=""),
)

CLUSTER = Table(
    "cluster",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("authority", Text, nullable=False),
)
"""one row, once the state belongs to a cluster: the certificate of its authority"""


def list_nodes(connection: Connection) -> list[NodeRecord]:
    return select_records(connection, NODES, NodeRecord, order=[NODES.c.node_id])


def put(connection: Connection, record: NodeRecord) -> None:
    """Inserts a node, or replaces it: it stays drained, until an operator undoes it."""
    values = msgspec.to_builtins(record)
    statement = upsert(connection, NODES).values(**values)
    kept = {name: value for name, value in values.items() if name != "is_draining"}
    connection.execute(statement.on_conflict_do_update(index_elements=[NODES.c.node_id], set_=kept))


def set_draining(connection: Connection, node_id: str) -> bool:
    """Returns False for an unknown node."""
    return _change(connection, node_id, is_draining=True)


def set_leaving(connection: Connection, node_id: str) -> bool:
    """Notes that a node's server stops. Returns False for an unknown node."""
    return _change(connection, node_id, is_leaving=True)


def set_serving(connection: Connection, node_id: str) -> bool:
    """Undoes both. Returns False for an unknown node."""
    return _change(connection, node_id, is_draining=False, is_leaving=False)


def _change(connection: Connection, node_id: str, **values: bool) -> bool:
    statement = update(NODES).where(NODES.c.node_id == node_id).values(**values)
    return connection.execute(statement).rowcount == 1


def note_seen(connection: Connection, node_ids: Iterable[str], epoch: int, now: float) -> None:
    seen = NODES.c.node_id.in_(list(node_ids))
    # A later leader's epoch stays: this control may have been stopped for a while.
    statement = update(NODES).where(seen, NODES.c.epoch <= epoch)
    connection.execute(statement.values(epoch=epoch, seen_at=now))


def raise_epochs(connection: Connection, epoch: int) -> None:
    """Writes the epoch of a new leader, by which all controls ask the nodes from now on."""
    connection.execute(update(NODES).where(NODES.c.epoch < epoch).values(epoch=epoch))


def forget(connection: Connection, node_id: str) -> bool:
    return delete_where(connection, NODES, NODES.c.node_id == node_id)


def authority_of(connection: Connection, certificate: str) -> str:
    """Returns the certificate of the cluster's authority; it becomes `certificate` where there is
    none yet."""
    statement = upsert(connection, CLUSTER).values(id=1, authority=certificate)
    connection.execute(statement.on_conflict_do_nothing())
    return str(connection.execute(select(CLUSTER.c.authority)).scalar_one())
