"""Prometheus metrics of transform jobs."""

from sagehen.base.metrics import METRICS
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.transform.job_records import TransformProgress
from sagehen.services.sagemaker.transform.metrics import measure_jobs
from support.transform_jobs import active_transform

WAITING = (JobStatus.IN_PROGRESS, JobStage.WAITING)
ACTIVE = (JobStatus.IN_PROGRESS, JobStage.ACTIVE)


def test_jobs_and_their_progress_are_measured():
    progress = TransformProgress(job_id="idjob", objects=3, failed_objects=1, input_bytes=7)
    measured = measure_jobs({WAITING: 2, ACTIVE: 1}, [(active_transform(), progress)], 4)
    assert measured["TransformJobs"] == {("InProgress",): 3}
    assert measured["PendingTransformJobs"] == {(): 2}
    assert measured["TransformRunnerRestarts"] == {(): 4}
    assert measured["TransformObjects"] == {("job",): 3}
    assert measured["TransformObjectsFailed"] == {("job",): 1}
    assert measured["TransformInputBytes"] == {("job",): 7}


def test_each_is_a_metric_with_its_dimensions():
    measured = measure_jobs({ACTIVE: 1}, [(active_transform(), TransformProgress(job_id="i"))], 0)
    for name, values in measured.items():
        assert {len(key) for key in values} == {len(METRICS[name].dimensions)}
