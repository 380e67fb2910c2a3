"""CreateTrainingJob: the row it makes."""

import pytest

from sagehen.frame import tags
from sagehen.services.sagemaker.job_tables import JobStage
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.records import SecondaryStatus
from sagehen.wire.errors import AwsError

ARN = "arn:aws:sagemaker:us-east-1:000000000000:training-job/"


def stored(server, name="job"):
    with server.database.read() as connection:
        return training_jobs.get(connection, name)


def channel(name="train", **source):
    s3 = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/many/", **source}
    return {"ChannelName": name, "DataSource": {"S3DataSource": s3}}


def test_a_job_is_a_row_that_waits_to_be_begun(server, request_of):
    given = request_of("My-Job", Tags=[{"Key": "a", "Value": "b"}])
    assert server.CreateTrainingJob(**given) == {"TrainingJobArn": ARN + "my-job"}
    job = stored(server, "my-job")
    assert (job.name, job.stage, job.secondary) == (
        "My-Job",
        JobStage.WAITING,
        SecondaryStatus.STARTING,
    )
    assert "Tags" not in job.definition
    with server.database.read() as connection:
        assert tags.get(connection, job.arn) == {"a": "b"}


def test_listeners_hear_of_it(server, request_of):
    heard = []
    server.database.listen(training_jobs.JOBS_CHANGED, heard.append)
    server.CreateTrainingJob(**request_of())
    assert heard == [""]


def test_beyond_the_room_there_is_jobs_are_pending(server, request_of):
    server.configure(max_running_jobs=2)
    for name in ("a", "b", "c"):
        server.CreateTrainingJob(**request_of(name))
    status = [stored(server, name).secondary for name in ("a", "b", "c")]
    assert status == [SecondaryStatus.STARTING] * 2 + [SecondaryStatus.PENDING]


def test_only_so_many_may_wait(server, request_of):
    server.configure(max_running_jobs=1, max_waiting_jobs=2)
    for name in ("a", "b"):
        server.CreateTrainingJob(**request_of(name))
    with pytest.raises(AwsError) as refused:
        server.CreateTrainingJob(**request_of("c"))
    assert refused.value.code == "ResourceLimitExceeded"
    assert stored(server, "c") is None


def test_a_name_is_taken_in_whatever_case(server, request_of):
    server.CreateTrainingJob(**request_of("Same"))
    with pytest.raises(AwsError) as refused:
        server.CreateTrainingJob(**request_of("sAME", Tags=[{"Key": "a", "Value": "b"}]))
    assert refused.value.code == "ResourceInUse"
    assert refused.value.message == (
        "Training job names must be unique within an AWS account and region, and a training job "
        f"with this name already exists ({ARN}same)"
    )
    with server.database.read() as connection:
        assert tags.get(connection, ARN + "same") == {}


def test_how_long_it_may_run_and_wait(server, request_of):
    server.CreateTrainingJob(**request_of(StoppingCondition=None))
    job = stored(server)
    assert (job.max_runtime_seconds, job.gives_up_at) == (86_400, None)
    stopping = {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 90}
    given = request_of("spot", StoppingCondition=stopping, EnableManagedSpotTraining=True)
    server.CreateTrainingJob(**given)
    assert stored(server, "spot").gives_up_at == server.clock.now() + 90
    stopping = {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 7200}
    server.CreateTrainingJob(**request_of("patient", StoppingCondition=stopping))
    assert stored(server, "patient").gives_up_at == server.clock.now() + 7200


RUNS = {"TrainingInputMode": "File", "ContainerEntrypoint": ["true"]}
RESOURCES = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}


def test_all_that_is_only_told_again(server, request_of):
    members = {
        "InputDataConfig": [channel(), channel("one", S3Uri="s3://bucket/model.tar.gz")],
        "CheckpointConfig": {"S3Uri": "s3://bucket/c", "LocalPath": "/opt/ml/checkpoints/"},
        "ResourceConfig": {**RESOURCES, "KeepAlivePeriodInSeconds": 60, "VolumeKmsKeyId": "k"},
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "EnableInterContainerTrafficEncryption": True,
        "DebugHookConfig": {"S3OutputPath": "s3://bucket/d"},
        "ProfilerConfig": {"DisableProfiler": True},
        "ExperimentConfig": {"ExperimentName": "e"},
        "RemoteDebugConfig": {"EnableRemoteDebug": True},
    }
    server.CreateTrainingJob(**request_of(**members))
    kept = stored(server).definition
    assert {member: kept[member] for member in members} == members
