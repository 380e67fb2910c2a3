"""DescribeTrainingJob: what was given, SageMaker's defaults, and the times of an ended job."""

from datetime import UTC, datetime

from sagehen.frame.job_specs import JobMetric
from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.training.description import describe, summarize
from sagehen.services.sagemaker.training.records import SecondaryStatus, Transition
from support.training_jobs import BEGAN, waiting_job


def time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_defaults_are_filled_in_and_unset_members_left_out() -> None:
    described = describe(waiting_job())
    assert described["EnableManagedSpotTraining"] is False
    assert described["OutputDataConfig"] == {
        "KmsKeyId": "",
        "CompressionType": "GZIP",
        "S3OutputPath": "s3://bucket/out/",
    }
    assert described["SecondaryStatusTransitions"] == [
        {"Status": "Starting", "StartTime": time(BEGAN), "StatusMessage": ""}
    ]
    assert not {"InputDataConfig", "FailureReason", "TrainingTimeInSeconds"} & described.keys()


def test_what_was_given_is_described() -> None:
    channel = {"ChannelName": "train", "CompressionType": "Gzip"}
    described = describe(
        waiting_job(HyperParameters={"a": "1"}, InputDataConfig=[channel], Unknown="dropped")
    )
    assert described["HyperParameters"] == {"a": "1"}
    assert described["InputDataConfig"] == [{**channel, "RecordWrapperType": "None"}]
    assert "Unknown" not in described


def test_an_uncompressed_model_is_a_folder() -> None:
    output = {"S3OutputPath": "s3://bucket/out", "CompressionType": "NONE"}
    plain = describe(waiting_job(OutputDataConfig=output))["ModelArtifacts"]
    assert plain["S3ModelArtifacts"].endswith("/output/model/")
    packed = describe(waiting_job())["ModelArtifacts"]
    assert packed["S3ModelArtifacts"].endswith("/output/model.tar.gz")


def test_an_ended_job_has_its_times_and_metrics() -> None:
    record = waiting_job(
        status=JobStatus.COMPLETED,
        transitions=(Transition(status=SecondaryStatus.COMPLETED, started_at=BEGAN + 9),),
        started_at=BEGAN + 1,
        ended_at=BEGAN + 9,
        run_seconds=0.2,
        metrics=(JobMetric(name="loss", value=0.5, at=BEGAN + 2),),
    )
    described = describe(record)
    assert described["BillableTimeInSeconds"] == 1, "SageMaker's minimum"
    assert described["TrainingEndTime"] == time(BEGAN + 9)
    assert described["FinalMetricDataList"] == [
        {"MetricName": "loss", "Value": 0.5, "Timestamp": time(BEGAN + 2)}
    ]


def test_a_summary_has_the_statuses() -> None:
    summary = summarize(waiting_job())
    assert (summary["TrainingJobStatus"], summary["SecondaryStatus"]) == ("InProgress", "Starting")
    assert "TrainingEndTime" not in summary
