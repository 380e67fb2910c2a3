"""Models, by a real boto3 client of a real server."""

from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
ROLE = "arn:aws:iam::000000000000:role/SageMaker"
ARN = "arn:aws:sagemaker:us-east-1:000000000000:model/"


@pytest.fixture(scope="module")
def sagemaker(aws):
    return aws.client("sagemaker")


@pytest.fixture(scope="module")
def data(aws) -> str:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="test-models")
    s3.put_object(Bucket="test-models", Key="model.tar.gz", Body=b"x")
    return "s3://test-models/model.tar.gz"


def create(sagemaker, name: str, data: str | None = None, **members) -> str:
    container = {"Image": IMAGE, **({"ModelDataUrl": data} if data else {})}
    return sagemaker.create_model(
        ModelName=name, ExecutionRoleArn=ROLE, **{"PrimaryContainer": container, **members}
    )["ModelArn"]


def refusal(act, *arguments, **members) -> str:
    with pytest.raises(ClientError) as caught:
        act(*arguments, **members)
    answer = caught.value.response
    assert answer["Error"]["Code"] == "ValidationException"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert answer["ResponseMetadata"]["RequestId"]
    return answer["Error"]["Message"]


def test_life_of_a_model(sagemaker, data):
    assert create(sagemaker, "Boto-Life", data) == ARN + "boto-life"
    described = sagemaker.describe_model(ModelName="boto-life")
    assert described["ModelName"] == "Boto-Life"
    assert described["PrimaryContainer"]["ModelDataUrl"] == data
    assert described["ExecutionRoleArn"] == ROLE
    assert "Containers" not in described
    assert described["CreationTime"].tzinfo is not None
    said = refusal(create, sagemaker, "BOTO-life", data)
    assert said == f'Cannot create already existing model "{ARN}boto-life".'
    sagemaker.delete_model(ModelName="Boto-Life")
    said = refusal(sagemaker.describe_model, ModelName="Boto-Life")
    assert said == f'Could not find model "{ARN}boto-life".'


def test_pages_and_filters(sagemaker):
    for number in range(5):
        create(sagemaker, f"boto-page-{number}")
    paginator = sagemaker.get_paginator("list_models")
    pages = list(
        paginator.paginate(
            NameContains="boto-page",
            SortBy="Name",
            SortOrder="Ascending",
            PaginationConfig={"PageSize": 2},
        )
    )
    names = [[one["ModelName"] for one in page["Models"]] for page in pages]
    assert names == [
        ["boto-page-0", "boto-page-1"],
        ["boto-page-2", "boto-page-3"],
        ["boto-page-4"],
    ]
    newest = sagemaker.list_models(NameContains="boto-page", MaxResults=1)["Models"][0]
    assert newest["ModelName"] == "boto-page-4"
    # Older clients send whole seconds.
    second = timedelta(seconds=1)
    oldest = pages[0]["Models"][0]
    for after, count in (
        (newest["CreationTime"] + second, 0),
        (oldest["CreationTime"] - second, 5),
    ):
        since = sagemaker.list_models(NameContains="boto-page", CreationTimeAfter=after)
        assert len(since["Models"]) == count
    said = refusal(sagemaker.list_models, NextToken="somebody else's")
    assert said == "Invalid pagination token."


def test_data_that_is_not_there(sagemaker, data):
    said = refusal(create, sagemaker, "boto-nothing", data + ".other")
    assert said.startswith(f"Could not access model data at {data}.other. Please ensure that ")
    assert ROLE in said
    assert "Could not find model" in refusal(sagemaker.describe_model, ModelName="boto-nothing")


@pytest.mark.parametrize("name", ["a" * 64, "under_score", "-dash", "dash-", "dot.dot", ""])
def test_names_that_boto3_lets_through(sagemaker, name):
    said = refusal(create, sagemaker, name)
    assert said.startswith(f"1 validation error detected: Value '{name}' at 'modelName' failed")


def test_what_is_not_built_is_named(sagemaker, data):
    container = {"ModelPackageName": "package"}
    said = refusal(sagemaker.create_model, ModelName="boto-package", PrimaryContainer=container)
    assert said.startswith("Not implemented by Sagehen yet: model packages")
