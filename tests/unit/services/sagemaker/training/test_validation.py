"""CreateTrainingJob: what it refuses, and why."""

import pytest

from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.wire.errors import AwsError

RUNS = {"TrainingInputMode": "File", "ContainerEntrypoint": ["true"]}
IMAGE = {**RUNS, "TrainingImage": "model-a"}
RESOURCES = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
SPOT = {"EnableManagedSpotTraining": True}


def stored(server, name="job"):
    with server.database.read() as connection:
        return training_jobs.get(connection, name)


def channel(name="train", **source):
    s3 = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/many/", **source}
    return {"ChannelName": name, "DataSource": {"S3DataSource": s3}}


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
            {"ResourceConfig": {**RESOURCES, "SelectedInstanceType": "ml.m5.large"}},
            "ResourceConfig.SelectedInstanceType is read-only",
        ),
        (
            {"ResourceConfig": {**RESOURCES, "SelectedInstanceCount": 4}},
            "ResourceConfig.SelectedInstanceCount is read-only",
        ),
        (
            {"ResourceConfig": {**RESOURCES, "InstancePlacementConfig": {}}},
            "Not implemented by Sagehen yet: UltraServers",
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
        ({"Environment": {"SAGEHEN_GPU_FRACTION": "2"}}, "must be above 0 and at most 1"),
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
        ({"OutputDataConfig": {"S3OutputPath": "s3://B_AD/x"}}, "is not an address in S3"),
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
