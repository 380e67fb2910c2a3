"""sts and iam, by real clients: boto3, and the SageMaker SDK that looks for its role."""

import subprocess
import sys

SDK = """
import boto3, sagemaker

class Here(boto3.Session):
    # The SDK names AWS's own address of sts, which no setting overrides.
    def client(self, *arguments, **members):
        members.pop("endpoint_url", None)
        return super().client(*arguments, **members)

session = sagemaker.Session(boto_session=Here())
print(sagemaker.get_execution_role(session))
print(session.expand_role("Another"))
print(session.account_id())
"""


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


def test_sagemaker_sdk_finds_its_role(aws):
    ran = subprocess.run(
        [sys.executable, "-c", SDK], env=aws.env, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    # The SDK itself tells where it looks for its own settings, above.
    assert ran.stdout.split()[-3:] == [
        "arn:aws:iam::000000000000:role/SagehenRole",
        "arn:aws:iam::000000000000:role/Another",
        "000000000000",
    ]
