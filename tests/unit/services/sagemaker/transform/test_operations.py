"""Describing, listing and stopping transform jobs; their tags and events."""

from datetime import UTC, datetime

import pytest

from sagehen.services.messaging.events import event_store
from sagehen.services.sagemaker.job_tables import JobStage
from sagehen.services.sagemaker.transform import creation, operations
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.status import complete, fail, start
from sagehen.wire.errors import AwsError
from support.transform_jobs import transform_input, transform_request

ARN = "arn:aws:sagemaker:us-east-1:000000000000:transform-job/"


@pytest.fixture
def jobs(server):
    """`jobs(name, Member=…)` creates a job of the model `m`."""
    server.model()

    def create(name="job", **members):
        server.CreateTransformJob(**transform_request(name, **members))

    return create


@pytest.fixture
def events(monkeypatch):
    noted = []

    def note(connection, event):
        noted.append(event)
        return event_store.put_event(connection, event)

    for module in (creation, operations):
        monkeypatch.setattr(module, "put_event", note)
    return noted


def change(server, act, name="job"):
    with server.database.write() as connection:
        job = transform_jobs.get_for_update(connection, name)
        transform_jobs.save(connection, act(job))


def test_a_description_has_the_defaults_that_were_not_given(server, jobs):
    jobs("My-Job")
    described = server.DescribeTransformJob(TransformJobName="my-job")
    given = transform_request("My-Job")
    assert described == {
        "TransformJobName": "My-Job",
        "TransformJobArn": ARN + "my-job",
        "TransformJobStatus": "InProgress",
        "ModelName": "m",
        "CreationTime": datetime.fromtimestamp(server.clock.now(), UTC),
        "TransformInput": {
            **given["TransformInput"],
            "CompressionType": "None",
            "SplitType": "None",
        },
        "TransformOutput": {
            **given["TransformOutput"],
            "AssembleWith": "None",
            "KmsKeyId": "",
        },
        "TransformResources": given["TransformResources"],
        "DataProcessing": {"InputFilter": "$", "OutputFilter": "$", "JoinSource": "None"},
    }


def test_what_was_given_is_described_as_it_is(server, jobs):
    given = {
        "MaxConcurrentTransforms": 0,
        "MaxPayloadInMB": 1,
        "BatchStrategy": "SingleRecord",
        "Environment": {},
        "ModelClientConfig": {"InvocationsMaxRetries": 0},
        "ExperimentConfig": {"ExperimentName": "e"},
        "DataCaptureConfig": {"DestinationS3Uri": "s3://bucket/c", "GenerateInferenceId": True},
        "TransformOutput": {
            "S3OutputPath": "s3://bucket/out",
            "Accept": "text/csv",
            "AssembleWith": "Line",
            "KmsKeyId": "k",
        },
    }
    jobs(**given, TransformInput=transform_input(SplitType="Line", ContentType="text/csv"))
    described = server.DescribeTransformJob(TransformJobName="job")
    assert {member: described[member] for member in given} == given
    assert described["TransformInput"]["SplitType"] == "Line"


def test_an_ended_job_has_its_times_and_reason(server, jobs):
    jobs()
    now = server.clock.now()
    change(server, lambda job: fail(start(job, now + 1), "ClientError: x" * 200, now + 2))
    described = server.DescribeTransformJob(TransformJobName="job")
    assert described["TransformJobStatus"] == "Failed"
    assert len(described["FailureReason"]) == 1024
    assert described["TransformStartTime"].timestamp() == now + 1
    assert described["TransformEndTime"].timestamp() == now + 2


def test_lists_are_newest_first_and_filtered(server, jobs):
    for name in ("a1", "b1", "a2"):
        jobs(name)
        server.clock.seconds += 10
    change(server, lambda job: complete(job, server.clock.now()), "b1")

    def names(**params):
        answer = server.ListTransformJobs(**params)
        return [job["TransformJobName"] for job in answer["TransformJobSummaries"]]

    assert names() == ["a2", "b1", "a1"]
    assert names(NameContains="a", SortOrder="Ascending") == ["a1", "a2"]
    assert names(StatusEquals="Completed") == ["b1"]
    assert names(SortBy="Name", SortOrder="Ascending", MaxResults=2) == ["a1", "a2"]
    page = server.ListTransformJobs(MaxResults=1)
    assert page["NextToken"]
    assert page["TransformJobSummaries"][0]["LastModifiedTime"]


def test_a_job_is_asked_to_stop_once(server, jobs, events, refusal):
    jobs()
    server.StopTransformJob(TransformJobName="job")
    server.StopTransformJob(TransformJobName="job")
    described = server.DescribeTransformJob(TransformJobName="job")
    assert described["TransformJobStatus"] == "Stopping"
    with server.database.read() as connection:
        # The reconciler ends a job that waited, too.
        assert transform_jobs.get(connection, "job").stage is JobStage.ACTIVE
    assert [event.detail["TransformJobStatus"] for event in events] == ["InProgress", "Stopping"]
    change(server, lambda job: complete(job, server.clock.now()))
    assert "Completed" in refusal(lambda: server.StopTransformJob(TransformJobName="job"))


@pytest.mark.parametrize("operation", ["DescribeTransformJob", "StopTransformJob"])
def test_a_job_that_is_not_there(server, operation):
    with pytest.raises(AwsError, match="with name: none") as refused:
        getattr(server, operation)(TransformJobName="none")
    assert refused.value.code == "ValidationException"


def test_an_event_mirrors_the_description(server, jobs, events):
    jobs(Tags=[{"Key": "team", "Value": "a"}])
    (event,) = events
    assert event.detail_type == "SageMaker Transform Job State Change"
    assert event.source == "aws.sagemaker"
    assert event.resources == (ARN + "job",)
    assert event.detail["Tags"] == {"team": "a"}
    assert event.detail["CreationTime"] == str(round(server.clock.now() * 1000))
    assert event.detail["DataProcessing"]["JoinSource"] == "None"


def test_a_job_can_be_tagged(server, jobs):
    jobs()
    server.AddTags(ResourceArn=ARN + "job", Tags=[{"Key": "a", "Value": "b"}])
    assert server.ListTags(ResourceArn=ARN + "job")["Tags"] == [{"Key": "a", "Value": "b"}]
