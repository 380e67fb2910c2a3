"""The metrics of what instances and job hosts use, of jobs, the inference service and the object
store."""

from sagehen.base.metrics.metric import HOST, JOB_HOST, OWN, TRANSFORM_HOST, Metric, MetricKind

__all__ = ["HOSTS", "INFERENCE_SERVICE", "JOB_HOSTS", "OBJECTS", "TRAINING", "TRANSFORM"]

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


def _shares_of_hosts(prefix: str, host: str, namespace: str) -> tuple[Metric, ...]:
    """SageMaker's names with a prefix; the `Host` is `<job>/<host>`."""
    helps = {
        "CPUUtilization": f"CPU time that {host} used; 100 is one core.",
        "MemoryUtilization": f"Memory of the processes of {host}, as a share of its limit.",
        "DiskUtilization": "Used share of the disk that the home is on.",
        "GPUUtilization": f"Utilization of the GPUs of {host}; 100 is one GPU.",
        "GPUMemoryUtilization": f"Used memory of the GPUs of {host}; 100 is one GPU.",
    }
    return tuple(
        Metric(
            prefix + name,
            None,
            MetricKind.GAUGE,
            "Percent",
            help,
            ("host",),
            namespace,
            published_as=name,
        )
        for name, help in helps.items()
    )


JOB_HOSTS = (
    *_shares_of_hosts("Job", "a host of a training job", JOB_HOST),
    *_shares_of_hosts("Transform", "an instance of a transform job", TRANSFORM_HOST),
)


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


def _of_transforms(
    name: str,
    exposed_as: str,
    help: str,
    *dimensions: str,
    kind: MetricKind = MetricKind.GAUGE,
    unit: str = "Count",
) -> Metric:
    return Metric(name, exposed_as, kind, unit, help, dimensions, OWN)


TRANSFORM = (
    _of_transforms(
        "TransformJobs",
        "sagehen_transform_jobs",
        "Transform jobs that have not ended, by TransformJobStatus.",
        "status",
    ),
    _of_transforms(
        "PendingTransformJobs", "sagehen_transform_jobs_pending", "Transform jobs that wait to run."
    ),
    _of_transforms(
        "TransformObjects",
        "sagehen_transform_objects",
        "Finished input objects of a running transform job, also failed ones.",
        "job",
    ),
    _of_transforms(
        "TransformObjectsKnown",
        "sagehen_transform_objects_known",
        "Input objects of a running transform job that are listed.",
        "job",
    ),
    _of_transforms(
        "TransformObjectsFailed",
        "sagehen_transform_objects_failed",
        "Input objects of a running transform job that have no output.",
        "job",
    ),
    _of_transforms(
        "TransformRecords",
        "sagehen_transform_records",
        "Records of a running transform job that are answered.",
        "job",
    ),
    _of_transforms(
        "TransformRecordsFailed",
        "sagehen_transform_records_failed",
        "Tolerated records of a running transform job that have no answer.",
        "job",
    ),
    _of_transforms(
        "TransformInputBytes",
        "sagehen_transform_input_bytes",
        "Input of a running transform job that is answered.",
        "job",
        unit="Bytes",
    ),
    _of_transforms(
        "TransformInputBytesKnown",
        "sagehen_transform_input_bytes_known",
        "Input of a running transform job that is listed.",
        "job",
        unit="Bytes",
    ),
    _of_transforms(
        "TransformRunnerRestarts",
        "sagehen_transform_runner_restarts",
        "Runners of transform jobs that died and were started again.",
        kind=MetricKind.COUNTER,
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
