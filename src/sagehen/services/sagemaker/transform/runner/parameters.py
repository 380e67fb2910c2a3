"""MaxConcurrentTransforms, MaxPayloadInMB and BatchStrategy: of the job, else of the container."""

import msgspec

from sagehen.base.errors import Unavailable
from sagehen.http1.call import LocalAnswer, call_once
from sagehen.http1.pool import Connector, open_connection
from sagehen.services.sagemaker.transform.runner_messages import RunnerSettings, RunnerSpec

__all__ = ["DEFAULTS", "ContainerParameters", "describe", "read_parameters", "request", "resolve"]

TIMEOUT_SECONDS = 30.0
MAX_CONCURRENT = 1000
"""requests at once that a container may ask for"""
MAX_PAYLOAD_MB = 100
"""of one request, and of all requests of a job at once to one instance; also for MaxPayloadInMB 0
where an object is not streamed, but cut"""
DEFAULTS = RunnerSettings(max_concurrent=1, max_payload_mb=6, batch_strategy="MultiRecord")
_STRATEGIES = {"MULTI_RECORD": "MultiRecord", "SINGLE_RECORD": "SingleRecord"}
_SPELLINGS = {strategy: word for word, strategy in _STRATEGIES.items()}


class ContainerParameters(msgspec.Struct, frozen=True, kw_only=True):
    """A container's answer to `/execution-parameters`; None where a value is not usable."""

    max_concurrent: int | None = None
    max_payload_mb: int | None = None
    batch_strategy: str | None = None


async def request(address: str, connector: Connector = open_connection) -> ContainerParameters:
    """Raises Unavailable."""
    answer = await call_once(
        address,
        "GET",
        "/execution-parameters",
        timeout_seconds=TIMEOUT_SECONDS,
        connector=connector,
    )
    if answer.status == 503 and "x-sagehen-not-started" in answer.headers:
        raise Unavailable("The container takes no requests now.")
    return read_parameters(answer)


def read_parameters(answer: LocalAnswer) -> ContainerParameters:
    """Most containers have no such path, and answer 404 or anything else."""
    if answer.status != 200:
        return ContainerParameters()
    try:
        fields = msgspec.json.decode(answer.body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ContainerParameters()
    strategy = fields.get("BatchStrategy")
    return ContainerParameters(
        max_concurrent=_number(fields.get("MaxConcurrentTransforms"), 1, MAX_CONCURRENT),
        max_payload_mb=_number(fields.get("MaxPayloadInMB"), 0, MAX_PAYLOAD_MB),
        batch_strategy=_STRATEGIES.get(strategy) if isinstance(strategy, str) else None,
    )


def resolve(spec: RunnerSpec, container: ContainerParameters) -> RunnerSettings:
    """The job's own come first, then the container's, then SageMaker's defaults."""
    return RunnerSettings(
        max_concurrent=spec.max_concurrent or container.max_concurrent or DEFAULTS.max_concurrent,
        max_payload_mb=_first(
            spec.max_payload_mb, container.max_payload_mb, DEFAULTS.max_payload_mb
        ),
        batch_strategy=spec.batch_strategy or container.batch_strategy or DEFAULTS.batch_strategy,
    )


def describe(settings: RunnerSettings) -> str:
    """Returns SageMaker's line of the data-log."""
    return (
        f"MaxConcurrentTransforms={settings.max_concurrent}, "
        f"MaxPayloadInMB={settings.max_payload_mb}, "
        f"BatchStrategy={_SPELLINGS[settings.batch_strategy]}"
    )


def _number(value: object, least: int, most: int) -> int | None:
    """Returns at most `most`; None for what is no number of at least `least`."""
    # Some containers write numbers as text.
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return min(value, most)
    return None


def _first(job: int | None, container: int | None, default: int) -> int:
    if job is not None:
        return job
    return container if container is not None else default
