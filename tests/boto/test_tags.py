"""Tags, by a real boto3 client of a real server."""

import pytest
from botocore.exceptions import ClientError


@pytest.fixture(scope="module")
def sagemaker(aws):
    return aws.client("sagemaker")


@pytest.fixture
def arn(sagemaker):
    tags = [{"Key": "team", "Value": "rails"}]
    answer = sagemaker.create_model(
        ModelName="boto-tagged", PrimaryContainer={"Image": "xgboost"}, Tags=tags
    )
    yield answer["ModelArn"]
    sagemaker.delete_model(ModelName="boto-tagged")


def test_add_list_delete(sagemaker, arn):
    given = [{"Key": "team", "Value": "tracks"}, {"Key": "stage", "Value": ""}]
    added = sagemaker.add_tags(ResourceArn=arn, Tags=given)["Tags"]
    assert added == sorted(given, key=lambda tag: tag["Key"])
    sagemaker.delete_tags(ResourceArn=arn, TagKeys=["stage"])
    pages = sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    assert [tag for page in pages for tag in page["Tags"]] == [{"Key": "team", "Value": "tracks"}]


def test_refusals(sagemaker, arn):
    for act in (
        lambda: sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "aws:x", "Value": ""}]),
        lambda: sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "x" * 129, "Value": ""}]),
        lambda: sagemaker.list_tags(ResourceArn=arn + "-not"),
        lambda: sagemaker.list_tags(ResourceArn=arn, NextToken="token"),
    ):
        with pytest.raises(ClientError, match="ValidationException"):
            act()
