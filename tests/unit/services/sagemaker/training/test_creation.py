"""CreateTrainingJob: the row it makes, and what it refuses."""

import pytest

from sagehen.frame import tags
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.records import JobStage, SecondaryStatus
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
IMAGE = {**RUNS, "TrainingImage": "model-a"}
RESOURCES = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
SPOT = {"EnableManagedSpotTraining": True}


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"AlgorithmSpecification": None}, "AlgorithmSpecification is required"),
        ({"AlgorithmSpecification": RUNS}, "exactly one of TrainingImage and AlgorithmName"),
        (
            {"AlgorithmSpecification": {**IMAGE, "AlgorithmName": "a"}},
            "exactly one of TrainingImage and AlgorithmName",
        ),
        (
            {"AlgorithmSpecification": {**RUNS, "AlgorithmName": "a"}},
            "Not implemented by Sagehen yet: algorithm resources",
        ),
        (
            {"AlgorithmSpecification": {**IMAGE, "TrainingInputMode": "Pipe"}},
            "Not implemented by Sagehen yet: Pipe mode",
        ),
        (
            {"AlgorithmSpecification": {"TrainingImage": "x", "TrainingInputMode": "File"}},
            "name it in the hyperparameter sagemaker_program",
        ),
        (
            {"AlgorithmSpecification": {"TrainingImage": "djl-x", "TrainingInputMode": "File"}},
            "The image djl-x runs DJL Serving",
        ),
        (
            {
                "AlgorithmSpecification": {
                    **IMAGE,
                    "MetricDefinitions": [{"Name": "loss", "Regex": "("}],
                }
            },
            "The Regex of the metric loss is no regular expression",
        ),
        (
            {
                "AlgorithmSpecification": {
                    **IMAGE,
                    "MetricDefinitions": [{"Name": "loss", "Regex": "loss=.*"}],
                }
            },
            "The Regex of the metric loss has no group",
        ),
        ({"ResourceConfig": None}, "ResourceConfig needs an InstanceType"),
        ({"ResourceConfig": {**RESOURCES, "InstanceCount": 0}}, "InstanceCount of at least 1"),
        ({"ResourceConfig": {**RESOURCES, "VolumeSizeInGB": 0}}, "VolumeSizeInGB must be at least"),
        (
            {"ResourceConfig": {**RESOURCES, "InstanceType": "ml.none.large"}},
            "The instance type 'ml.none.large' is not known",
        ),
        (
            {"ResourceConfig": {**RESOURCES, "TrainingPlanArn": "arn"}},
            "Not implemented by Sagehen yet: training plans",
        ),
        (
            {"StoppingCondition": {"MaxRuntimeInSeconds": 28 * 86_400 + 1}},
            "MaxRuntimeInSeconds may be 2419200 (28 days) at most",
        ),
        (SPOT, "Invalid MaxWaitTimeInSeconds. It must be present"),
        (
            {**SPOT, "StoppingCondition": {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 8}},
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal",
        ),
        (
            {**SPOT, "StoppingCondition": {"MaxWaitTimeInSeconds": 86_399}},
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal",
        ),
        (
            {"StoppingCondition": {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 10}},
            "It goes only with EnableManagedSpotTraining",
        ),
        ({"Environment": {"A": "x" * 33_000}}, "may take 32768 bytes together"),
        ({"CheckpointConfig": {"S3Uri": "s3://nowhere/x"}}, "there is no bucket nowhere"),
        (
            {"CheckpointConfig": {"S3Uri": "s3://bucket/x", "LocalPath": "/tmp/x"}},
            "The LocalPath of CheckpointConfig is '/tmp/x'",
        ),
        (
            {"CheckpointConfig": {"S3Uri": "s3://bucket/x", "LocalPath": "/opt/ml/a/../model"}},
            "It must be a folder of its own below /opt/ml/",
        ),
        ({"OutputDataConfig": {"S3OutputPath": "s3://nowhere/x"}}, "there is no bucket nowhere"),
        ({"OutputDataConfig": {"S3OutputPath": "s3://B_AD/x"}}, "is no place in S3"),
        ({"OutputDataConfig": {"S3OutputPath": ""}}, "is not the address of an object in S3"),
        ({"InputDataConfig": [channel(), channel()]}, "The channel train is in InputDataConfig"),
        ({"InputDataConfig": [channel("..")]}, "A channel cannot be called '..'"),
        ({"InputDataConfig": [channel(S3Uri="s3://nowhere/x")]}, "No S3 objects found under S3"),
        ({"InputDataConfig": [channel(S3Uri="s3://bucket/none")]}, "No S3 objects found under S3"),
        (
            {"InputDataConfig": [channel(S3DataType="ManifestFile", S3Uri="s3://bucket/many/")]},
            'No S3 objects found under S3 URL "s3://bucket/many/" given in input data source.',
        ),
        (
            {"InputDataConfig": [channel(S3DataType="AugmentedManifestFile")]},
            "AugmentedManifestFile needs AttributeNames",
        ),
        ({"InputDataConfig": [channel(S3DataType="Converse")]}, "Not implemented by Sagehen yet"),
        ({"InputDataConfig": [{**channel(), "InputMode": "Pipe"}]}, "yet: Pipe mode"),
        (
            {"InputDataConfig": [{**channel(), "RecordWrapperType": "RecordIO"}]},
            "RecordWrapperType goes only with Pipe mode",
        ),
        (
            {"InputDataConfig": [{"ChannelName": "a", "DataSource": {}}]},
            "The channel a needs a DataSource with an S3DataSource",
        ),
        (
            {
                "InputDataConfig": [
                    {"ChannelName": "a", "DataSource": {"DatasetSource": {"DatasetArn": "a"}}}
                ]
            },
            "Not implemented by Sagehen yet: data sets as input",
        ),
        ({"ServerlessJobConfig": {"JobType": "FineTuning"}}, "yet: serverless training jobs"),
        ({"Tags": [{"Key": "aws:x", "Value": ""}]}, "aws: prefixed tag key names"),
    ],
)
def test_what_is_refused(server, request_of, refusal, members, said):
    assert said in refusal(lambda: server.CreateTrainingJob(**request_of(**members)))
    assert stored(server) is None


def test_a_job_of_too_many_instances(server, request_of):
    server.configure(max_job_instances=2)
    resources = {**RESOURCES, "InstanceCount": 3}
    with pytest.raises(AwsError) as refused:
        server.CreateTrainingJob(**request_of(ResourceConfig=resources))
    assert refused.value.code == "ResourceLimitExceeded"
    assert "'ml.m5.large for training job usage' is 2 Instances" in refused.value.message


@pytest.mark.parametrize(
    ("image", "members"),
    [
        ("sagemaker-xgboost:1.7-1", {"HyperParameters": {"sagemaker_program": '"train.py"'}}),
        ("model-a", {"HyperParameters": {"sagemaker_program": '"train.py"'}}),
        ("mapped", {}),
    ],
)
def test_what_there_is_something_to_run_for(server, request_of, image, members):
    server.configure(images={"mapped": ["python3", "train.py"]})
    algorithm = {"TrainingImage": image, "TrainingInputMode": "FastFile"}
    server.CreateTrainingJob(**request_of(AlgorithmSpecification=algorithm, **members))
    assert stored(server).definition["AlgorithmSpecification"] == algorithm


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
