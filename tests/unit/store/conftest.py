"""All tables."""

import pytest
from sqlalchemy import MetaData

from sagehen.store import (  # noqa: F401 — each adds its tables to METADATA
    async_tables,
    endpoint_configs,
    endpoints,
    event_tables,
    inference_tables,
    instances,
    leases,
    models,
    object_rows,
    sample_tables,
    stacks,
    tags,
    topic_tables,
    training_jobs,
)
from sagehen.store.tables import METADATA


@pytest.fixture
def metadata() -> MetaData:
    """Every table that the code knows."""
    return METADATA
