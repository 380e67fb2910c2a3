"""What a training job's attempt is to run: said by control, done by the agent, reported back."""

from enum import StrEnum

import msgspec

__all__ = [
    "ChannelSpec",
    "CheckpointSpec",
    "JobList",
    "JobMetric",
    "JobOutcome",
    "JobPhase",
    "JobReport",
    "JobSpec",
    "MetricDefinition",
    "PhaseChange",
    "StopRequest",
]


class ChannelSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One channel of InputDataConfig; the defaults are SageMaker's."""

    name: str
    s3_uri: str
    data_type: str = "S3Prefix"
    """`S3Prefix`, `ManifestFile` or `AugmentedManifestFile`."""
    distribution: str = "FullyReplicated"
    """`FullyReplicated` or `ShardedByS3Key`."""
    input_mode: str = "File"
    """`File` or `FastFile`."""
    content_type: str | None = None
    compression: str = "None"
    """`None` or `Gzip`."""
    record_wrapper: str = "None"
    shuffle_seed: int | None = None
    attribute_names: tuple[str, ...] = ()


class CheckpointSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where checkpoints are kept while no attempt runs."""

    s3_uri: str
    local_path: str = "/opt/ml/checkpoints"


class MetricDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A number to be found in the log: the first group of `regex`."""

    name: str
    regex: str


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at a training job. Each attempt has an id, and all of it stays as it is."""

    attempt_id: str
    """Letters, digits and hyphens; what the agent calls it."""
    job_name: str
    job_arn: str
    image: str
    instance_type: str
    instance_count: int = 1
    volume_gb: int = 30
    """The most that a host's files may take, inputs and outputs together."""
    entrypoint: tuple[str, ...] = ()
    """ContainerEntrypoint; empty: what the image stands for."""
    arguments: tuple[str, ...] = ()
    hyperparameters: dict[str, str] = {}
    environment: dict[str, str] = {}
    channels: tuple[ChannelSpec, ...] = ()
    output_uri: str
    """`S3OutputPath`; what is written goes to `<output_uri>/<job_name>/output/`."""
    compress_output: bool = True
    """False: the files one by one (CompressionType NONE)."""
    checkpoint: CheckpointSpec | None = None
    metric_definitions: tuple[MetricDefinition, ...] = ()
    network_isolation: bool = False
    """The container gets no credentials, and is not to see those of the home."""
    runtime_seconds: float
    """How long it may run from when its code starts; then it is stopped: MAX_RUNTIME."""
    stop_grace_seconds: float = 120
    """From SIGTERM to SIGKILL."""


class JobPhase(StrEnum):
    """What an attempt does now, by SageMaker's SecondaryStatus."""

    STARTING = "Starting"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    """Its code runs."""
    UPLOADING = "Uploading"


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True):
    phase: JobPhase
    at: float
    """Seconds since the epoch, as every `_at`."""


class JobOutcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    """By its own or its caller's fault; another attempt would fail too."""
    STOPPED = "Stopped"
    """It was told to, and what it had written is uploaded."""
    MAX_RUNTIME = "MaxRuntimeExceeded"
    """It ran for `runtime_seconds`, and what it had written is uploaded."""
    INTERRUPTED = "Interrupted"
    """Its capacity was taken back: checkpoints are saved, nothing else."""
    LOST = "Lost"
    """By our fault (the disk, the object store): InternalServerError; another may succeed."""


class JobMetric(msgspec.Struct, frozen=True, kw_only=True):
    """The last value of a metric that the log told."""

    name: str
    value: float
    at: float


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as its agent sees it."""

    attempt_id: str
    phases: tuple[PhaseChange, ...] = ()
    """All that it has been through, the last is now."""
    outcome: JobOutcome | None = None
    """None while it goes on."""
    ended_at: float | None = None
    running_seconds: float = 0
    """How long its code has run, by a clock that does not jump; set with `outcome`."""
    exit_code: int | None = None
    failure_reason: str | None = None
    """SageMaker's sentence, at most 1,024 characters; set with FAILED and LOST."""
    metrics: tuple[JobMetric, ...] = ()
    stopping: bool = False
    """It has been told to end."""
    artifacts: tuple[str, ...] = ()
    """What was uploaded below `<output_uri>/<job_name>/output/`: `model.tar.gz`, `output.tar.gz`,
    or `model/`, `data/` where they are not compressed; nothing where the folder was empty."""


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt is to end: STOPPED, or INTERRUPTED."""

    outcome: JobOutcome = JobOutcome.STOPPED
    grace_seconds: float | None = None
    """From SIGTERM to SIGKILL; None: as its spec says."""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent answers when asked for its jobs."""

    version: int
    """Grows with every change of any report; starts anew, higher, with each agent."""
    jobs: tuple[JobReport, ...]
