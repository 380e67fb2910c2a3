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
        "Time of the processor that an instance used; 100 is one core.",
    ),
    _share(
        "MemoryUtilization",
        "sagehen_memory_utilization_percent",
        "Memory that an instance's processes hold, of what it may have.",
    ),
    _share(
        "DiskUtilization",
        "sagehen_disk_utilization_percent",
        "What is used of the disk that the home is on.",
    ),
)


def _share_of_job(name: str, help: str) -> Metric:
    return Metric(
        "Job" + name, None, MetricKind.GAUGE, "Percent", help, ("host",), JOB_HOST, told_as=name
    )


JOB_HOSTS = (
    _share_of_job(
        "CPUUtilization", "Time of the processor that a host of a job used; 100 is one core."
    ),
    _share_of_job(
        "MemoryUtilization", "Memory that the processes of a job's host hold, of what it may have."
    ),
    _share_of_job("DiskUtilization", "What is used of the disk that the home is on."),
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
        "Training jobs that wait for room.",
        (),
        OWN,
    ),
    Metric(
        "RunningTrainingJobs",
        "sagehen_training_jobs_running",
        MetricKind.GAUGE,
        "Count",
        "Training jobs that an agent has, or is to have.",
        (),
        OWN,
    ),
    Metric(
        "TrainingJobRestarts",
        "sagehen_training_job_restarts",
        MetricKind.COUNTER,
        "Count",
        "Attempts at training jobs that came to nothing and were begun again: Interrupted, where "
        "they were spot jobs, or Restarting.",
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
        "Requests to the Async-Inference-Service, by what became of them: Accepted, Queued, "
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
        "Files of objects that the state does not know, and that were moved to the trash.",
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
