"""The settings of invocations, instances, artifacts, asynchronous endpoints, scaling, training and
transform jobs."""

import os
from typing import Literal

from pydantic import Field

from sagehen.base.settings.section import ImageRule, Items, Section

__all__ = [
    "ArtifactSettings",
    "AsynchronousSettings",
    "ConnectionSettings",
    "InstanceSettings",
    "InvocationSettings",
    "ScalingSettings",
    "TrainingSettings",
    "TransformSettings",
]


class InvocationSettings(Section):
    """Invocations."""

    invocation_timeout_seconds: float = Field(
        60, gt=0, description="How long a container may take to answer."
    )
    response_stream_timeout_seconds: float = Field(
        480,
        gt=0,
        description="How long a streamed answer may take after its first byte.",
    )
    drain_timeout_seconds: float | None = Field(
        None,
        ge=0,
        description="How long an instance that leaves its endpoint, by scaling or by an update, "
        "goes on for the invocations that it has; new ones go to others. Default: the longest that "
        "one can take, invocation_timeout_seconds and response_stream_timeout_seconds together.",
    )
    max_invocation_body_bytes: int = Field(
        25 * 2**20, gt=0, description="Largest InvokeEndpoint body."
    )
    max_pipeline_body_bytes: int = Field(
        5 * 2**20,
        gt=0,
        description="Largest answer of a pipeline's container that is passed to the next.",
    )
    max_queued_invocations: int = Field(
        10_000,
        gt=0,
        description="Requests one gateway holds at once, waiting ones too; more get 503.",
    )
    max_held_body_bytes: int = Field(
        2**30,
        gt=0,
        description="Bodies one gateway holds at once, of all requests together; more get 503.",
    )
    max_held_control_body_bytes: int = Field(
        2**28,
        gt=0,
        description="Bodies that the process behind the gateways holds at once, of all requests "
        "that are not invocations or S3's; more get 503. Half of it at most are bodies of requests "
        "to inference services without API keys.",
    )
    max_shadow_copies: int = Field(
        1000,
        gt=0,
        description="Copies that one gateway holds for one shadow variant; more are dropped.",
    )
    max_shadow_body_bytes: int = Field(
        2**28, gt=0, description="Bodies of those copies together; further copies are dropped."
    )
    access_log: bool = Field(
        False, description="A line in the gateway's log at the end of each invocation."
    )

    @property
    def drain_seconds(self) -> float:
        """The longest time that an instance goes on after it has left the routes."""
        if self.drain_timeout_seconds is not None:
            return self.drain_timeout_seconds
        return self.invocation_timeout_seconds + self.response_stream_timeout_seconds


class ConnectionSettings(Section):
    """Clients' connections."""

    max_connections: int = Field(
        16_384,
        gt=0,
        description="Clients connected to one gateway at once, and fewer where it may open few "
        "files, as each may take four. For one more, the connection that has been idle the longest "
        "is closed; where none is idle it gets 503.",
    )
    max_head_bytes: int = Field(
        64 * 1024,
        ge=4096,
        description="Largest head of a request: its line and header fields; larger gets 431.",
    )
    head_timeout_seconds: float = Field(
        20,
        gt=0,
        description="How long a request's head may take to arrive; then the request gets 408.",
    )
    stall_timeout_seconds: float = Field(
        120,
        gt=0,
        description="How long a client may send nothing of a body it has begun, or take nothing "
        "of its answer, before it is cut off.",
    )
    idle_timeout_seconds: float = Field(
        300, gt=0, description="How long a connection is kept between requests."
    )


