"""Endpoints that really start, by a real boto3 client of a real server."""

import pytest
from botocore.exceptions import ClientError, WaiterError

from support.deploy import loads_when

ARN = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/"
SOON = {"Delay": 0.1, "MaxAttempts": 600}


@pytest.fixture(scope="module")
def sagemaker(aws):
    return aws.client("sagemaker")


def refusal(act, **members) -> str:
    with pytest.raises(ClientError) as caught:
        act(**members)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    return caught.value.response["Error"]["Message"]


def test_life_of_an_endpoint(sagemaker, deploy):
    deploy.config("Boto-End")
    answer = sagemaker.create_endpoint(EndpointName="Boto-End", EndpointConfigName="Boto-End")
    assert answer["EndpointArn"] == ARN + "boto-end"
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="Boto-End", WaiterConfig=SOON)
    described = sagemaker.describe_endpoint(EndpointName="boto-end")
    assert described["EndpointName"] == "Boto-End"
    assert described["EndpointConfigName"] == "Boto-End"
    assert described["LastModifiedTime"] >= described["CreationTime"]
    (variant,) = described["ProductionVariants"]
    assert variant["VariantName"] == "AllTraffic"
    assert variant["CurrentWeight"] == variant["DesiredWeight"] == 1
    assert variant["CurrentInstanceCount"] == variant["DesiredInstanceCount"] == 1
    assert not {"ModelName", "InstanceType", "VariantStatus"} & set(variant)
    assert not {"FailureReason", "PendingDeploymentSummary", "LastDeploymentConfig"} & set(
        described
    )
    said = refusal(
        sagemaker.create_endpoint, EndpointName="boto-END", EndpointConfigName="Boto-End"
    )
    assert said == f'Cannot create already existing endpoint "{ARN}boto-end".'
    sagemaker.delete_endpoint(EndpointName="boto-end")
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="Boto-End", WaiterConfig=SOON)
    said = refusal(sagemaker.describe_endpoint, EndpointName="Boto-End")
    assert said == f'Could not find endpoint "{ARN}boto-end".'


def test_update_shows_what_is_pending(sagemaker, deploy, gates):
    deploy.endpoint("boto-update")
    next_one = loads_when(gates / "gate", 3.0)
    deploy.config("boto-update-next", next_one, InstanceType="ml.c5.large")
    sagemaker.update_endpoint(EndpointName="boto-update", EndpointConfigName="boto-update-next")
    described = sagemaker.describe_endpoint(EndpointName="boto-update")
    assert described["EndpointStatus"] == "Updating"
    assert described["EndpointConfigName"] == "boto-update"
    pending = described["PendingDeploymentSummary"]
    assert pending["EndpointConfigName"] == "boto-update-next"
    assert pending["ProductionVariants"][0]["InstanceType"] == "ml.c5.large"
    assert deploy.invoke("boto-update") == "[2.0, 4.0]"
    (gates / "gate").touch()
    assert deploy.settled("boto-update")["EndpointConfigName"] == "boto-update-next"
    assert deploy.invoke("boto-update") == "[3.0, 6.0]"
    said = refusal(
        sagemaker.update_endpoint,
        EndpointName="boto-update",
        EndpointConfigName="boto-update-next",
    )
    assert "currently in use endpoint configuration" in said


def test_waiter_stops_at_a_failed_endpoint_and_only_delete_is_left(sagemaker, deploy):
    deploy.config("boto-broken", "raise RuntimeError('never')\n")
    sagemaker.create_endpoint(EndpointName="boto-broken", EndpointConfigName="boto-broken")
    with pytest.raises(WaiterError, match="terminal failure state"):
        sagemaker.get_waiter("endpoint_in_service").wait(
            EndpointName="boto-broken", WaiterConfig=SOON
        )
    described = sagemaker.describe_endpoint(EndpointName="boto-broken")
    assert "did not pass the ping health check" in described["FailureReason"]
    assert "ProductionVariants" not in described
    said = refusal(
        sagemaker.update_endpoint, EndpointName="boto-broken", EndpointConfigName="boto-broken"
    )
    assert "Cannot update failed endpoint" in said
    sagemaker.delete_endpoint(EndpointName="boto-broken")


def test_limit_is_a_modelled_exception(sagemaker, deploy):
    deploy.config("boto-crowd", InitialInstanceCount=1000)
    with pytest.raises(sagemaker.exceptions.ResourceLimitExceeded) as caught:
        sagemaker.create_endpoint(EndpointName="boto-crowd", EndpointConfigName="boto-crowd")
    assert "a request delta of 1000 Instances" in str(caught.value)
    assert "Could not find endpoint" in refusal(
        sagemaker.describe_endpoint, EndpointName="boto-crowd"
    )


def test_list(sagemaker, deploy):
    deploy.endpoint("boto-listed")
    (one,) = sagemaker.list_endpoints(NameContains="BOTO-listed", StatusEquals="InService")[
        "Endpoints"
    ]
    assert one["EndpointArn"] == ARN + "boto-listed"
    listed = sagemaker.list_endpoints(NameContains="boto-listed", StatusEquals="Failed")
    assert listed["Endpoints"] == []
