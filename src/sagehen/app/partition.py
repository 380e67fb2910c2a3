"""Reads the partition of a state's ARNs, which later versions must keep."""

from sqlalchemy import Connection, select

from sagehen.frame.tags import TAGS
from sagehen.services.messaging.events.resource_store import CONNECTIONS, DESTINATIONS
from sagehen.services.messaging.events.rule_store import RULES
from sagehen.services.messaging.sns.topic_store import TOPICS
from sagehen.services.sagemaker.hosting.definition_store import endpoint_configs, models
from sagehen.services.sagemaker.hosting.endpoint_store import ENDPOINTS
from sagehen.services.sagemaker.training.store import TRAINING_JOBS

__all__ = ["stored_partition"]

_TABLES = (
    *(records.table for records in (models, endpoint_configs, ENDPOINTS, TRAINING_JOBS)),
    *(TOPICS, RULES, CONNECTIONS, DESTINATIONS, TAGS),
)


def stored_partition(connection: Connection, region: str) -> str | None:
    """Returns None if the region has no ARNs; older versions always used `aws`."""
    for table in _TABLES:
        of_region = table.c.arn.like(f"arn:%:%:{region}:%")
        arn = connection.execute(select(table.c.arn).where(of_region).limit(1)).scalar()
        if arn is not None:
            return str(arn).split(":", 2)[1]
    return None
