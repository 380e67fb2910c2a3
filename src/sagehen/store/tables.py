"""The one MetaData that every table of the state belongs to; each family of tables has a module."""

from sqlalchemy import MetaData

__all__ = ["METADATA"]

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
