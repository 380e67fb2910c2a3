"""The metrics of instances' and job hosts' usage, training jobs, the inference service and the
object store."""

from sagehen.base.metrics.metric import HOST, JOB_HOST, OWN, Metric, MetricKind

__all__ = ["HOSTS", "INFERENCE_SERVICE", "JOB_HOSTS", "OBJECTS", "TRAINING"]

_INSTANCE = ("endpoint", "variant", "instance")


def _share(name: str, exposed_as: str, help: str) -> Metric:
    return Metric(name, exposed_as, MetricKind.GAUGE, "Percent", help, _INSTANCE, HOST)


HOSTS = (
    _share(
        "CPUUtilization",
        "sagehen_cpu_utilization_percent",
        "CPU time that an instance used; 100 is one core.",
    ),
    _share(
        "MemoryUtilization",
        "sagehen_memory_utilization_percent",
        "Memory of an instance's processes, as a share of its limit.",
    ),
    _share(
        "DiskUtilization",
        "sagehen_disk_utilization_percent",
        "Used share of the disk that the home is on.",
    ),
    _share(
        "GPUUtilization",
        "sagehen_gpu_utilization_percent",
        "Utilization of an instance's GPUs by all their processes; 100 is one GPU.",
    ),
    _share(
        "GPUMemoryUtilization",
        "sagehen_gpu_memory_utilization_percent",
        "Used memory of an instance's GPUs by all their processes; 100 is one GPU.",
    ),
)


def _share_of_job(name: str, help: str) -> Metric:
    return Metric(
        "Job" + name,
        None,
        MetricKind.GAUGE,
        "Percent",
        help,
        ("host",),
        JOB_HOST,
        published_as=name,
    )


JOB_HOSTS = (
    _share_of_job("CPUUtilization", "CPU time that a host of a job used; 100 is one core."),
    _share_of_job(
        "MemoryUtilization", "Memory of the processes of a job's host, as a share of its limit."
    ),
    _share_of_job("DiskUtilization", "Used share of the disk that the home is on."),
    _share_of_job("GPUUtilization", "Utilization of the GPUs of a job's host; 100 is one GPU."),
    _share_of_job(
        "GPUMemoryUtilization", "Used memory of the GPUs of a job's host; 100 is one GPU."
    ),
)
"""SageMaker's names with the prefix `Job`; hosts are `<job>/algo-<n>`"""


TRAINING = (
    Metric(
        "TrainingJobs",
        "sagehen_training_jobs",
        MetricKind.GAUGE,
        "Count",
        "Training jobs that have not ended, by TrainingJobStatus.",
        ("status",),
        OWN,
    ),
    Metric(
        "PendingTrainingJobs",
        "sagehen_training_jobs_pending",
        MetricKind.GAUGE,
        "Count",
        "Training jobs that wait to run.",
        (),
        OWN,
    ),
    Metric(
        "RunningTrainingJobs",
        "sagehen_training_jobs_running",
        MetricKind.GAUGE,
        "Count",
        "Training jobs that are assigned to an agent.",
        (),
        OWN,
    ),
    Metric(
        "TrainingJobRestarts",
        "sagehen_training_job_restarts",
        MetricKind.COUNTER,
        "Count",
        "Attempts at training jobs that were lost and started again, by cause: Interrupted for "
        "spot jobs, or Restarting.",
        ("cause",),
        OWN,
    ),
)


INFERENCE_SERVICE = (
    Metric(
        "InferenceRequests",
        "sagehen_inference_requests",
        MetricKind.COUNTER,
        "Count",
        "Requests to the Async-Inference-Service, by outcome: Accepted, Queued, "
        "Malformed, Unsupported, Full, KeyReused, Failed, Forbidden.",
        ("stage", "type", "outcome"),
        OWN,
    ),
)


OBJECTS = (
    Metric(
        "ObjectFilesThrownAway",
        "sagehen_object_files_thrown_away",
        MetricKind.COUNTER,
        "Count",
        "Object files that the state does not name and that were moved to the trash.",
        (),
        OWN,
    ),
    Metric(
        "ObjectFilesInTrash",
        "sagehen_object_files_in_trash",
        MetricKind.GAUGE,
        "Count",
        "Files in the trash of the object store, as of its last sweep.",
        (),
        OWN,
    ),
)
