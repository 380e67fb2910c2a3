"""How much instances use of what they may."""

from sagehen.metrics.metric import HOST, Kind, Metric

__all__ = ["HOSTS"]

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
