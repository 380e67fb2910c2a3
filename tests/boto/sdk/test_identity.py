"""What the SDK finds out by itself in the environment of `sagehen env`, asking nobody else."""

import boto3
import pytest

from support.deploy import IMAGE, Deployer

ROLE = "arn:aws:iam::000000000000:role/SagehenRole"
# The SDK warns of itself, and of much that it imports.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_it_finds_its_role(sdk):
    session = sdk.Session()
    assert sdk.get_execution_role() == ROLE
    assert session.expand_role("Another") == "arn:aws:iam::000000000000:role/Another"
    assert session.account_id() == "000000000000"


def test_the_address_of_aws_leads_to_the_server(sdk):
    given = "https://sts.us-east-1.amazonaws.com"
    identity = boto3.client("sts", endpoint_url=given).get_caller_identity()
    assert identity["Account"] == "000000000000"


def test_its_default_bucket_is_made_on_use(sdk, aws):
    bucket = "sagemaker-us-east-1-000000000000"
    session = sdk.Session()
    assert session.default_bucket() == bucket
    uploaded = session.upload_string_as_file_body("x", bucket, "by-the-sdk/x")
    assert uploaded == f"s3://{bucket}/by-the-sdk/x"
    assert aws.client("s3").get_object(Bucket=bucket, Key="by-the-sdk/x")["Body"].read() == b"x"


def test_a_model_needs_no_session_and_no_role(sdk, aws):
    archive = Deployer(aws).upload("sdk-without-session/model.tar.gz")
    model = sdk.model.Model(image_uri=IMAGE, model_data=archive)
    model.deploy(1, "ml.m5.large", endpoint_name="sdk-without-session", wait=False)
    described = aws.client("sagemaker").describe_model(ModelName=model.name)
    assert described["ExecutionRoleArn"] == ROLE
    assert aws.client("sagemaker").describe_endpoint(EndpointName="sdk-without-session")
