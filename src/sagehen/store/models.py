"""The models: one row each."""

from sqlalchemy import JSON, Column, Connection, Double, String, Table

from sagehen.domain.records import ModelRecord
from sagehen.store import rows
from sagehen.store.listing import ListQuery, page
from sagehen.store.tables import METADATA

__all__ = ["MODELS", "delete", "get", "insert", "list_page"]

MODELS = Table(
    "models",
    METADATA,
    Column("key", String(63), primary_key=True),
    Column("name", String(63), nullable=False),
    Column("arn", String(256), nullable=False),
    Column("created_at", Double, nullable=False, index=True),
    Column("definition", JSON(none_as_null=True), nullable=False),
)


def insert(connection: Connection, record: ModelRecord) -> None:
    """Add a model; raises AlreadyExists."""
    rows.insert_named(connection, MODELS, record, record.name)


def get(connection: Connection, name: str) -> ModelRecord | None:
    """The model of that name, whatever its case."""
    found = rows.select_records(
        connection, MODELS, ModelRecord, MODELS.c.key == rows.name_key(name)
    )
    return found[0] if found else None


def delete(connection: Connection, name: str) -> bool:
    """Drop the model of that name; False where there is none."""
    return rows.delete_where(connection, MODELS, MODELS.c.key == rows.name_key(name))


def list_page(connection: Connection, query: ListQuery) -> tuple[list[ModelRecord], str | None]:
    """One page and the next page's token; raises Invalid on a bad token."""
    return page(connection, MODELS, ModelRecord, query)
