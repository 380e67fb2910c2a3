"""Secrets that all homes on one state in PostgreSQL have in common: the access key, the token, the
key that signs messages.

The first home's are stored in the state; the others adopt them at their start. They are not
encrypted: whoever reads the state reads every job and small object in it, and whoever writes to it
has control run any program, so another secret that opens these would protect nothing.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Column, LargeBinary, String, Table, select

from sagehen.base.credentials import write_secret
from sagehen.base.errors import HomeError
from sagehen.state.database import Database
from sagehen.state.rows import METADATA, upsert

__all__ = ["SHARED_SECRETS", "share_secret"]

log = logging.getLogger(__name__)

SHARED_SECRETS = Table(
    "shared_secrets",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

REPLACED_SUFFIX = ".replaced"


def share_secret(database: Database, name: str, path: Path, make: Callable[[Path], object]) -> bool:
    """Brings the file in agreement with the state; `make` makes a missing one. Blocks.

    Returns whether the home had another secret, which is kept aside. Raises HomeError.
    """
    if not database.is_shared:
        make(path)
        return False
    stored = _stored(database, name)
    own = _read(path) if path.exists() else None
    if stored is None:
        make(path)
        stored = _store(database, name, _read(path))
    if own == stored:
        return False
    if own is not None:
        aside = path.with_name(path.name + REPLACED_SUFFIX)
        os.replace(path, aside)
        extra = {"action": "share_secret", "file": str(path), "kept": str(aside)}
        log.warning("The state has another %s, which this home now uses too.", name, extra=extra)
    write_secret(path, stored)
    return own is not None


def _stored(database: Database, name: str) -> bytes | None:
    with database.read() as connection:
        value = connection.scalar(
            select(SHARED_SECRETS.c.value).where(SHARED_SECRETS.c.name == name)
        )
    return None if value is None else bytes(value)


def _store(database: Database, name: str, value: bytes) -> bytes:
    """Stores `value` unless another home was faster; returns what is stored."""
    with database.write() as connection:
        statement = upsert(connection, SHARED_SECRETS).values(name=name, value=value)
        connection.execute(statement.on_conflict_do_nothing())
    stored = _stored(database, name)
    return value if stored is None else stored


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HomeError(f"{path} cannot be read ({error.strerror}).") from error
