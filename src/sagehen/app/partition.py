"""Reads the partition of a state's ARNs, which later versions must keep."""

from sqlalchemy import Connection, select

from sagehen.frame.tags import TAGS
from sagehen.services.messaging.events.tables import CONNECTIONS, DESTINATIONS, RULES
from sagehen.services.messaging.tables import TOPICS
from sagehen.services.sagemaker.hosting.endpoint_config_store import ENDPOINT_CONFIGS
from sagehen.services.sagemaker.hosting.endpoint_store import ENDPOINTS
from sagehen.services.sagemaker.hosting.model_store import MODELS
from sagehen.services.sagemaker.training.store import TRAINING_JOBS

__all__ = ["kept_partition"]

_TABLES = (
    *(one.table for one in (MODELS, ENDPOINT_CONFIGS, ENDPOINTS, TRAINING_JOBS)),
    *(TOPICS, RULES, CONNECTIONS, DESTINATIONS, TAGS),
)


def kept_partition(connection: Connection, region: str) -> str | None:
    """Returns None if the region has no ARNs; older versions always used `aws`."""
    for table in _TABLES:
        of_region = table.c.arn.like(f"arn:%:%:{region}:%")
        arn = connection.execute(select(table.c.arn).where(of_region).limit(1)).scalar()
        if arn is not None:
            return str(arn).split(":", 2)[1]
    return None
