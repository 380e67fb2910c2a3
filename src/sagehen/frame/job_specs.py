"""Specs and reports of training job attempts, exchanged between control and agent."""

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
    """A channel of InputDataConfig, with SageMaker's defaults."""

    name: str
    s3_uri: str
    data_type: str = "S3Prefix"
    """`S3Prefix`, `ManifestFile` or `AugmentedManifestFile`"""
    distribution: str = "FullyReplicated"
    """`FullyReplicated` or `ShardedByS3Key`"""
    input_mode: str = "File"
    """`File` or `FastFile`"""
    content_type: str | None = None
    compression: str = "None"
    """`None` or `Gzip`"""
    record_wrapper: str = "None"
    shuffle_seed: int | None = None
    attribute_names: tuple[str, ...] = ()


class CheckpointSpec(msgspec.Struct, frozen=True, kw_only=True):
    s3_uri: str
    local_path: str = "/opt/ml/checkpoints"


class MetricDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that the first group of `regex` finds in the log."""

    name: str
    regex: str


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at a training job; never changes."""

    attempt_id: str
    """letters, digits and hyphens"""
    job_name: str
    job_arn: str
    image: str
    instance_type: str
    instance_count: int = 1
    volume_gb: int = 30
    """the most that a host's files may take, inputs and outputs together"""
    entrypoint: tuple[str, ...] = ()
    """ContainerEntrypoint; empty: the image's default"""
    arguments: tuple[str, ...] = ()
    hyperparameters: dict[str, str] = {}
    environment: dict[str, str] = {}
    channels: tuple[ChannelSpec, ...] = ()
    output_uri: str
    """`S3OutputPath`; outputs go to `<output_uri>/<job_name>/output/`"""
    compress_output: bool = True
    """False: separate files (CompressionType NONE)"""
    checkpoint: CheckpointSpec | None = None
    metric_definitions: tuple[MetricDefinition, ...] = ()
    network_isolation: bool = False
    """no credentials in the container, nor access to those of the home"""
    runtime_seconds: float
    """from the start of its code; then it is stopped with MAX_RUNTIME"""
    stop_grace_seconds: float = 120
    """from SIGTERM to SIGKILL"""


class JobPhase(StrEnum):
    """The phase of an attempt, named by SageMaker's SecondaryStatus."""

    STARTING = "Starting"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    """its code runs"""
    UPLOADING = "Uploading"


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True):
    phase: JobPhase
    at: float
    """seconds since the epoch, like every `_at`"""


class JobOutcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    """by its own or its caller's fault; another attempt would fail too"""
    STOPPED = "Stopped"
    """on request; its outputs are uploaded"""
    MAX_RUNTIME = "MaxRuntimeExceeded"
    """after `runtime_seconds`; its outputs are uploaded"""
    INTERRUPTED = "Interrupted"
    """capacity was taken back: only checkpoints are saved"""
    LOST = "Lost"
    """by our fault (disk, object store): InternalServerError; another attempt may succeed"""


class JobMetric(msgspec.Struct, frozen=True, kw_only=True):
    """The last logged value of a metric."""

    name: str
    value: float
    at: float


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's view of an attempt."""

    attempt_id: str
    phases: tuple[PhaseChange, ...] = ()
    """oldest first; the last is current"""
    outcome: JobOutcome | None = None
    ended_at: float | None = None
    running_seconds: float = 0
    """run time of its code by the monotonic clock; set with `outcome`"""
    exit_code: int | None = None
    failure_reason: str | None = None
    """SageMaker's sentence, at most 1,024 characters; set with FAILED and LOST"""
    metrics: tuple[JobMetric, ...] = ()
    stopping: bool = False
    waits_for_gpus: bool = False
    """the attempt leaves its place among the running jobs to others meanwhile"""
    artifacts: tuple[str, ...] = ()
    """uploaded: `model.tar.gz`, `output.tar.gz`, or uncompressed `model/`, `data/`; empty ones
    are left out"""


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ends an attempt as STOPPED or INTERRUPTED."""

    outcome: JobOutcome = JobOutcome.STOPPED
    grace_seconds: float | None = None
    """from SIGTERM to SIGKILL; None: as in its spec"""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    """grows with every change of a report, also across restarts of the agent"""
    jobs: tuple[JobReport, ...]
