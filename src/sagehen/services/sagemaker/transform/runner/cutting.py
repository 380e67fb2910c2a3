"""How the objects of a job are cut."""

from collections.abc import Callable

from sagehen.services.sagemaker.transform.format_options import read_format_options
from sagehen.services.sagemaker.transform.records.batches import Cutter
from sagehen.services.sagemaker.transform.records.cutting import make_cutter
from sagehen.services.sagemaker.transform.runner_messages import RunnerSettings, RunnerSpec

__all__ = ["cutter_maker", "payload_bytes"]

MAX_PAYLOAD_MB = 100
"""SageMaker's; also for MaxPayloadInMB 0 where an object is not streamed, but cut"""


def payload_bytes(settings: RunnerSettings) -> int:
    """Returns the most bytes of a request."""
    return (settings.max_payload_mb or MAX_PAYLOAD_MB) * 2**20


def cutter_maker(spec: RunnerSpec, settings: RunnerSettings) -> Callable[[], Cutter]:
    """Returns what makes a cutter for each object. Raises Invalid."""
    options = read_format_options(spec.options)

    def make() -> Cutter:
        return make_cutter(
            spec.split_type,
            settings.batch_strategy,
            payload_bytes(settings),
            spec.content_type,
            csv_quoted_newlines=options.csv_quoted_newlines,
        )

    make()  # refuses now what it cannot cut
    return make