class InstanceSettings(Section):
    """Instances and their containers."""

    launcher: Literal["process", "docker"] = Field(
        "process",
        description="How images are run: `process` starts Sagehen's own model server, or a command "
        "of `images`, as a process; `docker` runs the image itself with the "
        "[Docker Engine](../howto/docker.md).",
    )
    images: dict[str, ImageRule] = Field(
        default_factory=dict,
        description="By image name or pattern: a command of your own, as a list, that is run as a "
        "process; or the text `docker` or `process`, which overrides `launcher`.",
    )
    image_versions: Literal["installed", "match"] = Field(
        "installed",
        description="`installed`: AWS's images run with the libraries of this server's Python, "
        "whatever version their tag names; each difference is logged. `match`: they run with the "
        "versions that the tag names, in cached environments that are downloaded once; unknown "
        "tags are refused.",
    )
    strict_capacity: bool = Field(
        False, description="Refuse endpoints that ask for more than this machine has."
    )
    max_endpoint_instances: int = Field(
        100, gt=0, description="Instances of all endpoints together; more are refused."
    )
    instance_limits: bool = Field(
        True,
        description="Limit instances to the memory and vCPUs of their type, where this machine has "
        "as much, and to max_instance_processes.",
    )
    instance_memory_bytes: int | None = Field(
        None,
        ge=2**20,
        description="Memory of an instance; default: its type's. Never more than the machine's.",
    )
    max_instance_processes: int = Field(
        4096, gt=0, description="Processes and threads that an instance may have."
    )
    gpus: Literal["auto", "require", "unmanaged"] = Field(
        "auto",
        description="GPUs of instances of GPU types. `auto`: as many as the type has, or as the "
        "machine has where those are fewer; without a GPU, on the CPU. `require`: exactly as many, "
        "or the instance fails with SageMaker's capacity error. `unmanaged`: GPUs are not counted, "
        "and every container sees all of them.",
    )
    gpu_devices: Items = Field(
        (),
        description="GPUs that instances may have, by nvidia-smi's index or by UUID; default: all.",
    )
    cgroups: bool = Field(
        True,
        description="Put containers into cgroups (version 2) where this server may create them.",
    )
    mount_opt_ml: bool = Field(
        True,
        description="Give containers a file system view of their own, where the kernel allows it: "
        "/opt/ml, /tmp, /run and /etc of their own, and nothing of the home. Off, containers share "
        "all files and processes with this machine.",
    )
    shared_folders: Items = Field(
        (),
        description="Folders of this machine that containers see at their paths though they lie in "
        "/tmp, /run or another folder that containers have of their own: one text with commas, or "
        "a list. What a command names by its whole path is seen, read-only, without this.",
    )
    container_processes: Literal["own", "machine"] = Field(
        "own",
        description="own: a container sees and reaches only its own processes, where the kernel "
        "allows it; machine: all of this machine's.",
    )
    container_network: Literal["own", "machine"] = Field(
        "own",
        description="own: a command of `images` gets a network of its own, where the kernel allows "
        "it, in which it listens on port 8080 whatever other containers do; machine: containers "
        "share this machine's network, and each has another port.",
    )
    network_isolation: Literal["required", "where_possible"] = Field(
        "required",
        description="Where the kernel does not allow containers without a network, models and jobs "
        "with EnableNetworkIsolation are refused; where_possible: they run with this machine's.",
    )
    container_log_bytes: int = Field(
        10 * 2**20, gt=0, description="Size at which a container's log is rotated (one old kept)."
    )


class ArtifactSettings(Section):
    """Model artifacts and packages."""

    max_artifact_bytes: int = Field(
        100 * 2**30, gt=0, description="The most an archive may unpack to."
    )
    artifact_cache_bytes: int = Field(
        20 * 2**30, ge=0, description="Disk for unpacked artifacts that are not in use."
    )
    environment_cache_bytes: int = Field(
        10 * 2**30,
        gt=0,
        description="Disk for packages of requirements.txt files that are not in use.",
    )
    model_memory_share: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Share of an instance type's memory that a multi-model container may fill.",
    )
    model_load_timeout_seconds: float = Field(
        360,
        gt=0,
        description="How long a model of a multi-model endpoint may take to be fetched and loaded; "
        "its callers wait as long as for an invocation.",
    )


