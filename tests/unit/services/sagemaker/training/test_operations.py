"""The operations on training jobs that there are: described, listed, stopped, updated, deleted."""

from datetime import UTC, datetime

import msgspec
import pytest

from sagehen.base.home import Home
from sagehen.frame import tags
from sagehen.frame.job_specs import JobMetric
from sagehen.services.monitoring.logs.groups import TRAINING_JOBS, find_group, find_stream
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.records import SecondaryStatus
from sagehen.services.sagemaker.training.status import JobUpdate
from sagehen.wire.errors import AwsError

ARN = "arn:aws:sagemaker:us-east-1:000000000000:training-job/"


def stored(server, name="job"):
    with server.database.read() as connection:
        return training_jobs.get(connection, name)


def change(server, act, name="job"):
    """What the loop does: `act` on the course of a job."""
    with server.database.write() as connection:
        course = JobUpdate(training_jobs.get_for_update(connection, name))
        act(course)
        training_jobs.save(connection, [course.record])
    return course.record


def finish(server, name="job", **changes):
    def act(course):
        course.note(**changes)
        course.end(SecondaryStatus.COMPLETED, server.clock.now())

    return change(server, act, name)


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def test_a_new_job_as_it_was_asked_for(server, request_of):
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/many/"}}
    given = request_of(
        "My-Job",
        InputDataConfig=[{"ChannelName": "train", "DataSource": source}],
        HyperParameters={"a": "1"},
    )
    server.CreateTrainingJob(**given)
    now = at(server.clock.now())
    assert server.DescribeTrainingJob(TrainingJobName="my-job") == {
        **given,
        "TrainingJobArn": ARN + "my-job",
        "AlgorithmSpecification": {
            "EnableSageMakerMetricsTimeSeries": False,
            **given["AlgorithmSpecification"],
        },
        "InputDataConfig": [
            {
                "ChannelName": "train",
                "DataSource": source,
                "CompressionType": "None",
                "RecordWrapperType": "None",
            }
        ],
        "OutputDataConfig": {
            "KmsKeyId": "",
            "S3OutputPath": "s3://bucket/out",
            "CompressionType": "GZIP",
        },
        "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/out/My-Job/output/model.tar.gz"},
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Starting",
        "SecondaryStatusTransitions": [
            {"Status": "Starting", "StartTime": now, "StatusMessage": "Starting the training job"}
        ],
        "CreationTime": now,
        "LastModifiedTime": now,
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
    }


def test_a_job_that_has_ended(server, request_of):
    output = {"S3OutputPath": "s3://bucket/out/", "CompressionType": "NONE"}
    server.CreateTrainingJob(**request_of(OutputDataConfig=output))
    began = server.clock.now()
    server.clock.seconds += 10
    metric = JobMetric(name="loss", value=0.5, at=began)
    finish(server, started_at=began + 4, run_seconds=5.4, metrics=(metric,))
    described = server.DescribeTrainingJob(TrainingJobName="job")
    assert described["TrainingJobStatus"] == "Completed"
    assert described["TrainingStartTime"] == at(began + 4)
    assert described["TrainingEndTime"] == at(began + 10)
    assert described["TrainingTimeInSeconds"] == described["BillableTimeInSeconds"] == 5
    assert described["FinalMetricDataList"] == [
        {"MetricName": "loss", "Value": 0.5, "Timestamp": at(began)}
    ]
    address = {"S3ModelArtifacts": "s3://bucket/out/job/output/model/"}
    assert described["ModelArtifacts"] == address


def test_the_least_that_is_billed_is_a_second_and_nothing_where_nothing_ran(server, request_of):
    server.CreateTrainingJob(**request_of("short"))
    finish(server, "short", started_at=server.clock.now(), run_seconds=0.01)
    assert server.DescribeTrainingJob(TrainingJobName="short")["BillableTimeInSeconds"] == 1
    server.CreateTrainingJob(**request_of("never"))
    finish(server, "never")
    assert "BillableTimeInSeconds" not in server.DescribeTrainingJob(TrainingJobName="never")


def test_a_page_has_as_many_as_there_are_of_that_status(server, request_of):
    server.configure(max_running_jobs=10)
    for name in ("a", "b", "c", "d"):
        server.CreateTrainingJob(**request_of(name))
        server.clock.seconds += 1
    finish(server, "a")
    finish(server, "d")
    page = server.ListTrainingJobs(StatusEquals="Completed", MaxResults=2)
    assert [one["TrainingJobName"] for one in page["TrainingJobSummaries"]] == ["a", "d"]
    assert "NextToken" not in page
    page = server.ListTrainingJobs(MaxResults=3)
    assert [one["TrainingJobName"] for one in page["TrainingJobSummaries"]] == ["a", "b", "c"]
    page = server.ListTrainingJobs(MaxResults=3, NextToken=page["NextToken"])
    assert [one["TrainingJobName"] for one in page["TrainingJobSummaries"]] == ["d"]
    plan = "arn:aws:sagemaker:us-east-1:000000000000:training-plan/p"
    assert server.ListTrainingJobs(TrainingPlanArnEquals=plan) == {"TrainingJobSummaries": []}


