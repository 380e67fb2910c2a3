"""The messages between control and the runner of a transform job, as lines of JSON."""

import msgspec

from sagehen.frame.container_relay import RelayNodes

__all__ = [
    "Capture",
    "Done",
    "FailedObject",
    "InstanceAddress",
    "Instances",
    "Progress",
    "RunnerEnded",
    "RunnerLog",
    "RunnerSettings",
    "RunnerSpec",
    "S3Access",
    "Stop",
]


class S3Access(msgspec.Struct, frozen=True, kw_only=True):
    """Where the runner finds S3: the server's own, over HTTP, whatever store is behind it."""

    address: str
    """`unix:/path` of control's socket, or `tcp:host:port` of a gateway from another machine"""
    access_key: str
    secret_key: str
    region: str

    def __repr__(self) -> str:
        return f"S3Access(address={self.address!r}, access_key={self.access_key!r}, …)"


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True, tag="settings"):
    """As resolved from the job, the container's answer to `/execution-parameters`, and defaults.

    The next runner of the job gets them again: batches must begin and end at the same records.
    """

    max_concurrent: int
    max_payload_mb: int
    batch_strategy: str
    """`MultiRecord` or `SingleRecord`"""


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """DataCaptureConfig of a transform job."""

    uri: str
    generate_inference_id: bool = False


class RunnerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A transform job, as control tells a new runner first."""

    job_id: str
    """32 hexadecimal digits; the owner of its multipart uploads"""
    job_name: str
    job_arn: str
    s3: S3Access
    started_at: float
    """of the job, not of this runner; seconds since the epoch"""
    input_type: str
    """`S3Prefix` or `ManifestFile`"""
    input_uri: str
    output_uri: str
    content_type: str | None = None
    accept: str | None = None
    compression: str = "None"
    """`None` or `Gzip`"""
    split_type: str = "None"
    """`None`, `Line`, `RecordIO` or `TFRecord`"""
    assemble_with: str = "None"
    """`None` or `Line`"""
    batch_strategy: str | None = None
    """`MultiRecord` or `SingleRecord`; None: as the container says"""
    max_concurrent: int | None = None
    """requests at once, for each instance; None or 0: as the container says"""
    max_payload_mb: int | None = None
    """0: whole objects are streamed; None: as the container says"""
    timeout_seconds: float = 600
    max_retries: int = 3
    input_filter: str = "$"
    output_filter: str = "$"
    join_source: str = "None"
    """`None` or `Input`"""
    capture: Capture | None = None
    options: dict[str, str] = {}
    """variables of the job whose names begin with SAGEHEN_TRANSFORM_, without that"""
    done_through: str | None = None
    """every object up to this key is finished, of those of the input in the order of keys"""
    done: tuple[str, ...] = ()
    """keys of finished objects behind `done_through`"""
    failed: tuple[str, ...] = ()
    """keys of finished objects without output, with `capture`"""
    failed_error: str | None = None
    """the first of their errors: `ClientError` or `AlgorithmError`"""
    done_records: int = 0
    """of all messages `done` so far"""
    failed_records: int = 0
    """of all messages `done` so far"""
    settings: RunnerSettings | None = None
    """as an earlier runner has told them"""


class InstanceAddress(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: str
    address: str
    """as of `RelayConnector`; of the first container"""
    containers: tuple[str, ...] = ()
    """addresses of all containers of a pipeline, in order; empty with one container"""


class Instances(msgspec.Struct, frozen=True, kw_only=True, tag="instances"):
    """All instances that are ready now."""

    instances: tuple[InstanceAddress, ...]
    nodes: RelayNodes | None = None
    """by which instances of other machines are reached; None on one machine"""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """The job is to be stopped: nothing more is uploaded."""


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """Objects that are finished since the last message of this kind: their outputs are uploaded."""

    keys: tuple[str, ...]
    records: int
    """of these objects, with `failed_records`"""
    input_bytes: int
    failed_records: int = 0
    """of these objects, tolerated"""
    through: str | None = None
    """every object up to this key is finished, with those of this message and failed ones before
    it; None: as before"""


class FailedObject(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """An object without output. It counts as finished: other objects go on."""

    key: str
    error: str
    """`ClientError` or `AlgorithmError`"""
    message: str
    """for the data-log, behind `[sagemaker logs]: <bucket>/<key>: `; more lines may follow as
    `RunnerLog`"""


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """Counts of this runner and those before it, a few times a second."""

    objects: int
    """finished"""
    objects_known: int
    is_listed: bool
    """False: the listing goes on, and there may be more"""
    records: int
    """answered, also of objects that are not finished"""
    input_bytes: int
    """answered, also within objects that are neither gzip nor Parquet"""
    input_bytes_known: int


class RunnerLog(msgspec.Struct, frozen=True, kw_only=True, tag="data_log"):
    """A line of the stream `…/data-log`, which control begins with the time and a colon:
    `<time>:[sagemaker logs]: MaxConcurrentTransforms=1, …`."""

    instance_id: str | None
    line: str
    """begins with `[sagemaker logs]: `"""


class RunnerEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The runner's last message: everything is done, or nothing more can be."""

    error: str | None = None
    """`ClientError`, `AlgorithmError` or `InternalServerError`; None: no object of the job failed,
    not even with an earlier runner"""
    message: str = ""
    """for FailureReason, if it says more than SageMaker's sentence"""
