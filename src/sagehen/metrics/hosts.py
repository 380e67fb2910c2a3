"""How much instances, and the hosts of training jobs, use of what they may."""

from sagehen.metrics.metric import HOST, JOB_HOST, Kind, Metric

__all__ = ["HOSTS", "JOB_HOSTS"]

_INSTANCE = ("endpoint", "variant", "instance")


def _share(name: str, exposed_as: str, help: str) -> Metric:
    return Metric(name, exposed_as, Kind.GAUGE, "Percent", help, _INSTANCE, HOST)


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
        "Job" + name, None, Kind.GAUGE, "Percent", help, ("host",), JOB_HOST, told_as=name
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
"""By the name of SageMaker's with `Job` before it; the host is `<job>/algo-<n>`."""
