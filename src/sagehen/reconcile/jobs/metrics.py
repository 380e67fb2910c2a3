"""The metrics that a job's log told, as CloudWatch's."""

from sqlalchemy import Connection

from sagehen.domain.series import Series
from sagehen.domain.statistics import Statistics, of_values
from sagehen.domain.training import TrainingJobRecord
from sagehen.metrics import JOB_HOST
from sagehen.store import samples

__all__ = ["add_metrics"]


def add_metrics(
    connection: Connection,
    before: TrainingJobRecord,
    after: TrainingJobRecord,
    most_series: int,
) -> None:
    """Keep the values that are new in `after`, in the transaction that writes it."""
    batch: dict[tuple[Series, int], Statistics] = {}
    for metric in set(after.metrics) - set(before.metrics):
        series = Series(JOB_HOST, metric.name, (("TrainingJobName", after.name),))
        one = of_values({metric.value: 1})
        batch.setdefault((series, int(metric.at // 60)), Statistics()).merge(one)
    if batch:
        samples.add(connection, batch, most_series)
