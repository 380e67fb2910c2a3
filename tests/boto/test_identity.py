"""sts and iam, by a real boto3 client."""

import urllib.parse

import pytest
from botocore.exceptions import ClientError

from support.plain_http import ask

ROLE = {"RoleArn": "arn:aws:iam::000000000000:role/Any", "RoleSessionName": "session"}


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("assume_role_with_web_identity", {**ROLE, "WebIdentityToken": "token"}),
        (
            "assume_role_with_saml",
            {"RoleArn": ROLE["RoleArn"], "PrincipalArn": ROLE["RoleArn"], "SAMLAssertion": "PHM+"},
        ),
        ("assume_role", ROLE),
    ],
)
def test_roles_that_are_assumed_are_refused_by_name(aws, operation, params):
    """The first two are not signed, on AWS as here."""
    client = aws.client("sts")
    with pytest.raises(ClientError) as caught:
        getattr(client, operation)(**params)
    error = caught.value.response["Error"]
    name = client.meta.method_to_api_mapping[operation]
    assert error["Code"] == "UnsupportedOperation"
    assert f"sts:{name} is not implemented by Sagehen yet" in error["Message"]


def test_other_requests_without_a_signature_stay_unauthenticated(aws):
    body = {"Action": "GetCallerIdentity", "Version": "2011-06-15"}
    for action in ("GetCallerIdentity", "AssumeRoleWithSAMLX", ""):
        answer = ask(aws.url, urllib.parse.urlencode({**body, "Action": action}).encode())
        assert answer.status == 403
        assert b"<Code>MissingAuthenticationToken</Code>" in answer.body


def test_training_metrics_are_refused_by_the_services_name(aws):
    client = aws.client("sagemaker-metrics")
    datum = {"MetricName": "loss", "Timestamp": 1, "Value": 1.0}
    with pytest.raises(ClientError, match='"sagemaker-metrics" is not served by Sagehen'):
        client.batch_put_metrics(TrialComponentName="t", MetricData=[datum])


def test_caller_identity(aws):
    identity = aws.client("sts").get_caller_identity()
    assert identity["Account"] == "000000000000"
    assert identity["Arn"] == "arn:aws:sts::000000000000:assumed-role/SagehenRole/sagehen"


def test_role(aws):
    role = aws.client("iam").get_role(RoleName="Anything")["Role"]
    assert role["Arn"] == "arn:aws:iam::000000000000:role/Anything"
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"]["Service"] == "sagemaker.amazonaws.com"
    assert role["CreateDate"].tzinfo is not None


def test_every_role_may_do_anything(aws):
    asked = ["s3:GetObject", "sagemaker:CreateTrainingJob"]
    pages = (
        aws.client("iam")
        .get_paginator("simulate_principal_policy")
        .paginate(PolicySourceArn="arn:aws:iam::000000000000:role/Anything", ActionNames=asked)
    )
    results = [result for page in pages for result in page["EvaluationResults"]]
    assert [result["EvalActionName"] for result in results] == asked
    assert {result["EvalDecision"] for result in results} == {"allowed"}
