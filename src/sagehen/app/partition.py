"""The partition of the ARNs in a state: a home keeps its ARNs, whatever later versions make."""

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
    """The partition in the ARNs that the state has of a region; None where it has none of it.

    Until partitions were known, all ARNs were made with `aws`.
    """
    for table in _TABLES:
        of_region = table.c.arn.like(f"arn:%:%:{region}:%")
        arn = connection.execute(select(table.c.arn).where(of_region).limit(1)).scalar()
        if arn is not None:
            return str(arn).split(":", 2)[1]
    return None
