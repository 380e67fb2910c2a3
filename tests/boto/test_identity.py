"""sts and iam, by a real boto3 client."""


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
