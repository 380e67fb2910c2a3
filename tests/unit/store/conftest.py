"""A state of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import MetaData

from sagehen.store import (  # noqa: F401 — each adds its tables to METADATA
    endpoint_configs,
    endpoints,
    instances,
    leases,
    models,
    object_rows,
    tags,
)
from sagehen.store.database import Database
from sagehen.store.migrate import upgrade
from sagehen.store.tables import METADATA


@pytest.fixture(scope="session")
def empty_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("empty") / "state.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def database(empty_state: Path, tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "state.db"
    path.write_bytes(empty_state.read_bytes())
    database = Database(f"sqlite:///{path}")
    yield database
    database.close()


@pytest.fixture
def metadata() -> MetaData:
    """Every table that the code knows."""
    return METADATA
