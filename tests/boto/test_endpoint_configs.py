"""Endpoint configs, by a real boto3 client of a real server."""

import pytest
from botocore.exceptions import ClientError

ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint-config/"


@pytest.fixture(scope="module")
def sagemaker(aws):
    client = aws.client("sagemaker")
    client.create_model(ModelName="boto-of-config", PrimaryContainer={"Image": "xgboost"})
    return client


def variant(**members):
    return {
        "VariantName": "AllTraffic",
        "ModelName": "boto-of-config",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
        **members,
    }


def create(sagemaker, name: str, *variants, **members) -> str:
    return sagemaker.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=list(variants or [variant()]), **members
    )["EndpointConfigArn"]


def refusal(act, *arguments, **members) -> str:
    with pytest.raises(ClientError) as caught:
        act(*arguments, **members)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    return caught.value.response["Error"]["Message"]


def test_life_of_a_config(sagemaker):
    given = variant(InitialVariantWeight=0.5, RoutingConfig={"RoutingStrategy": "RANDOM"})
    assert create(sagemaker, "Boto-Config", given) == ARN + "boto-config"
    described = sagemaker.describe_endpoint_config(EndpointConfigName="boto-config")
    assert described["EndpointConfigName"] == "Boto-Config"
    assert described["ProductionVariants"] == [given]
    assert not {"DataCaptureConfig", "AsyncInferenceConfig", "ExplainerConfig"} & set(described)
    said = refusal(create, sagemaker, "boto-config")
    assert said == f'Cannot create already existing endpoint configuration "{ARN}boto-config".'
    sagemaker.delete_endpoint_config(EndpointConfigName="Boto-Config")
    said = refusal(sagemaker.describe_endpoint_config, EndpointConfigName="Boto-Config")
    assert said == f'Could not find endpoint configuration "{ARN}boto-config".'


def test_list(sagemaker):
    for number in range(3):
        create(sagemaker, f"boto-config-listed-{number}")
    pages = sagemaker.get_paginator("list_endpoint_configs").paginate(
        NameContains="boto-config-listed", PaginationConfig={"PageSize": 1}
    )
    names = [page["EndpointConfigs"][0]["EndpointConfigName"] for page in pages]
    assert names == ["boto-config-listed-2", "boto-config-listed-1", "boto-config-listed-0"]


def test_unknown_model(sagemaker):
    said = refusal(create, sagemaker, "boto-c", variant(ModelName="nobody"))
    assert said == 'Could not find model "arn:aws:sagemaker:us-east-1:000000000000:model/nobody".'


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"InstanceType": "ml.m5.enormous"}, "Member must satisfy enum value set"),
        ({"VariantName": "a_b"}, "Member must satisfy regular expression pattern"),
        ({"ContainerStartupHealthCheckTimeoutInSeconds": 4000}, "less than or equal to 3600"),
        ({"ManagedInstanceScaling": {"Status": "ENABLED"}}, "only supported for inference comp"),
        (
            {"ServerlessConfig": {"MemorySizeInMB": 2048, "MaxConcurrency": 5}},
            "ServerlessConfig is not supported with InstanceType.",
        ),
    ],
)
def test_variants_that_cannot_be(sagemaker, members, said):
    assert said in refusal(create, sagemaker, "boto-c", variant(**members))


def test_too_many_variants(sagemaker):
    variants = [variant(VariantName=f"v{number}") for number in range(11)]
    assert "'productionVariants' failed" in refusal(create, sagemaker, "boto-c", *variants)