def test_a_job_that_waits_is_overdue_once_it_is_told_to_stop(server, request_of):
    server.CreateTrainingJob(**request_of())
    heard = []
    server.database.listen(training_jobs.JOBS_CHANGED, heard.append)
    server.StopTrainingJob(TrainingJobName="JOB")
    job = stored(server)
    assert (job.status, job.secondary) == (JobStatus.STOPPING, SecondaryStatus.STOPPING)
    with server.database.read() as connection:
        assert training_jobs.due(connection, server.clock.now(), 9) == [job]
    assert heard == [""]


def test_a_job_that_runs_is_to_be_stopped_once(server, request_of):
    server.CreateTrainingJob(**request_of())
    change(server, lambda course: course.note(stage=JobStage.ACTIVE, attempt=1))
    server.StopTrainingJob(TrainingJobName="job")
    job = stored(server)
    assert (job.stage, job.gives_up_at) == (JobStage.ACTIVE, None)
    server.clock.seconds += 5
    server.StopTrainingJob(TrainingJobName="job")
    assert stored(server) == job


def test_what_has_ended_cannot_be_stopped(server, request_of, refusal):
    server.CreateTrainingJob(**request_of())
    finish(server)
    said = "The request was rejected because the training job is in status Completed."
    assert refusal(lambda: server.StopTrainingJob(TrainingJobName="job")) == said
    assert refusal(lambda: server.UpdateTrainingJob(TrainingJobName="job")) == said


def test_only_what_has_ended_can_be_deleted(server, request_of):
    server.CreateTrainingJob(**request_of(Tags=[{"Key": "a", "Value": "b"}]))
    for status in (JobStatus.IN_PROGRESS, JobStatus.STOPPING):
        change(server, lambda course, to=status: course.note(status=to))
        with pytest.raises(AwsError) as refused:
            server.DeleteTrainingJob(TrainingJobName="job")
        assert refused.value.code == "ResourceInUse"
        assert f"is in status {status}" in refused.value.message
    finish(server)
    server.DeleteTrainingJob(TrainingJobName="job")
    assert stored(server) is None
    with server.database.read() as connection:
        assert tags.get(connection, ARN + "job") == {}


def test_a_new_job_does_not_begin_with_the_log_of_an_old_one_of_its_name(server, request_of):
    server.CreateTrainingJob(**request_of())
    log = Home(server.settings.home).job_log("job") / "algo-1.log"
    log.parent.mkdir(parents=True)
    log.write_text("old\n")
    finish(server)
    server.DeleteTrainingJob(TrainingJobName="job")
    server.CreateTrainingJob(**request_of())
    group = find_group(server.call(), {"logGroupName": TRAINING_JOBS})
    assert group.streams("job/") == []
    (kept,) = group.streams()
    assert find_stream(group, kept.name).path.read_text() == "old\n"


def test_an_update_changes_what_it_names(server, request_of):
    server.CreateTrainingJob(**request_of(ProfilerConfig={"DisableProfiler": True}))
    before = stored(server)
    server.clock.seconds += 5
    answer = server.UpdateTrainingJob(
        TrainingJobName="job",
        ResourceConfig={"KeepAlivePeriodInSeconds": 60},
        ProfilerRuleConfigurations=[],
    )
    assert answer == {"TrainingJobArn": ARN + "job"}
    after = stored(server)
    assert after.modified_at == before.modified_at + 5
    resources = {**before.definition["ResourceConfig"], "KeepAlivePeriodInSeconds": 60}
    expected = {"ResourceConfig": resources, "ProfilerRuleConfigurations": []}
    assert after.definition == before.definition | expected
    assert after == msgspec.structs.replace(
        before, definition=after.definition, modified_at=after.modified_at
    )


@pytest.mark.parametrize("operation", ["Describe", "Stop", "Update", "Delete"])
def test_one_that_is_not_there(server, operation):
    with pytest.raises(AwsError) as refused:
        getattr(server, f"{operation}TrainingJob")(TrainingJobName="nowhere")
    code = "ResourceNotFound" if operation == "Delete" else "ValidationException"
    assert (refused.value.code, refused.value.message) == (code, "Requested resource not found.")


def test_tags_of_a_job(server, request_of):
    arn = server.CreateTrainingJob(**request_of())["TrainingJobArn"]
    server.AddTags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    assert server.ListTags(ResourceArn=arn)["Tags"] == [{"Key": "a", "Value": "b"}]
