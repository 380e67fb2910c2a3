"""A training job to be asked for, and the words in which one is refused."""

from typing import Any

import pytest


@pytest.fixture
def request_of():
    """`request_of(Member=…)` are CreateTrainingJob's parameters; None leaves a member out."""

    def make(name: str = "job", **members: Any) -> dict[str, Any]:
        params = {
            "TrainingJobName": name,
            "AlgorithmSpecification": {
                "TrainingImage": "model-a",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["python3", "-c", "print(1)"],
            },
            "RoleArn": "arn:aws:iam::000000000000:role/Sagehen",
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
            "ResourceConfig": {
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
            **members,
        }
        return {member: value for member, value in params.items() if value is not None}

    return make
