"""How the objects of a job are cut and processed."""

from collections.abc import Callable

from sagehen.services.sagemaker.transform.records.batches import Cutter
from sagehen.services.sagemaker.transform.records.cutting import make_cutter
from sagehen.services.sagemaker.transform.runner.batch_results import Processing
from sagehen.services.sagemaker.transform.runner.errors import JobError
from sagehen.services.sagemaker.transform.runner_messages import RunnerSettings, RunnerSpec

__all__ = ["cutter_maker", "make_processing", "payload_bytes", "takes_quoted_newlines"]

MAX_PAYLOAD_MB = 100
"""SageMaker's; also for MaxPayloadInMB 0 where an object is not streamed, but cut"""


def payload_bytes(settings: RunnerSettings) -> int:
    """Returns the most bytes of a request."""
    return (settings.max_payload_mb or MAX_PAYLOAD_MB) * 2**20


def takes_quoted_newlines(spec: RunnerSpec) -> bool:
    return spec.options.get("CSV_QUOTED_NEWLINES", "").strip().lower() in ("1", "true", "yes")


def cutter_maker(spec: RunnerSpec, settings: RunnerSettings) -> Callable[[], Cutter]:
    """Returns what makes a cutter for each object. Raises Invalid."""

    def make() -> Cutter:
        return make_cutter(
            spec.split_type,
            settings.batch_strategy,
            payload_bytes(settings),
            spec.content_type,
            csv_quoted_newlines=takes_quoted_newlines(spec),
        )

    make()  # refuses now what it cannot cut
    return make


def make_processing(spec: RunnerSpec) -> Processing | None:
    """Raises JobError."""
    has_ids = spec.capture is not None and spec.capture.generate_inference_id
    if (spec.input_filter, spec.output_filter, spec.join_source) != ("$", "$", "None") or has_ids:
        raise JobError("ClientError", "DataProcessing and GenerateInferenceId are not there yet.")
    return None
