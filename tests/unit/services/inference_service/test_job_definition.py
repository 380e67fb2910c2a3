"""CreateTrainingJob's parameters of a request: names, images, channels and tags."""

from hypothesis import given
from hypothesis import strategies as st

from sagehen.services.inference_service.job_definition import (
    inline_key,
    job_name,
    make_tags,
    new_suffix,
)
from sagehen.wire.services import service
from sagehen.wire.validation.validate import validate


def definition(house, name):
    return house.training(name).definition


@given(st.text(min_size=1), st.floats(0, 4e9))
def test_a_name_is_one_of_a_training_job_whatever_the_type(kind, now):
    name = job_name(kind, now, "abc123")
    operation = service("sagemaker").operation_model("DescribeTrainingJob")
    validate(operation, {"TrainingJobName": name})
    assert name.endswith("-abc123")


def test_a_name_says_type_and_time():
    assert job_name("model_a.v2", 0, "x") == "model-a-v2-job-1970-01-01-00-00-00-x"
    long = job_name("x" * 300, 0, "abc123")
    assert len(long) == 63
    assert job_name("_", 0, "x") == "type-job-1970-01-01-00-00-00-x"


def test_a_job_as_the_settings_have_it(house):
    name = house.start()
    assert definition(house, name) == {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::000000000000:role/SagehenInferenceService",
        "AlgorithmSpecification": {
            "TrainingImage": "000000000000.dkr.ecr.us-east-1.amazonaws.com/model_a:latest",
            "TrainingInputMode": "File",
        },
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
        "ResourceConfig": {
            "InstanceType": "ml.g4dn.xlarge",
            "InstanceCount": 1,
            "VolumeSizeInGB": 30,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 86_400},
        "CheckpointConfig": {"S3Uri": f"s3://bucket/checkpoints/{name}"},
    }


def test_a_job_of_other_settings(make_house):
    house = make_house(
        role_arn="arn:aws:iam::123456789012:role/service-role/R",
        output_uri="s3://bucket/results/",
        checkpoints=False,
        spot=True,
        max_runtime_seconds=100,
        image="model-images:{type}",
        types={"model-b": {"image": "model-c", "hyperparameters": {"sagemaker_program": "run.py"}}},
    )
    first = definition(house, house.start())
    assert first["AlgorithmSpecification"]["TrainingImage"] == "model-images:model_a"
    assert first["RoleArn"].endswith("/R")
    assert first["OutputDataConfig"] == {"S3OutputPath": "s3://bucket/results"}
    assert first["EnableManagedSpotTraining"] is True
    assert first["StoppingCondition"] == {"MaxRuntimeInSeconds": 100, "MaxWaitTimeInSeconds": 200}
    assert "CheckpointConfig" not in first
    second = definition(house, house.start("model-b", parameters={"a": "b"}))
    assert second["AlgorithmSpecification"]["TrainingImage"] == "model-c"
    assert second["HyperParameters"] == {"a": "b", "sagemaker_program": "run.py"}


def test_suffixes_differ():
    assert len({new_suffix() for _ in range(100)}) == 100
    assert len(new_suffix()) == 6


def test_tags_have_only_characters_that_tags_may_have():
    assert make_tags("dev", "model/a [x]") == {
        "sagehen:inference-service": "dev",
        "sagehen:inference-type": "model/a -x-",
    }
    assert len(make_tags("dev", "x" * 999)["sagehen:inference-type"]) == 256


def test_an_inline_input_lies_in_the_jobs_own_folder():
    assert inline_key("job-1", "input.json") == "input/job-1/input.json"