class AsynchronousSettings(Section):
    """Asynchronous endpoints."""

    async_concurrency: int = Field(
        4,
        ge=1,
        le=1000,
        description="Asynchronous requests that an instance works on at once where the endpoint "
        "config has no MaxConcurrentInvocationsPerInstance; fewer where its container takes fewer.",
    )
    max_async_in_flight: int = Field(
        512,
        gt=0,
        description="Asynchronous requests of all endpoints that are worked on at once; more wait "
        "in the queue.",
    )
    max_async_input_bytes: int = Field(
        2**30, gt=0, description="Largest input of an asynchronous request."
    )
    max_async_response_bytes: int = Field(
        2**30, gt=0, description="Largest answer to an asynchronous request."
    )
    max_async_redeliveries: int = Field(
        2,
        ge=0,
        description="How often an asynchronous request is sent again after its instance was lost.",
    )
    async_store_patience_seconds: float = Field(
        300,
        gt=0,
        description="How long the input or the output location of an asynchronous request may be "
        "unreachable before the request fails.",
    )
    async_history_seconds: float = Field(
        7 * 24 * 3600,
        gt=0,
        description="How long ended asynchronous requests can be shown and redriven.",
    )
    topics_required: bool = Field(
        True,
        description="Fail an asynchronous endpoint whose topic does not exist; else only log it.",
    )


class TrainingSettings(Section):
    """Training jobs."""

    max_running_jobs: int | None = Field(
        None,
        ge=1,
        description="Training jobs that run at once; more wait, the oldest first. Default: one "
        "per core, at least two.",
    )
    max_waiting_jobs: int = Field(
        10_000, ge=1, description="Training jobs that wait to run; more are refused."
    )
    max_job_instances: int = Field(
        20, ge=1, description="Instances of one training job; more are refused."
    )
    max_job_restarts: int = Field(
        3,
        ge=0,
        description="How often a training job is restarted after its agent was lost. A job's "
        "RetryStrategy takes precedence, and spot jobs are restarted as often as needed.",
    )
    job_gpu_patience_seconds: float = Field(
        24 * 3600,
        ge=0,
        description="How long a training job waits for GPUs that others hold; then it fails with "
        "SageMaker's capacity error.",
    )
    job_patience_seconds: float = Field(
        3600,
        gt=0,
        description="How long the object store may be unreachable for a training job's inputs and "
        "outputs before the attempt is lost.",
    )
    job_stop_patience_seconds: float = Field(
        120,
        ge=0,
        description="How long the object store may be unreachable for the outputs of a training "
        "job that was stopped or interrupted; then the outputs are lost.",
    )
    max_job_logs: int = Field(
        1000,
        gt=0,
        description="Training jobs whose logs are kept: those that were written last.",
    )

    @property
    def running_jobs(self) -> int:
        """Training jobs that run at once."""
        return self.max_running_jobs or max(2, len(os.sched_getaffinity(0)))


class TransformSettings(Section):
    """Transform jobs."""

    max_running_transform_jobs: int = Field(
        4, ge=1, description="Transform jobs that run at once; more wait, the oldest first."
    )
    max_waiting_transform_jobs: int = Field(
        10_000, ge=1, description="Transform jobs that wait to run; more are refused."
    )
    max_transform_instances: int = Field(
        20, ge=1, description="Instances of one transform job; more are refused."
    )
    transform_runner_memory_bytes: int = Field(
        4 * 2**30,
        ge=2**28,
        description="Memory of the process that feeds one transform job; a job that needs more "
        "fails.",
    )
    max_transform_logs: int = Field(
        1000,
        gt=0,
        description="Transform jobs whose logs are kept: those that were written last.",
    )


class ScalingSettings(Section):
    """Application Auto Scaling."""

    target_tracking_scale_in_seconds: int = Field(
        900,
        ge=60,
        description="How long a metric must be low before a target tracking policy scales in: the "
        "periods of the alarms that it creates. SageMaker waits for 15 minutes.",
    )
