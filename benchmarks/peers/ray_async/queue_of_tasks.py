"""The queue's settings for both sides. Its adapter is Celery's, which acknowledges late."""

from queue_client import BROKER, RESULTS
from ray.serve.schema import CeleryAdapterConfig, TaskProcessorConfig

CONFIG = TaskProcessorConfig(
    queue_name="echoes",
    adapter_config=CeleryAdapterConfig(broker_url=BROKER, backend_url=RESULTS),
)
